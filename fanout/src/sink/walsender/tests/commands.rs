//! Log-in and replication commands.

use pg_client::{ConnectError, Connection};
use pg_proto::Oid;

use super::*;

async fn not_let_in(options: &ConnectOptions) -> (String, String) {
    let error: ConnectError = Connection::connect(options).await.unwrap_err();
    let said = error.server().unwrap();
    (said.code().to_owned(), said.message().to_owned())
}

#[tokio::test]
async fn a_subscriber_is_greeted_as_by_the_source() {
    let harness = Harness::start().await;
    let connection = harness.connect().await;
    for (name, value) in [
        ("server_version", "15.18 (Debian 15.18-0+deb12u1)"),
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("application_name", "s1"),
        ("session_authorization", "alice"),
        ("standard_conforming_strings", "on"),
        ("integer_datetimes", "on"),
    ] {
        assert_eq!(connection.parameter(name), Some(value), "{name}");
    }
    assert_eq!(connection.parameters().len(), 13);
    assert!(connection.backend_pid() > 0);
}

#[tokio::test]
async fn who_may_not_have_a_session_is_told_why() {
    let harness = Harness::of_version("15.18", |config| config.fanout.max_connections = 1).await;
    let mut options = harness.options();
    options.database = Some("nosuch".to_owned());
    assert_eq!(
        not_let_in(&options).await,
        (
            "3D000".to_owned(),
            "database \"nosuch\" does not exist".to_owned()
        )
    );
    let room = harness.connect().await;
    assert_eq!(
        not_let_in(&harness.options()).await,
        (
            "53300".to_owned(),
            "sorry, too many clients already".to_owned()
        )
    );
    drop(room);
    let mut options = harness.options();
    options.parameters = vec![("wal_sender_timeout".to_owned(), "soon".to_owned())];
    let patience = std::time::Instant::now();
    loop {
        let (code, _) = not_let_in(&options).await;
        if code == "22023" {
            break;
        }
        assert!(patience.elapsed() < PATIENCE, "the place is not freed");
    }
}

#[tokio::test]
async fn identify_system_and_show() {
    let harness = Harness::start().await;
    let mut connection = harness.connect().await;
    let system = run(&mut connection, "IDENTIFY_SYSTEM").await;
    assert_eq!(
        row(&system),
        [
            Some("7710463238060845282"),
            Some("1"),
            Some("0/120"),
            Some("app")
        ]
    );
    assert_eq!(
        (system.columns[1].name.as_str(), system.columns[1].type_oid),
        ("timeline", Oid(23))
    );
    assert_eq!(system.tag, "IDENTIFY_SYSTEM");
    let shown = run(&mut connection, "SHOW wal_sender_timeout").await;
    assert_eq!(row(&shown), [Some("1min")]);
    let shown = run(&mut connection, "SHOW SERVER_VERSION").await;
    assert_eq!(row(&shown), [Some("15.18 (Debian 15.18-0+deb12u1)")]);
    assert_eq!(shown.columns[0].name, "server_version");
    assert!(harness.asked.lock().is_empty(), "the source was asked");
}

#[tokio::test]
async fn the_timeline_is_wider_from_16_on() {
    let harness = Harness::of_version("16.3", |_| {}).await;
    let mut connection = harness.connect().await;
    let system = run(&mut connection, "IDENTIFY_SYSTEM").await;
    assert_eq!(system.columns[1].type_oid, Oid(20));
}

#[tokio::test]
async fn slots_come_and_go() {
    let harness = Harness::start().await;
    let mut connection = harness.connect().await;
    let created = run(&mut connection, &create("s1")).await;
    assert_eq!(
        row(&created),
        [Some("s1"), Some("0/120"), None, Some("pgoutput")]
    );
    assert_eq!(created.tag, "CREATE_REPLICATION_SLOT");
    assert_eq!(harness.slots.lock()["s1"].creator, "alice");
    let read = run(&mut connection, "READ_REPLICATION_SLOT nope").await;
    assert_eq!(row(&read), [None, None, None]);
    let dropped = run(&mut connection, "DROP_REPLICATION_SLOT \"s1\" WAIT").await;
    assert_eq!(dropped.tag, "DROP_REPLICATION_SLOT");
    assert!(harness.slots.lock().is_empty());
}

/// statement | SQLSTATE | message, of a server of version 15 on which slot `s1` exists.
const REFUSED: &str = r#"
CREATE_REPLICATION_SLOT s1 LOGICAL pgoutput NOEXPORT_SNAPSHOT | 42710 | replication slot "s1" already exists
CREATE_REPLICATION_SLOT "Bad" LOGICAL pgoutput (SNAPSHOT 'nothing') | 42602 | replication slot name "Bad" contains invalid character
CREATE_REPLICATION_SLOT x LOGICAL nosuchplugin (SNAPSHOT 'nothing') | 58P01 | could not access file "nosuchplugin": No such file or directory
CREATE_REPLICATION_SLOT x LOGICAL pgoutput (FAILOVER, SNAPSHOT 'nothing') | XX000 | unrecognized option: failover
CREATE_REPLICATION_SLOT x LOGICAL nosuchplugin | 58P01 | could not access file "nosuchplugin": No such file or directory
CREATE_REPLICATION_SLOT x LOGICAL pgoutput (SNAPSHOT 'use') | XX000 | CREATE_REPLICATION_SLOT ... (SNAPSHOT 'use') must be called inside a transaction
CREATE_REPLICATION_SLOT x PHYSICAL | 0A000 | physical replication is not served by this endpoint
READ_REPLICATION_SLOT s1 | 0A000 | cannot use READ_REPLICATION_SLOT with a logical replication slot
DROP_REPLICATION_SLOT nope | 42704 | replication slot "nope" does not exist
DROP_REPLICATION_SLOT nope WAIT | 42704 | replication slot "nope" does not exist
START_REPLICATION SLOT nope LOGICAL 0/0 (proto_version '1', publication_names 'p') | 42704 | replication slot "nope" does not exist
START_REPLICATION SLOT s1 LOGICAL 0/0 (proto_version '1') | 22023 | publication_names parameter missing
START_REPLICATION SLOT s1 LOGICAL 0/0 | 0A000 | client sent proto_version=0 but we only support protocol 1 or higher
START_REPLICATION SLOT s1 LOGICAL 0/0 (proto_version '1', publication_names 'q') | 42704 | publication "q" does not exist
START_REPLICATION 0/0 | 0A000 | physical replication is not served by this endpoint
TIMELINE_HISTORY 1 | 58P01 | could not open file "pg_wal/00000001.history": No such file or directory
ALTER_REPLICATION_SLOT s1 ( FAILOVER false ); | 42601 | syntax error of the source
"#;

#[tokio::test]
async fn errors_are_those_of_postgresql_and_the_session_goes_on() {
    let harness = Harness::start().await;
    let mut connection = harness.connect().await;
    run(&mut connection, &create("s1")).await;
    for case in REFUSED.lines().filter(|line| !line.is_empty()) {
        let columns: Vec<_> = case.splitn(3, " | ").collect();
        let (code, message) = refused(&mut connection, columns[0]).await;
        assert_eq!(
            (code.as_str(), message.as_str()),
            (columns[1], columns[2]),
            "{case}"
        );
    }
    assert_eq!(
        harness.slots.lock()["s1"].holder,
        "",
        "a failed start keeps the slot"
    );
    run(&mut connection, "IDENTIFY_SYSTEM").await;
}

#[tokio::test]
async fn a_temporary_slot_ends_with_its_session() {
    let harness = Harness::start().await;
    let mut connection = harness.connect().await;
    let create = "CREATE_REPLICATION_SLOT tmp TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT";
    run(&mut connection, create).await;
    assert!(harness.slots.lock()["tmp"].temporary);
    connection.close().await.unwrap();
    eventually("the slot is dropped", || harness.slots.lock().is_empty()).await;
}

#[tokio::test]
async fn version_18_may_alter_a_slot() {
    let harness = Harness::of_version("18.4", |_| {}).await;
    let mut connection = harness.connect().await;
    run(&mut connection, &create("s1")).await;
    let statement = "ALTER_REPLICATION_SLOT s1 ( FAILOVER true, TWO_PHASE false );";
    assert_eq!(
        run(&mut connection, statement).await.tag,
        "ALTER_REPLICATION_SLOT"
    );
    let (code, _) = refused(&mut connection, "ALTER_REPLICATION_SLOT nope ( FAILOVER );").await;
    assert_eq!(code, "42704");
}
