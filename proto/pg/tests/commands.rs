//! Replication commands as clients write them.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in helper functions too"
)]

use pg_proto::Lsn;
use pg_proto::replication::{Command, CommandOption, OptionValue, parse_command};
use proptest::prelude::*;

fn parsed(text: &str) -> Command {
    match parse_command(text) {
        Some(Ok(command)) => command,
        other => panic!("{text}: {other:?}"),
    }
}

fn error(text: &str) -> String {
    match parse_command(text) {
        Some(Err(error)) => error.to_string(),
        other => panic!("{text}: {other:?}"),
    }
}

fn text(name: &str, value: &str) -> CommandOption {
    CommandOption {
        name: name.into(),
        value: Some(OptionValue::Text(value.into())),
    }
}

fn bare(name: &str) -> CommandOption {
    CommandOption {
        name: name.into(),
        value: None,
    }
}

#[test]
fn simple_commands() {
    assert_eq!(parsed("IDENTIFY_SYSTEM"), Command::IdentifySystem);
    assert_eq!(parsed(" \tIDENTIFY_SYSTEM ;"), Command::IdentifySystem);
    assert_eq!(parsed("SHOW Data_Dir"), Command::Show("data_dir".into()));
    assert_eq!(parsed("SHOW a.b.\"C\""), Command::Show("a.b.C".into()));
    assert_eq!(
        parsed("READ_REPLICATION_SLOT s"),
        Command::ReadSlot("s".into())
    );
    assert_eq!(parsed("TIMELINE_HISTORY 3"), Command::TimelineHistory(3));
    assert_eq!(parsed("BASE_BACKUP ( LABEL 'x' )"), Command::BaseBackup);
    assert_eq!(parsed("BASE_BACKUP LABEL 'x' FAST"), Command::BaseBackup);
    assert_eq!(parsed("UPLOAD_MANIFEST"), Command::UploadManifest);
}

#[test]
fn everything_else_is_sql() {
    for sql in [
        "",
        "SELECT 1",
        "identify_system",
        "show work_mem",
        "/* c */ IDENTIFY_SYSTEM",
        "select 1; IDENTIFY_SYSTEM",
        "\"IDENTIFY_SYSTEM\"",
        "'IDENTIFY_SYSTEM",
        "SLOT",
        "SHOWx",
        "0/0",
    ] {
        assert_eq!(parse_command(sql), None, "{sql}");
    }
}

#[test]
fn creating_slots() {
    let create = |slot: &str, temporary, options| Command::CreateLogicalSlot {
        slot: slot.into(),
        temporary,
        plugin: "pgoutput".into(),
        options,
        legacy: slot == "sub",
    };
    assert_eq!(
        parsed("CREATE_REPLICATION_SLOT \"sub\" LOGICAL pgoutput NOEXPORT_SNAPSHOT"),
        create("sub", false, vec![text("snapshot", "nothing")])
    );
    assert_eq!(
        parsed("CREATE_REPLICATION_SLOT \"pg_1\" LOGICAL pgoutput (SNAPSHOT 'use')"),
        create("pg_1", false, vec![text("snapshot", "use")])
    );
    assert_eq!(
        parsed("CREATE_REPLICATION_SLOT S TEMPORARY LOGICAL \"pgoutput\" USE_SNAPSHOT TWO_PHASE;"),
        create("s", true, vec![text("snapshot", "use"), bare("two_phase")])
    );
    assert_eq!(
        parsed(
            "CREATE_REPLICATION_SLOT s LOGICAL pgoutput (FAILOVER, TWO_PHASE off, x 1, SNAPSHOT 'nothing')"
        ),
        create(
            "s",
            false,
            vec![
                bare("failover"),
                text("two_phase", "off"),
                CommandOption {
                    name: "x".into(),
                    value: Some(OptionValue::Integer(1)),
                },
                text("snapshot", "nothing"),
            ]
        )
    );
    assert_eq!(
        parsed("CREATE_REPLICATION_SLOT s PHYSICAL RESERVE_WAL"),
        Command::CreatePhysicalSlot { slot: "s".into() }
    );
    assert_eq!(
        error("CREATE_REPLICATION_SLOT s LOGICAL pgoutput FAILOVER NOEXPORT_SNAPSHOT"),
        "syntax error"
    );
    error("CREATE_REPLICATION_SLOT s LOGICAL pgoutput ()");
    error("CREATE_REPLICATION_SLOT s LOGICAL");
    error("CREATE_REPLICATION_SLOT 's' LOGICAL pgoutput");
}

#[test]
fn changing_and_dropping_slots() {
    let drop = |wait| Command::DropSlot {
        slot: "s".into(),
        wait,
    };
    assert_eq!(parsed("DROP_REPLICATION_SLOT s"), drop(false));
    assert_eq!(parsed("DROP_REPLICATION_SLOT \"s\" WAIT"), drop(true));
    assert_eq!(
        parsed("ALTER_REPLICATION_SLOT s ( FAILOVER true, TWO_PHASE 'false' );"),
        Command::AlterSlot {
            slot: "s".into(),
            options: vec![text("failover", "true"), text("two_phase", "false")],
        }
    );
    assert_eq!(error("DROP_REPLICATION_SLOT"), "syntax error");
    assert_eq!(error("DROP_REPLICATION_SLOT s wait"), "syntax error");
    assert_eq!(error("DROP_REPLICATION_SLOT SLOT"), "syntax error");
}

#[test]
fn starting_replication() {
    let command = "START_REPLICATION SLOT \"sub\" LOGICAL 16/B374D848 (proto_version '4', streaming 'on', \
        origin 'any', publication_names '\"a\",\"it''s\"', \"binary\")";
    assert_eq!(
        parsed(command),
        Command::StartLogical {
            slot: "sub".into(),
            start: Lsn(0x16_B374_D848),
            options: vec![
                text("proto_version", "4"),
                text("streaming", "on"),
                text("origin", "any"),
                text("publication_names", "\"a\",\"it's\""),
                bare("binary"),
            ],
        }
    );
    assert_eq!(
        parsed("START_REPLICATION SLOT s LOGICAL abc/0"),
        Command::StartLogical {
            slot: "s".into(),
            start: Lsn(0xABC << 32),
            options: vec![],
        }
    );
    for physical in [
        "START_REPLICATION 0/0",
        "START_REPLICATION PHYSICAL 0/1 TIMELINE 1",
        "START_REPLICATION SLOT s 0/1",
        "START_REPLICATION SLOT s PHYSICAL 0/1 TIMELINE 2;",
    ] {
        assert_eq!(parsed(physical), Command::StartPhysical);
    }
    for bad in [
        "START_REPLICATION",
        "START_REPLICATION LOGICAL 0/0",
        "START_REPLICATION SLOT s LOGICAL 0",
        "START_REPLICATION SLOT s LOGICAL 0/0 ()",
        "START_REPLICATION SLOT s LOGICAL 0/0 (a 1)",
        "START_REPLICATION SLOT s LOGICAL 0/0 (TWO_PHASE 'on')",
        "START_REPLICATION SLOT s LOGICAL 0/0 (a '1') (b '2')",
        "START_REPLICATION SLOT s LOGICAL 0/0; SELECT 1",
        "START_REPLICATION SLOT s LOGICAL 123456789/0",
        "START_REPLICATION SLOT s LOGICAL 0/0 (a 'x",
    ] {
        error(bad);
    }
}

#[test]
fn names_are_down_cased_and_cut_as_identifiers_are() {
    let long = format!("{}é", "X".repeat(62));
    assert_eq!(
        parsed(&format!("SHOW {long}")),
        Command::Show("x".repeat(62))
    );
    assert_eq!(parsed("SHOW \"Ab\"\"C\""), Command::Show("Ab\"C".into()));
    assert_eq!(parsed("SHOW a$1"), Command::Show("a$1".into()));
}

#[test]
fn booleans_are_read_as_the_server_reads_them() {
    let value = |value| CommandOption {
        name: "x".into(),
        value,
    };
    let read = |text: &str| value(Some(OptionValue::Text(text.into()))).as_bool();
    assert_eq!(value(None).as_bool(), Some(true));
    assert_eq!(read("ON"), Some(true));
    assert_eq!(read("False"), Some(false));
    assert_eq!(read("1"), None);
    assert_eq!(read("yes"), None);
    assert_eq!(value(Some(OptionValue::Integer(0))).as_bool(), Some(false));
    assert_eq!(value(Some(OptionValue::Integer(2))).as_bool(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn survives_any_text(text in ".*") {
        let _ = parse_command(&text);
        let _ = parse_command(&format!("START_REPLICATION {text}"));
        let _ = parse_command(&format!("CREATE_REPLICATION_SLOT s LOGICAL p {text}"));
    }

    #[test]
    fn any_name_comes_back_quoted(name in "[^\0]{1,15}", value in "[^\0]{0,30}") {
        let quoted = name.replace('"', "\"\"");
        let literal = value.replace('\'', "''");
        let command = format!("START_REPLICATION SLOT \"{quoted}\" LOGICAL 0/1 (\"{quoted}\" '{literal}')");
        let expected = Command::StartLogical {
            slot: name.clone(),
            start: Lsn(1),
            options: vec![text(&name, &value)],
        };
        prop_assert_eq!(parse_command(&command), Some(Ok(expected)));
    }
}
