//! The fanout's PostgreSQL endpoint answers as a server would.

use pg_proto::Lsn;
use tests::Session;
use tests::scale::patience;
use tests::sql::{Endpoint, SqlError};
use tests::subscriber::{PostgresSubscriber, StreamClient};

use super::stage::{PUBLICATION, Stage};

const TABLE: &str = "create table t (id int primary key, v text)";

async fn connect(endpoint: &Endpoint) -> Session {
    Session::connect_for_replication(endpoint).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_queries_answer_as_at_the_source() {
    for major in [15, 18] {
        let mut stage = Stage::new(major, 1, TABLE).await;
        stage.settle().await;
        let mut fanout = connect(&stage.decant.fanout(0).endpoint()).await;
        let mut source = connect(&stage.source.endpoint()).await;
        for query in [
            "SHOW server_version",
            "SHOW wal_level",
            "SELECT pg_catalog.set_config('search_path', '', false);",
            "SELECT t.pubname FROM pg_catalog.pg_publication t ORDER BY 1",
            "SELECT current_user, current_database(), current_setting('search_path')",
            "select 1; select 2",
        ] {
            assert_eq!(fanout.run(query).await, source.run(query).await, "{query}");
        }
        let identity = fanout.run("IDENTIFY_SYSTEM").await;
        let expected = source.run("IDENTIFY_SYSTEM").await;
        assert_eq!(identity[0][..2], expected[0][..2]);
        assert_eq!(identity[0][3], expected[0][3]);

        // A transaction's state belongs to the session.
        fanout
            .run("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ")
            .await;
        let error = fanout.try_run("select 1/0").await.unwrap_err();
        assert_eq!(error.code, "22012");
        let error = fanout.try_run("select 1").await.unwrap_err();
        assert_eq!(error.code, "25P02");
        fanout.run("ROLLBACK").await;
        assert_eq!(fanout.value("select 1").await, "1");
    }
}

async fn start(endpoint: &Endpoint, slot: &str, options: &str) -> SqlError {
    StreamClient::start(endpoint, slot, Lsn::INVALID, options)
        .await
        .err()
        .unwrap_or_else(|| panic!("{options}: no error"))
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_the_codes_and_words_of_a_server() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let mut session = connect(&endpoint).await;
    session
        .run("CREATE_REPLICATION_SLOT s LOGICAL pgoutput NOEXPORT_SNAPSHOT")
        .await;
    for (command, code, message) in [
        (
            "CREATE_REPLICATION_SLOT s LOGICAL pgoutput NOEXPORT_SNAPSHOT",
            "42710",
            "replication slot \"s\" already exists",
        ),
        (
            "CREATE_REPLICATION_SLOT \"Bad\" LOGICAL pgoutput NOEXPORT_SNAPSHOT",
            "42602",
            "replication slot name \"Bad\" contains invalid character",
        ),
        (
            "DROP_REPLICATION_SLOT none",
            "42704",
            "replication slot \"none\" does not exist",
        ),
        (
            "select nonsense",
            "42703",
            "column \"nonsense\" does not exist",
        ),
    ] {
        let error = session.try_run(command).await.unwrap_err();
        assert_eq!(error.code, code, "{command}: {error}");
        assert_eq!(error.message.lines().next(), Some(message));
    }
    let names = format!("publication_names '{PUBLICATION}'");
    for (slot, options, code) in [
        ("none", format!("proto_version '1', {names}"), "42704"),
        ("s", format!("proto_version '9', {names}"), "0A000"),
        ("s", format!("proto_version 'x', {names}"), "22023"),
        ("s", format!("proto_version '1', {names}, bad 'x'"), "XX000"),
        (
            "s",
            format!("proto_version '1', {names}, streaming 'on'"),
            "22023",
        ),
        (
            "s",
            format!("proto_version '1', {names}, binary 'yes'"),
            "42601",
        ),
        ("s", "proto_version '1'".to_owned(), "22023"),
    ] {
        let error = start(&endpoint, slot, &options).await;
        assert_eq!(error.code, code, "{options}: {error}");
    }
    let options = format!("proto_version '1', {names}");
    let _holds = StreamClient::start(&endpoint, "s", Lsn::INVALID, &options)
        .await
        .unwrap();
    let error = start(&endpoint, "s", &options).await;
    assert_eq!(error.code, "55006", "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_leaves_nothing_behind_when_it_is_dropped() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let subscriber = PostgresSubscriber::start_new(18).await;
    subscriber.cluster.sql(TABLE).await;
    subscriber
        .subscribe("sub", &endpoint, PUBLICATION, "")
        .await;
    stage.source.sql("insert into t values (1, 'x')").await;
    let end = stage.settle().await;
    subscriber.wait_for("sub", end, patience()).await;
    assert_eq!(stage.decant.status().await.slots.len(), 1);
    // Other options on the way: each restarts the worker with a new connection.
    for change in [
        "alter subscription sub disable",
        "alter subscription sub enable",
        "alter subscription sub set (binary = true)",
        "alter subscription sub set (streaming = on)",
        "alter subscription sub set (origin = none)",
        "alter subscription sub refresh publication with (copy_data = false)",
    ] {
        subscriber.cluster.sql(change).await;
    }
    stage
        .source
        .sql("update t set v = 'y'; insert into t values (2, null)")
        .await;
    subscriber
        .wait_for_contents(&stage.source, &["t"], patience())
        .await;
    subscriber.cluster.sql("drop subscription sub").await;
    assert!(stage.decant.status().await.slots.is_empty());
    assert_eq!(stage.source.slot_count().await, 1);
}
