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
    options.parameters = SESSION
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    options
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
    fn the_stream_connection_is_a_walsender_with_fixed_settings() {
        let options = replication_options(&Config::default());
        assert!(options.replication);
        assert_eq!(options.application_name.as_deref(), Some("decant_decant"));
        let setting = ("TimeZone".to_owned(), "UTC".to_owned());
        assert!(options.parameters.contains(&setting));
        assert!(!connect_options(&Config::default(), "x").replication);
    }
}
