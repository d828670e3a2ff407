//! What becomes of statements that real clients send, and of those that are made to be misread.

use super::*;

const SLOTS: &str = "pg_catalog.json_populate_recordset(NULL::pg_catalog.pg_replication_slots, \
                     pg_catalog.current_setting('decant.replication_slots')::pg_catalog.json)";

fn verdict(text: &str) -> Verdict {
    let dialect = Dialect {
        escapes: false,
        has_failover: true,
        publications: None,
    };
    analyse(text.as_bytes(), dialect)
}

fn special_of(text: &str) -> Special {
    match verdict(text) {
        Verdict::Special(special) => special,
        other => panic!("{text}: {other:?}"),
    }
}

fn rewritten(text: &str) -> String {
    String::from_utf8(special_of(text).text).unwrap()
}

#[test]
fn the_view_of_slots_is_read_over_rows_of_this_endpoint() {
    for (text, expected) in [
        (
            "select * from pg_replication_slots where slot_name = $1 and database = $2 and plugin = $3",
            format!(
                "select * from {SLOTS} AS pg_replication_slots where slot_name = $1 and database = $2 and plugin = $3"
            ),
        ),
        (
            "SELECT s.active FROM pg_catalog.pg_replication_slots AS s",
            format!("SELECT s.active FROM {SLOTS} AS s"),
        ),
        (
            "SELECT 1 FROM a JOIN \"pg_replication_slots\" s ON s.x = a.x",
            format!("SELECT 1 FROM a JOIN {SLOTS} s ON s.x = a.x"),
        ),
        (
            "SELECT pg_replication_slots.active FROM a, PG_REPLICATION_SLOTS",
            format!("SELECT pg_replication_slots.active FROM a, {SLOTS} AS pg_replication_slots"),
        ),
        (
            "SELECT (SELECT count(*) FROM pg_replication_slots), (SELECT 1)",
            format!("SELECT (SELECT count(*) FROM {SLOTS} AS pg_replication_slots), (SELECT 1)"),
        ),
    ] {
        assert_eq!(rewritten(text), expected);
    }
}

#[test]
fn what_is_not_the_view_stays() {
    for text in [
        "select 'pg_replication_slots'::regclass",
        "select * from my.pg_replication_slots",
        "select 1 as pg_replication_slots",
        "select a.pg_replication_slots from a",
        "select 1 -- from pg_replication_slots",
        "select /* pg_drop_replication_slot('a') */ 1",
        "select oid from pg_proc where proname = 'pg_drop_replication_slot'",
        "select my.pg_drop_replication_slot('a')",
        "comment on view v is 'see pg_replication_slots'",
    ] {
        assert_eq!(verdict(text), Verdict::Plain, "{text}");
    }
}

#[test]
fn a_call_asks_for_its_arguments_first() {
    let special = special_of("SELECT pg_drop_replication_slot($1)");
    assert_eq!(
        String::from_utf8(special.asking.unwrap()).unwrap(),
        "SELECT pg_catalog.json_build_array(pg_catalog.json_build_array('pg_drop_replication_slot', \
         ($1)::pg_catalog.name)::pg_catalog.text)::pg_catalog.text, NULL AS \"pg_drop_replication_slot\""
    );
    let text = String::from_utf8(special.text).unwrap();
    assert!(text.starts_with("SELECT pg_catalog.pg_sleep(CASE WHEN ($1)::pg_catalog.name IS NULL"));
    assert!(text.ends_with(" AS \"pg_drop_replication_slot\""), "{text}");
}

#[test]
fn calls_are_found_where_clients_write_them() {
    for text in [
        "select pg_drop_replication_slot('dbz')",
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'a' AND NOT active;",
        "SELECT * FROM pg_create_logical_replication_slot('s', 'pgoutput')",
        "SELECT lsn FROM pg_catalog.pg_create_logical_replication_slot('s', 'pgoutput', false, true, false) AS x",
        "SELECT 'init' FROM pg_create_logical_replication_slot('s', 'pgoutput')",
        "SELECT pg_create_logical_replication_slot(slot_name => 's', plugin => 'pgoutput', twophase := true)",
        "SELECT (pg_create_logical_replication_slot('s', 'pgoutput')).lsn::text AS at",
        "SELECT pg_replication_slot_advance('s', '0/1')::text",
        "SELECT pg_terminate_backend(active_pid), slot_name FROM pg_replication_slots s WHERE s.slot_name IN ('a')",
        "SELECT pg_terminate_backend($1)",
    ] {
        assert!(special_of(text).asking.is_some(), "{text}");
    }
}

#[test]
fn what_might_be_wrong_is_refused() {
    for text in [
        "SELECT count(pg_drop_replication_slot(slot_name)) FROM pg_replication_slots",
        "SELECT 1 WHERE pg_drop_replication_slot('a') IS NULL",
        "SELECT pg_drop_replication_slot('a') ORDER BY 1",
        "SELECT pg_drop_replication_slot('a'), nextval('s')",
        "SELECT (pg_create_logical_replication_slot('s', 'pgoutput')).*",
        "SELECT pg_drop_replication_slot('a'); SELECT 1",
        "SELECT pg_drop_replication_slot('a', 'b')",
        "SELECT pg_drop_replication_slot()",
        "SELECT CASE WHEN true THEN pg_drop_replication_slot('a') END",
        "WITH x AS (SELECT pg_drop_replication_slot('a')) SELECT * FROM x",
        "SELECT * FROM pg_create_logical_replication_slot('s', 'pgoutput'), t",
        "SELECT pg_create_physical_replication_slot('a')",
        "SELECT * FROM pg_logical_slot_get_changes('a', null, null)",
        "DO $$ BEGIN PERFORM pg_drop_replication_slot('a'); END $$",
        "DO $$ BEGIN PERFORM 1 FROM pg_replication_slots; END $$",
        "SELECT query_to_xml('select pg_drop_replication_slot(''a'')', true, true, '')",
        "PREPARE x AS SELECT * FROM pg_replication_slots",
        "CREATE VIEW v AS SELECT * FROM pg_replication_slots",
        "TABLE pg_replication_slots",
        "SELECT pg_drop_replication_slot('a",
    ] {
        assert!(matches!(verdict(text), Verdict::Refused(_)), "{text}");
    }
}

#[test]
fn quotes_and_comments_hide_nothing_and_end_nothing() {
    let text =
        "select 'a''; drop table pg_replication_slots(', slot_name from pg_replication_slots";
    assert!(matches!(verdict(text), Verdict::Special(_)), "{text}");
    let text = "select pg_drop_replication_slot/* x */ ( -- y\n 'a' )";
    assert!(special_of(text).asking.is_some());
    let text = "select \"pg_drop_replication_slot\"('a')";
    assert!(special_of(text).asking.is_some());
}
