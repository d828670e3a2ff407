//! What real clients send, in their order, and the kinds of messages that a server answers with.

use super::*;

/// Statement, and the type bytes of the answer.
type Script = &'static [(&'static str, &'static str)];

const CLEAR_SEARCH_PATH: (&str, &str) = (
    "SELECT pg_catalog.set_config('search_path', '', false);",
    "TDCZ",
);

/// pg_recvlogical of version 15 with `--create-slot`, which then leaves.
const RECVLOGICAL_CREATE: Script = &[
    CLEAR_SEARCH_PATH,
    ("SHOW data_directory_mode", "TDCZ"),
    ("IDENTIFY_SYSTEM", "TDCZ"),
    (
        "CREATE_REPLICATION_SLOT \"s1\" LOGICAL \"pgoutput\" ( SNAPSHOT 'nothing')",
        "TDCZ",
    ),
];

/// The same with `--start`.
const RECVLOGICAL_START: Script = &[
    CLEAR_SEARCH_PATH,
    ("SHOW data_directory_mode", "TDCZ"),
    ("IDENTIFY_SYSTEM", "TDCZ"),
    (
        "START_REPLICATION SLOT \"s1\" LOGICAL 0/0 (\"proto_version\" '1', \"publication_names\" 'p', \
         \"messages\" 'true')",
        "W",
    ),
];

/// `CREATE SUBSCRIPTION` of version 15.
const CREATE_SUBSCRIPTION: Script = &[
    CLEAR_SEARCH_PATH,
    (
        "SELECT t.pubname FROM\n pg_catalog.pg_publication t WHERE\n t.pubname IN ('p')",
        "TDCZ",
    ),
    (
        "SELECT DISTINCT t.schemaname, t.tablename \n, t.attnames\nFROM pg_catalog.pg_publication_tables t\n \
         WHERE t.pubname IN ('p')",
        "TDCZ",
    ),
    (
        "CREATE_REPLICATION_SLOT \"s1\" LOGICAL pgoutput (SNAPSHOT 'nothing')",
        "TDCZ",
    ),
];

/// Its apply worker.
const APPLY: Script = &[
    CLEAR_SEARCH_PATH,
    ("IDENTIFY_SYSTEM", "TDCZ"),
    (
        "START_REPLICATION SLOT \"s1\" LOGICAL 0/0 (proto_version '3', streaming 'on', two_phase 'on', \
         publication_names '\"p\"', binary 'true')",
        "W",
    ),
];

/// A table synchronisation that is tried again, up to its stream.
const TABLE_SYNC: Script = &[
    CLEAR_SEARCH_PATH,
    (
        "DROP_REPLICATION_SLOT pg_16449_sync_16397_7710463241471203634 WAIT",
        "EZ",
    ),
    ("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ", "CZ"),
    (
        "CREATE_REPLICATION_SLOT \"pg_16449_sync_16397_7710463241471203634\" LOGICAL pgoutput \
         (SNAPSHOT 'use')",
        "TDCZ",
    ),
    ("COPY t TO STDOUT", "HdddcCZ"),
    ("COMMIT", "CZ"),
    (
        "START_REPLICATION SLOT \"pg_16449_sync_16397_7710463241471203634\" LOGICAL 0/120 \
         (proto_version '3', publication_names '\"p\"')",
        "W",
    ),
];

/// `DROP SUBSCRIPTION`.
const DROP_SUBSCRIPTION: Script = &[
    CLEAR_SEARCH_PATH,
    ("DROP_REPLICATION_SLOT \"s1\" WAIT", "CZ"),
];

/// Plays a script. Settings and notices between the answers are left out.
async fn play(connection: &mut Connection, script: Script) {
    for (statement, expected) in script {
        connection
            .send_query_raw(statement.as_bytes())
            .await
            .unwrap();
        let mut tags = String::new();
        while !tags.ends_with(['Z', 'W']) {
            let frame = tokio::time::timeout(PATIENCE, connection.next_frame()).await;
            let tag = char::from(frame.expect("no answer").unwrap().tag());
            if !matches!(tag, 'S' | 'N') {
                tags.push(tag);
            }
        }
        assert_eq!(&tags, expected, "{statement}");
    }
}

#[tokio::test]
async fn pg_recvlogical() {
    let harness = Harness::start().await;
    play(&mut harness.connect().await, RECVLOGICAL_CREATE).await;
    play(&mut harness.connect().await, RECVLOGICAL_START).await;
}

#[tokio::test]
async fn a_subscription_from_its_creation_to_its_end() {
    let harness = Harness::start().await;
    let mut connection = harness.connect().await;
    play(&mut connection, CREATE_SUBSCRIPTION).await;
    connection.close().await.unwrap();
    let mut worker = harness.connect().await;
    play(&mut worker, APPLY).await;
    // The worker is stopped, and the slot is dropped while its connection may still be ending.
    worker.close().await.unwrap();
    play(&mut harness.connect().await, DROP_SUBSCRIPTION).await;
    assert!(harness.slots.lock().is_empty());
}

#[tokio::test]
async fn a_table_synchronisation() {
    let harness = Harness::start().await;
    play(&mut harness.connect().await, TABLE_SYNC).await;
    let asked = harness.asked.lock().clone();
    // The client's own transaction imports the snapshot that the other one exported.
    let import = "SET TRANSACTION SNAPSHOT '00000003-00000001-1'".to_owned();
    assert!(asked.contains(&import), "{asked:?}");
}

/// What is exported lives until the next command.
#[tokio::test]
async fn an_exported_snapshot() {
    let harness = Harness::start().await;
    let mut connection = harness.connect().await;
    let created = run(
        &mut connection,
        "CREATE_REPLICATION_SLOT e LOGICAL pgoutput",
    )
    .await;
    assert_eq!(
        row(&created),
        [
            Some("e"),
            Some("0/120"),
            Some("00000003-00000001-1"),
            Some("pgoutput")
        ]
    );
    let inside = "CREATE_REPLICATION_SLOT f LOGICAL pgoutput (SNAPSHOT 'export')";
    run(&mut connection, "BEGIN").await;
    let (code, message) = refused(&mut connection, inside).await;
    assert_eq!(code, "XX000");
    assert_eq!(
        message,
        "CREATE_REPLICATION_SLOT ... (SNAPSHOT 'export') must not be called inside a transaction"
    );
}

/// The log does not come to the snapshot: the client may cancel, and is told when that has no end.
#[tokio::test]
async fn a_snapshot_that_the_log_does_not_reach() {
    let wait = |config: &mut Config| config.fanout.snapshot_wait_ms = 300;
    let harness = Harness::of_version("15.18", wait).await;
    let mut options = harness.options();
    source::AHEAD.clone_into(&mut options.user);
    let mut connection = Connection::connect(&options).await.unwrap();
    let create = "CREATE_REPLICATION_SLOT e LOGICAL pgoutput";
    let (code, message) = refused(&mut connection, create).await;
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("55000", "the log does not reach the snapshot")
    );
    let token = connection.cancel_token();
    let cancelling = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        token.cancel().await
    });
    let (code, _) = refused(&mut connection, create).await;
    cancelling.await.unwrap().unwrap();
    assert_eq!(code, "57014");
    assert!(harness.slots.lock().is_empty());
    run(&mut connection, "IDENTIFY_SYSTEM").await;
}
