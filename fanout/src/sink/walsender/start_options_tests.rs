use pg_proto::replication::{CommandOption, OptionValue};

use pg_proto::wire::field;

use super::*;

fn version(major: u32) -> ServerVersion {
    ServerVersion::parse(&major.to_string()).unwrap()
}

/// `name 'value'`, or `name` alone.
fn options(list: &[(&str, Option<&str>)]) -> Vec<CommandOption> {
    list.iter()
        .map(|(name, value)| CommandOption {
            name: (*name).to_owned(),
            value: value.map(|value| OptionValue::Text(value.to_owned())),
        })
        .collect()
}

fn refused(major: u32, list: &[(&str, Option<&str>)]) -> (String, String) {
    let report = parse(version(major), "x1", &options(list)).unwrap_err();
    assert_eq!(
        report.get(field::CONTEXT),
        Some("slot \"x1\", output plugin \"pgoutput\", in the startup callback")
    );
    (report.code().to_owned(), report.message().to_owned())
}

const PUBS: (&str, Option<&str>) = ("publication_names", Some("\"p1\",\"p2\""));

fn proto(number: &str) -> (&str, Option<&str>) {
    ("proto_version", Some(number))
}

#[test]
fn takes_what_a_subscriber_sends() {
    let parsed = parse(
        version(18),
        "s",
        &options(&[
            proto("4"),
            ("streaming", Some("parallel")),
            ("two_phase", Some("on")),
            ("origin", Some("NONE")),
            PUBS,
            ("binary", Some("true")),
        ]),
    )
    .unwrap();
    assert_eq!(
        parsed,
        StartOptions {
            proto_version: 4,
            publications: vec!["p1".to_owned(), "p2".to_owned()],
            binary: true,
            streaming: Streaming::Parallel,
            two_phase: true,
            messages: false,
            origin_none: true,
        }
    );
    let parsed = parse(
        version(15),
        "s",
        &options(&[proto("1"), PUBS, ("messages", None)]),
    );
    assert!(parsed.unwrap().messages);
}

#[test]
fn proto_version_out_of_range() {
    for (major, number, code, message) in [
        (
            14,
            "3",
            "0A000",
            "client sent proto_version=3 but we only support protocol 2 or lower",
        ),
        (
            15,
            "9",
            "0A000",
            "client sent proto_version=9 but we only support protocol 3 or lower",
        ),
        (
            16,
            "9",
            "0A000",
            "client sent proto_version=9 but server only supports protocol 4 or lower",
        ),
        (
            15,
            "0",
            "0A000",
            "client sent proto_version=0 but we only support protocol 1 or higher",
        ),
        (
            18,
            "0",
            "0A000",
            "client sent proto_version=0 but server only supports protocol 1 or higher",
        ),
        (15, "x", "22023", "invalid proto_version"),
        (15, "1x", "22023", "invalid proto_version"),
        (
            15,
            "99999999999",
            "22023",
            "proto_version \"99999999999\" out of range",
        ),
        (
            15,
            "99999999999999999999999",
            "22023",
            "invalid proto_version",
        ),
    ] {
        assert_eq!(
            refused(major, &[proto(number), PUBS]),
            (code.to_owned(), message.to_owned())
        );
    }
}

#[test]
fn required_options() {
    for (major, list, code, message) in [
        (
            15,
            vec![],
            "0A000",
            "client sent proto_version=0 but we only support protocol 1 or higher",
        ),
        (
            15,
            vec![proto("1")],
            "22023",
            "publication_names parameter missing",
        ),
        (
            15,
            vec![proto("1"), ("publication_names", Some(""))],
            "22023",
            "publication_names parameter missing",
        ),
        (17, vec![PUBS], "22023", "option \"proto_version\" missing"),
        (
            18,
            vec![proto("1")],
            "22023",
            "option \"publication_names\" missing",
        ),
    ] {
        assert_eq!(refused(major, &list), (code.to_owned(), message.to_owned()));
    }
    let none = options(&[proto("1"), ("publication_names", Some(""))]);
    assert!(
        parse(version(18), "s", &none)
            .unwrap()
            .publications
            .is_empty()
    );
}

/// version | option | value | SQLSTATE | message; with proto_version '1' and publication_names before.
const REFUSED: &str = "\
15 | bad | | XX000 | unrecognized pgoutput option: bad
15 | origin | none | XX000 | unrecognized pgoutput option: origin
14 | two_phase | on | XX000 | unrecognized pgoutput option: two_phase
16 | origin | foo | 22023 | unrecognized origin value: \"foo\"
15 | proto_version | 1 | 42601 | conflicting or redundant options
15 | binary | 1 | 42601 | binary requires a Boolean value
15 | binary | yes | 42601 | binary requires a Boolean value
15 | streaming | parallel | 42601 | streaming requires a Boolean value
16 | streaming | x | 42601 | streaming requires a Boolean value or \"parallel\"
15 | streaming | on | 22023 | requested proto_version=1 does not support streaming, need 2 or higher
16 | streaming | parallel | 22023 | requested proto_version=1 does not support parallel streaming, need 4 or higher
15 | two_phase | on | 22023 | requested proto_version=1 does not support two-phase commit, need 3 or higher";

#[test]
fn values_and_names() {
    for case in REFUSED.lines() {
        let columns: Vec<_> = case.splitn(5, '|').map(str::trim).collect();
        let value = Some(columns[2]).filter(|value| !value.is_empty());
        let list = [proto("1"), PUBS, (columns[1], value)];
        let expected = (columns[3].to_owned(), columns[4].to_owned());
        assert_eq!(
            refused(columns[0].parse().unwrap(), &list),
            expected,
            "{case}"
        );
    }
    assert_eq!(
        refused(15, &[proto("1"), ("publication_names", Some("a b"))]),
        (
            "42602".to_owned(),
            "invalid publication_names syntax".to_owned()
        )
    );
}
