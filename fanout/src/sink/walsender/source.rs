//! What is known of the source from the log: who it is and which version it speaks.

use std::collections::BTreeMap;

use pg_proto::wire::{ErrorFields, sqlstate};

use super::upstream::with_causes;
use super::version::ServerVersion;
use crate::replay::Replay;

/// The source as the log knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) system_identifier: u64,
    pub(super) timeline: u32,
    pub(super) database: String,
    pub(super) version: ServerVersion,
    /// Parameters that its sessions report.
    pub(super) parameters: BTreeMap<String, String>,
}

impl Source {
    /// As of the log's head.
    pub(super) fn of(replay: &Replay) -> Result<Self, ErrorFields> {
        let catalog = replay.catalog().map_err(|error| {
            ErrorFields::fatal(error.sqlstate(), error.to_string()).with_detail(with_causes(&error))
        })?;
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let identity = replay.identity();
        Self::new(
            identity.system_identifier,
            identity.timeline,
            &identity.database,
            catalog.parameters().iter().map(owned).collect(),
        )
    }

    /// From the log's identity and the parameters in its catalog.
    pub(super) fn new(
        system_identifier: u64,
        timeline: u32,
        database: &str,
        parameters: BTreeMap<String, String>,
    ) -> Result<Self, ErrorFields> {
        let version = parameters
            .get("server_version")
            .and_then(|version| ServerVersion::parse(version));
        Ok(Self {
            system_identifier,
            timeline,
            database: database.to_owned(),
            version: version.ok_or_else(not_known)?,
            parameters,
        })
    }
}

/// A log that is so new that it does not say which server it comes from.
fn not_known() -> ErrorFields {
    ErrorFields::fatal(
        sqlstate::CANNOT_CONNECT_NOW,
        "the database system is starting up",
    )
    .with_detail("The log does not hold the parameters of the source yet.")
    .with_hint("Is the decoder running, and connected to the source?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_without_a_version_can_not_be_announced() {
        let error = Source::new(1, 1, "app", BTreeMap::new()).unwrap_err();
        assert_eq!(error.code(), "57P03");
        assert!(error.is_fatal());
    }
}
