//! The packets before the first frame: they have a length but no type byte.

use super::backend::NegotiateProtocolVersion;
use super::frame::{FrameError, Split, put_cstr, put_sized};
use crate::read::{ReadError, Reader};

/// The longest packet that a server takes from a client it does not know yet (`MAX_STARTUP_PACKET_LENGTH`).
pub const MAX_STARTUP_LEN: usize = 10_000;

/// Major version 1234: not a version but one of these requests.
const CANCEL_REQUEST: u32 = 1234 << 16 | 5678;
const SSL_REQUEST: u32 = 1234 << 16 | 5679;
const GSSENC_REQUEST: u32 = 1234 << 16 | 5680;

/// A protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProtocolVersion {
    /// 3.
    pub major: u16,
    /// 0, or 2 since PostgreSQL 18.
    pub minor: u16,
}

impl ProtocolVersion {
    /// 3.0, which every server and client speaks.
    pub const V3_0: Self = Self { major: 3, minor: 0 };
}

/// The first thing that a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartupPacket {
    /// It wants TLS; the answer is one byte, 'S' or 'N'.
    SslRequest,
    /// It wants GSSAPI encryption; the answer is one byte, 'G' or 'N'.
    GssEncRequest,
    /// It wants another connection's query cancelled; there is no answer.
    CancelRequest {
        /// The process of that connection.
        pid: u32,
        /// Its secret.
        key: Vec<u8>,
    },
    /// It wants to begin.
    Startup(StartupMessage),
}

/// StartupMessage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupMessage {
    /// The version that the client speaks.
    pub version: ProtocolVersion,
    /// `user`, `database`, `options`, `replication` and settings, in order.
    pub parameters: Vec<(String, String)>,
}

/// What the parameter `replication` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationMode {
    /// An ordinary connection.
    Off,
    /// A walsender of physical replication.
    Physical,
    /// A walsender connected to a database: logical replication, and SQL.
    Database,
}

/// A value of the parameter `replication` that is neither a boolean nor `database`: SQLSTATE 22023.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value for parameter \"replication\": \"{value}\"")]
pub struct InvalidReplication {
    /// The value.
    pub value: String,
}

/// Splits the first packet off `buffer`: its content without the length.
pub fn split_startup(buffer: &[u8]) -> Result<Split<&[u8]>, FrameError> {
    let Some((length, rest)) = buffer.split_first_chunk::<4>() else {
        return Ok(Split::Partial { need: 4 });
    };
    let claimed = u32::from_be_bytes(*length);
    let len = usize::try_from(claimed).unwrap_or(usize::MAX);
    if len < 8 {
        return Err(FrameError::TooShort { tag: 0, claimed });
    }
    if len > MAX_STARTUP_LEN {
        let max = MAX_STARTUP_LEN;
        return Err(FrameError::TooLong {
            tag: 0,
            claimed,
            max,
        });
    }
    Ok(match rest.get(..len - 4) {
        Some(frame) => Split::Whole { frame, len },
        None => Split::Partial { need: len },
    })
}

impl StartupPacket {
    /// Decodes a packet's content.
    pub fn decode(content: &[u8]) -> Result<Self, ReadError> {
        let mut reader = Reader::new(content);
        let packet = match reader.u32("protocol version")? {
            SSL_REQUEST => Self::SslRequest,
            GSSENC_REQUEST => Self::GssEncRequest,
            CANCEL_REQUEST => Self::CancelRequest {
                pid: reader.u32("process id")?,
                key: reader.bytes(reader.rest().len(), "cancel key")?.to_vec(),
            },
            version => Self::Startup(StartupMessage::take(version, &mut reader)?),
        };
        reader.finish("the start-up packet")?;
        Ok(packet)
    }

    /// Appends the whole packet.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_sized(out, |out| match self {
            Self::SslRequest => out.extend_from_slice(&SSL_REQUEST.to_be_bytes()),
            Self::GssEncRequest => out.extend_from_slice(&GSSENC_REQUEST.to_be_bytes()),
            Self::CancelRequest { pid, key } => {
                out.extend_from_slice(&CANCEL_REQUEST.to_be_bytes());
                out.extend_from_slice(&pid.to_be_bytes());
                out.extend_from_slice(key);
            }
            Self::Startup(message) => message.put(out),
        });
    }
}

impl StartupMessage {
    fn take(version: u32, reader: &mut Reader<'_>) -> Result<Self, ReadError> {
        let [a, b, c, d] = version.to_be_bytes();
        let version = ProtocolVersion {
            major: u16::from_be_bytes([a, b]),
            minor: u16::from_be_bytes([c, d]),
        };
        let mut parameters = Vec::new();
        if version.major == ProtocolVersion::V3_0.major {
            loop {
                let name = take_text(reader, "parameter name")?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name, take_text(reader, "parameter value")?));
            }
        } else {
            // The layout behind another major version is not known; the version is what gets refused.
            reader.bytes(reader.rest().len(), "parameters")?;
        }
        Ok(Self {
            version,
            parameters,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.major.to_be_bytes());
        out.extend_from_slice(&self.version.minor.to_be_bytes());
        for (name, value) in self.parameters.iter().filter(|(name, _)| !name.is_empty()) {
            put_cstr(name.as_bytes(), out);
            put_cstr(value.as_bytes(), out);
        }
        out.push(0);
    }

    /// A parameter's value, the last one if it is there twice, as in PostgreSQL.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().rfind(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// What kind of connection it asks for (`ProcessStartupPacket`: `database` in lower case, or a boolean).
    pub fn replication(&self) -> Result<ReplicationMode, InvalidReplication> {
        match self.parameter("replication") {
            None => Ok(ReplicationMode::Off),
            Some("database") => Ok(ReplicationMode::Database),
            Some(value) => match parse_bool(value) {
                Some(true) => Ok(ReplicationMode::Physical),
                Some(false) => Ok(ReplicationMode::Off),
                None => Err(InvalidReplication {
                    value: value.to_owned(),
                }),
            },
        }
    }

    /// What to answer before anything else if the client asks for more than minor version `newest_minor`:
    /// a higher minor version, or protocol options. `None`: nothing.
    #[must_use]
    pub fn negotiate(&self, newest_minor: u16) -> Option<NegotiateProtocolVersion> {
        let names = self.parameters.iter().map(|(name, _)| name);
        let unrecognized: Vec<String> = names
            .filter(|name| name.starts_with("_pq_."))
            .cloned()
            .collect();
        let higher = self.version.minor > newest_minor;
        (higher || !unrecognized.is_empty()).then(|| NegotiateProtocolVersion {
            newest_minor: u32::from(newest_minor.min(self.version.minor)),
            unrecognized,
        })
    }
}

fn take_text(reader: &mut Reader<'_>, field: &'static str) -> Result<String, ReadError> {
    let bytes = reader.cstr(field)?;
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => {
            let first = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
            Err(reader.invalid(field, first))
        }
    }
}

/// PostgreSQL's `parse_bool`: unambiguous beginnings of the words, in any case.
fn parse_bool(value: &str) -> Option<bool> {
    let value = value.to_ascii_lowercase();
    let begins = |word: &str, least: usize| value.len() >= least && word.starts_with(&value);
    if begins("true", 1) || begins("yes", 1) || value == "on" || value == "1" {
        Some(true)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || value == "0" {
        Some(false)
    } else {
        None
    }
}

/// The settings in the parameter `options`: `-c name=value` and `--name=value`, blanks escaped by a
/// backslash (`pg_split_opts`). In names `-` stands for `_`. What is no setting is left out.
#[must_use]
pub fn option_settings(options: &str) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    let mut words = split_options(options).into_iter();
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("--") {
            Some(setting) => Some(setting.to_owned()),
            None if word == "-c" => words.next(),
            None => word.strip_prefix("-c").map(str::to_owned),
        };
        if let Some((name, value)) = setting.as_deref().and_then(|text| text.split_once('=')) {
            settings.push((name.replace('-', "_"), value.to_owned()));
        }
    }
    settings
}

fn split_options(options: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = options.chars();
    while let Some(next) = chars.next() {
        match next {
            '\\' => word.get_or_insert_default().extend(chars.next()),
            blank if blank.is_ascii_whitespace() || blank == '\x0B' => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(parameters: &[(&str, &str)]) -> StartupMessage {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        StartupMessage {
            version: ProtocolVersion::V3_0,
            parameters: parameters.iter().map(owned).collect(),
        }
    }

    #[test]
    fn knows_the_kinds_of_connections() {
        let mode = |value: &str| message(&[("replication", value)]).replication();
        assert_eq!(message(&[]).replication(), Ok(ReplicationMode::Off));
        assert_eq!(mode("database"), Ok(ReplicationMode::Database));
        for value in ["true", "on", "1", "YES", "t"] {
            assert_eq!(mode(value), Ok(ReplicationMode::Physical), "{value}");
        }
        for value in ["false", "off", "0", "n"] {
            assert_eq!(mode(value), Ok(ReplicationMode::Off), "{value}");
        }
        for value in ["o", "", "DATABASE", "2"] {
            assert!(mode(value).is_err(), "{value}");
        }
    }

    #[test]
    fn reads_the_settings_of_a_subscriber() {
        let text =
            " -c datestyle=ISO -cintervalstyle=postgres --extra-float-digits=3 -c a=b\\ c\\\\";
        let expected = [
            ("datestyle", "ISO"),
            ("intervalstyle", "postgres"),
            ("extra_float_digits", "3"),
            ("a", "b c\\"),
        ];
        let settings = option_settings(text);
        let settings: Vec<_> = settings.iter().map(|(a, b)| (&a[..], &b[..])).collect();
        assert_eq!(settings, expected);
    }

    #[test]
    fn negotiates_only_what_it_must() {
        assert_eq!(message(&[("user", "x")]).negotiate(0), None);
        let mut newer = message(&[("_pq_.compression", "on")]);
        newer.version.minor = 2;
        let answer = newer.negotiate(0).unwrap();
        assert_eq!(answer.newest_minor, 0);
        assert_eq!(answer.unrecognized, ["_pq_.compression"]);
    }
}
