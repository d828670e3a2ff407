//! What clients ask for.

use pg_proto::replication::{command_keyword, parse_command};
use prost::Message;
use proto::v1::SubscribeRequest;
use proto::v1::subscribe_request::Start;

pub(super) fn run_grammar(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let _ = command_keyword(text);
    let Some(Ok(command)) = parse_command(text) else {
        return false;
    };
    fanout::fuzzing::check_options(&command);
    true
}

pub(super) fn seeds_of_grammar() -> Vec<Vec<u8>> {
    [
        "IDENTIFY_SYSTEM;",
        "SHOW server_version",
        "CREATE_REPLICATION_SLOT \"s\" TEMPORARY LOGICAL pgoutput (SNAPSHOT 'use', TWO_PHASE true, FAILOVER)",
        "CREATE_REPLICATION_SLOT s LOGICAL pgoutput EXPORT_SNAPSHOT TWO_PHASE",
        "READ_REPLICATION_SLOT s",
        "ALTER_REPLICATION_SLOT s (FAILOVER false, TWO_PHASE)",
        "DROP_REPLICATION_SLOT s WAIT",
        "START_REPLICATION SLOT \"s\" LOGICAL 0/1569CD8 (proto_version '4', streaming 'parallel', origin 'none', \
         publication_names '\"one\",\"two \"\"quoted\"\"\"', messages 'on', binary, two_phase)",
        "START_REPLICATION SLOT s PHYSICAL 16/B374D848 TIMELINE 3",
        "TIMELINE_HISTORY 2",
        "BASE_BACKUP (LABEL 'x', PROGRESS, CHECKPOINT 'fast')",
        "/* a /* nested */ comment */ IDENTIFY_SYSTEM -- and one more",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(super) fn run_statement(bytes: &[u8]) -> bool {
    fanout::fuzzing::read_statement(bytes);
    true
}

pub(super) fn seeds_of_statements() -> Vec<Vec<u8>> {
    [
        "SELECT slot_name, plugin FROM pg_catalog.pg_replication_slots WHERE slot_name = 's'",
        "select * from pg_replication_slots s join pg_class c on true; select pg_drop_replication_slot('s')",
        "SELECT pg_create_logical_replication_slot('a', 'pgoutput', false, true), $$pg_stat_replication$$",
        "SELECT E'\\'pg_replication_slots', U&\"pg\\005freplication_slots\", \"pg_replication_slots\".x",
        "WITH x AS (SELECT * FROM pg_stat_replication) SELECT pg_replication_slot_advance(slot_name, '0/1') FROM x",
        "SELECT pg_current_wal_lsn(), pg_logical_slot_get_changes('s', NULL, NULL) /* /* */ */ -- x",
        "SELECT DISTINCT t.pubname, t.schemaname, t.tablename FROM pg_catalog.pg_publication_tables t \
         WHERE t.pubname IN ('one', 'two')",
        "SELECT pubname FROM pg_catalog.pg_publication WHERE pubname IN ('one')",
        "DO $tag$ BEGIN PERFORM pg_drop_replication_slot('s'); END $tag$",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(super) fn run_grpc(bytes: &[u8]) -> bool {
    let Ok(request) = SubscribeRequest::decode(bytes) else {
        return false;
    };
    fanout::fuzzing::check_request(request);
    true
}

pub(super) fn seeds_of_grpc() -> Vec<Vec<u8>> {
    let request = SubscribeRequest {
        start: Some(Start::Slot("s".to_owned())),
        publications: vec!["one".to_owned(), "two".to_owned()],
        ..SubscribeRequest::default()
    };
    let other = SubscribeRequest {
        start: Some(Start::StartLsn(0x1000)),
        tables: vec![proto::v1::TableName {
            schema: "public".to_owned(),
            name: "accounts".to_owned(),
        }],
        options: Some(Default::default()),
        ..SubscribeRequest::default()
    };
    vec![request.encode_to_vec(), other.encode_to_vec()]
}
