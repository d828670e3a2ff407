//! The source server's settings that a client is told at connection start.

use std::collections::BTreeMap;

use pg_proto::read::{ReadError, Reader};

use super::codec;

/// Reported parameters of the source, such as `server_version` and `server_encoding`, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerParameters {
    values: BTreeMap<String, String>,
}

impl ServerParameters {
    /// A parameter's value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Sets a parameter; the value before, if there was one.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) -> Option<String> {
        self.values.insert(name.into(), value.into())
    }

    /// All parameters, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.values
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Appends the payload of a server parameters record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        codec::put_len(out, self.values.len());
        for (name, value) in &self.values {
            codec::put_str(out, name);
            codec::put_str(out, value);
        }
    }

    /// The inverse of [`Self::encode`].
    pub fn decode(payload: &[u8]) -> Result<Self, ReadError> {
        let mut reader = Reader::new(payload);
        let pairs = codec::take_list(&mut reader, "server parameter count", 8, |reader| {
            let name = codec::take_str(reader, "server parameter name")?;
            Ok((name, codec::take_str(reader, "server parameter value")?))
        })?;
        reader.finish("server parameters")?;
        Ok(pairs.into_iter().collect())
    }
}

impl FromIterator<(String, String)> for ServerParameters {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self {
            values: pairs.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_refuses_every_truncation() {
        let mut parameters = ServerParameters::default();
        parameters.set("server_version", "15.4");
        parameters.set("server_encoding", "UTF8");
        assert_eq!(parameters.set("server_version", "15.5").unwrap(), "15.4");
        let mut bytes = Vec::new();
        parameters.encode(&mut bytes);
        assert_eq!(ServerParameters::decode(&bytes).unwrap(), parameters);
        for end in 0..bytes.len() {
            assert!(ServerParameters::decode(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn a_hostile_count_allocates_nothing() {
        assert!(ServerParameters::decode(&[0xFF; 12]).is_err());
    }
}
