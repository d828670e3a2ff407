//! The start-up packet and what it asks for.

use std::time::Duration;

use pg_proto::wire::{
    BackendMessage, ErrorFields, ReplicationMode, StartupMessage, option_settings, sqlstate,
};

use super::settings::parse_milliseconds;

/// The newest minor version of protocol 3 that is spoken here.
const NEWEST_MINOR: u16 = 0;
/// What a session was opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Login {
    /// The role.
    pub(super) user: String,
    /// The database.
    pub(super) database: String,
    /// What kind of session it is.
    pub(super) mode: ReplicationMode,
    /// Settings: those inside `options` first, then those given directly, which win.
    pub(super) settings: Vec<(String, String)>,
}

impl Login {
    /// Reads a start-up packet (`ProcessStartupPacket`).
    pub(super) fn from_startup(message: &StartupMessage) -> Result<Self, ErrorFields> {
        let (major, minor) = (message.version.major, message.version.minor);
        if major != 3 {
            return Err(ErrorFields::fatal(
                sqlstate::FEATURE_NOT_SUPPORTED,
                format!(
                    "unsupported frontend protocol {major}.{minor}: server supports 3.0 to \
                     3.{NEWEST_MINOR}"
                ),
            ));
        }
        let mode = message.replication().map_err(|error| {
            ErrorFields::fatal(sqlstate::INVALID_PARAMETER_VALUE, error.to_string())
                .with_hint("Valid values are: \"false\", 0, \"true\", 1, \"database\".")
        })?;
        let given = |name| message.parameter(name).filter(|value| !value.is_empty());
        let user = given("user").ok_or_else(|| {
            ErrorFields::fatal(
                sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
                "no PostgreSQL user name specified in startup packet",
            )
        })?;
        let mut settings = option_settings(given("options").unwrap_or_default());
        settings.extend(
            message
                .parameters
                .iter()
                .filter(|(name, _)| is_setting(name))
                .cloned(),
        );
        Ok(Self {
            user: user.to_owned(),
            database: given("database").unwrap_or(user).to_owned(),
            mode,
            settings,
        })
    }

    /// A setting's value, the last one given. Names are compared as PostgreSQL does, in any case.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        let found = self
            .settings
            .iter()
            .rfind(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// What the client calls itself.
    pub(super) fn application_name(&self) -> &str {
        self.setting("application_name").unwrap_or_default()
    }

    /// After which silence the client is given up; `None`: never.
    pub(super) fn wal_sender_timeout(
        &self,
        default: Duration,
    ) -> Result<Option<Duration>, ErrorFields> {
        let timeout = match self.setting("wal_sender_timeout") {
            Some(value) => parse_milliseconds("wal_sender_timeout", value)?,
            None => default,
        };
        Ok(Some(timeout).filter(|timeout| !timeout.is_zero()))
    }
}

/// Whether a start-up parameter is a run-time setting.
fn is_setting(name: &str) -> bool {
    !matches!(name, "user" | "database" | "options" | "replication") && !name.starts_with("_pq_.")
}

/// The answer to a client that speaks a newer minor version or asks for protocol options, if it does.
pub(super) fn negotiation(message: &StartupMessage) -> Option<BackendMessage<'static>> {
    message
        .negotiate(NEWEST_MINOR)
        .map(BackendMessage::NegotiateProtocolVersion)
}

#[cfg(test)]
mod tests {
    use pg_proto::wire::ProtocolVersion;

    use super::*;

    fn startup(parameters: &[(&str, &str)]) -> StartupMessage {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        StartupMessage {
            version: ProtocolVersion::V3_0,
            parameters: parameters.iter().map(owned).collect(),
        }
    }

    #[test]
    fn takes_the_packet_of_a_subscriber() {
        let login = Login::from_startup(&startup(&[
            ("user", "postgres"),
            ("database", "app"),
            ("replication", "database"),
            (
                "options",
                " -c datestyle=ISO -c intervalstyle=postgres -c extra_float_digits=3",
            ),
            ("application_name", "s1"),
            ("client_encoding", "UTF8"),
        ]))
        .unwrap();
        assert_eq!(login.mode, ReplicationMode::Database);
        assert_eq!(
            (login.user.as_str(), login.database.as_str()),
            ("postgres", "app")
        );
        assert_eq!(login.application_name(), "s1");
        assert_eq!(login.setting("DateStyle"), Some("ISO"));
        assert_eq!(login.setting("CLIENT_ENCODING"), Some("UTF8"));
        assert_eq!(login.setting("user"), None);
    }

    #[test]
    fn the_database_is_named_as_the_user_unless_given() {
        let login = Login::from_startup(&startup(&[("user", "u")])).unwrap();
        assert_eq!(
            (login.database.as_str(), login.mode),
            ("u", ReplicationMode::Off)
        );
    }

    #[test]
    fn refuses_with_the_words_of_postgresql() {
        let mut old = startup(&[("user", "u")]);
        old.version.major = 2;
        for (message, code, words) in [
            (
                old,
                "0A000",
                "unsupported frontend protocol 2.0: server supports 3.0 to 3.0",
            ),
            (
                startup(&[("database", "d")]),
                "28000",
                "no PostgreSQL user name specified in startup packet",
            ),
            (
                startup(&[("user", "u"), ("replication", "maybe")]),
                "22023",
                "invalid value for parameter \"replication\": \"maybe\"",
            ),
        ] {
            let error = Login::from_startup(&message).unwrap_err();
            assert_eq!((error.code(), error.message()), (code, words));
            assert!(error.is_fatal());
        }
    }

    #[test]
    fn wal_sender_timeout_of_the_connection_wins() {
        let default = Duration::from_secs(60);
        let of = |parameters: &[(&str, &str)]| {
            Login::from_startup(&startup(parameters))
                .unwrap()
                .wal_sender_timeout(default)
        };
        assert_eq!(of(&[("user", "u")]).unwrap(), Some(default));
        assert_eq!(
            of(&[("user", "u"), ("wal_sender_timeout", "0")]).unwrap(),
            None
        );
        assert_eq!(
            of(&[("user", "u"), ("options", "-c wal_sender_timeout=5s")]).unwrap(),
            Some(Duration::from_secs(5))
        );
        assert!(of(&[("user", "u"), ("wal_sender_timeout", "x")]).is_err());
    }
}
