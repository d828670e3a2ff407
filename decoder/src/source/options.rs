//! How the source is connected to.

use pg_client::ConnectOptions;
use service::config::Config;

/// Settings of every session at the source: the text of values must not depend on what is configured for a role, a
/// database or the server, since the log's content is compared and parsed by others; and nothing may end a session that
/// waits.
const SESSION: &[(&str, &str)] = &[
    ("DateStyle", "ISO"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("bytea_output", "hex"),
    ("extra_float_digits", "3"),
    ("quote_all_identifiers", "off"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
];

/// Options for a plain SQL connection to the source.
#[must_use]
pub fn connect_options(config: &Config, application_name: &str) -> ConnectOptions {
    let mut options = config.source.connect_options(application_name);
    options.parameters = session_parameters();
    options
}

/// Where to ask, and where to write: a standby can't be written to.
#[derive(Clone, Debug)]
pub struct Addresses {
    source: ConnectOptions,
    primary: Option<ConnectOptions>,
}

impl Addresses {
    /// Of the configured source.
    pub(crate) fn new(config: &Config, application_name: &str) -> Self {
        let with_settings = |mut options: ConnectOptions| {
            options.parameters = session_parameters();
            options
        };
        Self {
            source: connect_options(config, application_name),
            primary: config
                .source
                .primary_options(application_name)
                .map(with_settings),
        }
    }

    /// The source itself.
    pub(crate) const fn source(&self) -> &ConnectOptions {
        &self.source
    }

    /// The server that can be written to: the source, unless it is a standby now.
    pub(crate) fn writable(&self, standby: bool) -> &ConnectOptions {
        match &self.primary {
            Some(primary) if standby => primary,
            _ => &self.source,
        }
    }
}

fn session_parameters() -> Vec<(String, String)> {
    SESSION
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Options for the connection that the stream comes on.
pub(crate) fn replication_options(config: &Config) -> ConnectOptions {
    let mut options = connect_options(config, &format!("decant_{}", config.source.slot));
    options.replication = true;
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promoted_standby_is_written_to_itself() {
        let mut config = Config::default();
        config.source.primary_host = "primary".to_owned();
        let addresses = Addresses::new(&config, "x");
        let primary = addresses.writable(true);
        assert_eq!(primary.host, "primary");
        assert_eq!(primary.parameters, addresses.source().parameters);
        assert_eq!(addresses.writable(false).host, "localhost");
    }

    #[test]
    fn the_stream_connection_is_a_walsender_with_fixed_settings() {
        let options = replication_options(&Config::default());
        assert!(options.replication);
        assert_eq!(options.application_name.as_deref(), Some("decant_decant"));
        let setting = ("TimeZone".to_owned(), "UTC".to_owned());
        assert!(options.parameters.contains(&setting));
        assert!(!connect_options(&Config::default(), "x").replication);
    }
}
