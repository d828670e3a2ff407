//! The settings that a client is told at the start (`ParameterStatus`), as the announced version reports them.

use std::collections::BTreeMap;

use super::login::Login;
use super::settings::encoding_key;
use super::version::ServerVersion;

/// Reported by every version, in the order of versions 14 and 15. The value is what holds if neither the client
/// nor the log says otherwise: the settings under which the log's values were written.
const REPORTED: [(&str, &str); 13] = [
    ("application_name", ""),
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("default_transaction_read_only", "off"),
    ("in_hot_standby", "off"),
    ("integer_datetimes", "on"),
    ("IntervalStyle", "postgres"),
    ("is_superuser", "off"),
    ("server_encoding", "UTF8"),
    ("server_version", ""),
    ("session_authorization", ""),
    ("standard_conforming_strings", "on"),
    ("TimeZone", "UTC"),
];

/// Settings of a session that are known here, by canonical name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parameters {
    values: Vec<(String, String)>,
}

impl Parameters {
    /// What a session reports. `source`: parameters of the source, from the log.
    pub(super) fn of_session(
        version: ServerVersion,
        source: &BTreeMap<String, String>,
        login: &Login,
    ) -> Self {
        let of_source = |name: &str| source.get(name).cloned();
        let mut names: Vec<(&str, &str)> = REPORTED.to_vec();
        if version.reports_scram_iterations() {
            names.push(("scram_iterations", "4096"));
        }
        if version.reports_search_path() {
            names.push(("search_path", "\"$user\", public"));
        }
        let values = names.into_iter().map(|(name, default)| {
            let value = match name {
                "session_authorization" => login.user.clone(),
                "application_name" => login.application_name().to_owned(),
                "server_version" | "server_encoding" | "integer_datetimes" => {
                    of_source(name).unwrap_or_else(|| default.to_owned())
                }
                "client_encoding" => login
                    .setting(name)
                    .map(str::to_owned)
                    .or_else(|| of_source("server_encoding"))
                    .unwrap_or_else(|| default.to_owned()),
                "DateStyle" => date_style(login.setting(name).unwrap_or(default)),
                "is_superuser" => default.to_owned(),
                _ => login
                    .setting(name)
                    .map(str::to_owned)
                    .or_else(|| of_source(name))
                    .unwrap_or_else(|| default.to_owned()),
            };
            (name.to_owned(), value)
        });
        let values = values.collect();
        Self { values }
    }

    /// Names and values in the order in which they are reported. A physical walsender reports the same ones.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A parameter by its name in any case, with its canonical name.
    pub(super) fn find(&self, name: &str) -> Option<(&str, &str)> {
        self.iter()
            .find(|(canonical, _)| canonical.eq_ignore_ascii_case(name))
    }

    /// Notes a new value. Returns whether it is one.
    pub(super) fn update(&mut self, name: &str, value: &str) -> bool {
        match self.values.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) if known == value => false,
            Some((_, known)) => {
                value.clone_into(known);
                true
            }
            None => {
                self.values.push((name.to_owned(), value.to_owned()));
                true
            }
        }
    }
}

/// `ISO` alone keeps the default order of day and month.
fn date_style(given: &str) -> String {
    if given.eq_ignore_ascii_case("iso") {
        return "ISO, MDY".to_owned();
    }
    given.to_owned()
}

/// Why a stream can't be had in the client's encoding, if it can't: the log's values are in the source's own,
/// and are not converted.
pub(super) fn encoding_conflict(parameters: &Parameters) -> Option<String> {
    let client = parameters.find("client_encoding")?.1;
    let server = parameters.find("server_encoding")?.1;
    let (client_key, server_key) = (encoding_key(client), encoding_key(server));
    let converts = client_key != server_key && client_key != "sqlascii" && server_key != "sqlascii";
    converts.then(|| {
        format!(
            "values are sent in the encoding of the source, {server}, and not converted to {client}"
        )
    })
}

/// Settings of the client that a walsender would follow and this endpoint does not: the text of the values is fixed in
/// the log. Each with what holds instead.
pub(super) fn fixed_settings(parameters: &Parameters, login: &Login) -> Vec<String> {
    let of = |name: &'static str| {
        let known = parameters.find(name).map(|(_, value)| value);
        known.or_else(|| login.setting(name)).unwrap_or_default()
    };
    let mut fixed = Vec::new();
    let mut check = |name: &'static str, follows: &dyn Fn(&str) -> bool, holds: &str| {
        let value = of(name).to_ascii_lowercase();
        if !value.is_empty() && !follows(value.trim()) {
            fixed.push(format!("{name} is {holds}"));
        }
    };
    check("DateStyle", &|value| value.starts_with("iso"), "ISO");
    check("IntervalStyle", &|value| value == "postgres", "postgres");
    check("bytea_output", &|value| value == "hex", "hex");
    let shortest = |value: &str| value.parse::<i32>().is_ok_and(|digits| digits > 0);
    check("extra_float_digits", &shortest, "3");
    fixed
}

#[cfg(test)]
mod tests {
    use pg_proto::wire::ReplicationMode;

    use super::*;

    fn login(settings: &[(&str, &str)]) -> Login {
        Login {
            user: "alice".to_owned(),
            database: "app".to_owned(),
            mode: ReplicationMode::Database,
            settings: settings
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    fn source() -> BTreeMap<String, String> {
        [
            ("server_version", "15.18 (Debian 15.18-0+deb12u1)"),
            ("server_encoding", "UTF8"),
            ("session_authorization", "decant"),
            ("is_superuser", "on"),
            ("application_name", "decant_decant"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    fn version(major: u32) -> ServerVersion {
        ServerVersion::parse(&major.to_string()).unwrap()
    }

    #[test]
    fn reports_what_version_15_reports_in_its_order() {
        let parameters = Parameters::of_session(
            version(15),
            &source(),
            &login(&[("application_name", "s1"), ("datestyle", "ISO")]),
        );
        let reported: Vec<_> = parameters.iter().collect();
        assert_eq!(
            reported,
            [
                ("application_name", "s1"),
                ("client_encoding", "UTF8"),
                ("DateStyle", "ISO, MDY"),
                ("default_transaction_read_only", "off"),
                ("in_hot_standby", "off"),
                ("integer_datetimes", "on"),
                ("IntervalStyle", "postgres"),
                ("is_superuser", "off"),
                ("server_encoding", "UTF8"),
                ("server_version", "15.18 (Debian 15.18-0+deb12u1)"),
                ("session_authorization", "alice"),
                ("standard_conforming_strings", "on"),
                ("TimeZone", "UTC"),
            ]
        );
    }

    #[test]
    fn later_versions_report_more() {
        let names = |major| {
            let parameters = Parameters::of_session(version(major), &source(), &login(&[]));
            let has = |name| parameters.find(name).is_some();
            (has("scram_iterations"), has("search_path"))
        };
        assert_eq!(names(15), (false, false));
        assert_eq!(names(16), (true, false));
        assert_eq!(names(18), (true, true));
    }

    #[test]
    fn a_foreign_encoding_is_no_stream() {
        let conflict = |encoding: &str| {
            let login = login(&[("client_encoding", encoding)]);
            let parameters = Parameters::of_session(version(15), &source(), &login);
            encoding_conflict(&parameters)
        };
        assert_eq!(conflict("utf-8"), None);
        assert_eq!(conflict("SQL_ASCII"), None);
        assert!(conflict("LATIN1").unwrap().contains("LATIN1"));
    }

    #[test]
    fn settings_that_change_nothing_are_named() {
        let fixed = |settings: &[(&str, &str)]| {
            let login = login(settings);
            let parameters = Parameters::of_session(version(15), &source(), &login);
            fixed_settings(&parameters, &login)
        };
        let of_a_subscriber = [
            ("datestyle", "ISO"),
            ("intervalstyle", "postgres"),
            ("extra_float_digits", "3"),
        ];
        assert_eq!(fixed(&of_a_subscriber), Vec::<String>::new());
        assert_eq!(
            fixed(&[
                ("DateStyle", "German"),
                ("extra_float_digits", "0"),
                ("bytea_output", "escape")
            ]),
            [
                "DateStyle is ISO",
                "bytea_output is hex",
                "extra_float_digits is 3"
            ]
        );
    }
}
