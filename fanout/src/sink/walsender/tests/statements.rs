//! SQL around replication: what is answered here, and what the source is asked.

use pg_client::TransactionStatus;
use pg_proto::wire::{BackendMessage, FrontendMessage};

use super::*;

const Q1: &str = "SELECT pg_catalog.set_config('search_path', '', false);";

#[tokio::test]
async fn the_source_is_asked_as_the_client_and_hears_what_was_said_before() {
    let harness = Harness::start().await;
    let mut connection = harness.connect().await;
    let cleared = run(&mut connection, Q1).await;
    assert_eq!(
        (row(&cleared), cleared.columns[0].name.as_str()),
        (vec![Some("")], "set_config")
    );
    assert!(harness.asked.lock().is_empty());
    let answer = run(&mut connection, "SELECT t.pubname FROM pg_publication t").await;
    assert_eq!(row(&answer), [Some("from the source")]);
    assert_eq!(connection.parameter("is_superuser"), Some("on"));
    run(&mut connection, "SHOW wal_level").await;
    assert_eq!(
        *harness.asked.lock(),
        [
            "connect alice app UTF8",
            Q1,
            "SELECT t.pubname FROM pg_publication t",
            "SHOW wal_level"
        ]
    );
}

#[tokio::test]
async fn answers_of_the_source_come_unchanged() {
    let harness = Harness::start().await;
    let mut connection = harness.connect().await;
    connection
        .send_query_raw(b"COPY t TO STDOUT")
        .await
        .unwrap();
    let mut tags = String::new();
    let mut bytes = 0;
    loop {
        let frame = connection.next_frame().await.unwrap();
        bytes += frame.wire_bytes().len();
        tags.push(char::from(frame.tag()));
        if frame.tag() == b'Z' {
            break;
        }
    }
    assert!(tags.ends_with("HdddcCZ"), "{tags}");
    assert!(bytes > 120_000);
    assert_eq!(
        refused(&mut connection, "FOO").await,
        ("42601".to_owned(), "syntax error of the source".to_owned())
    );
}

#[tokio::test]
async fn the_transaction_at_the_source_counts_for_commands_too() {
    let harness = Harness::start().await;
    let mut connection = harness.connect().await;
    run(&mut connection, "BEGIN").await;
    run(&mut connection, "IDENTIFY_SYSTEM").await;
    assert_eq!(
        connection.transaction_status(),
        TransactionStatus::Transaction
    );
    let start = "START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1', publication_names 'p')";
    assert_eq!(
        refused(&mut connection, start).await,
        (
            "25001".to_owned(),
            "START_REPLICATION cannot run inside a transaction block".to_owned()
        )
    );
    assert_eq!(connection.transaction_status(), TransactionStatus::Failed);
    let (code, _) = refused(&mut connection, "IDENTIFY_SYSTEM").await;
    assert_eq!(code, "25P02");
    run(&mut connection, "ROLLBACK").await;
    run(&mut connection, "IDENTIFY_SYSTEM").await;
    assert_eq!(connection.transaction_status(), TransactionStatus::Idle);
}

#[tokio::test]
async fn without_the_source_only_its_own_statements_fail() {
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nowhere.local_addr().unwrap().port();
    drop(nowhere);
    let harness = Harness::of_version("15.18", |config| config.source.port = port).await;
    let mut connection = harness.connect().await;
    run(&mut connection, Q1).await;
    let (code, message) = refused(&mut connection, "SELECT 1").await;
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("08006", "could not connect to the source")
    );
    run(&mut connection, "IDENTIFY_SYSTEM").await;
    // Nobody could say whether this role may.
    let (code, message) = refused(&mut connection, &create("s")).await;
    assert_eq!(
        (code.as_str(), message.as_str()),
        (
            "08006",
            "could not find out whether role \"alice\" may replicate"
        )
    );
}

#[tokio::test]
async fn an_empty_statement_is_answered_as_such() {
    let harness = Harness::start().await;
    let mut connection = harness.connect().await;
    connection.send_query_raw(b" ; ").await.unwrap();
    let frame = connection.next_frame().await.unwrap();
    assert_eq!(
        BackendMessage::decode(frame.as_frame()).unwrap(),
        BackendMessage::EmptyQueryResponse
    );
}

#[tokio::test]
async fn the_extended_protocol_is_refused_to_a_walsender_up_to_sync() {
    let harness = Harness::start().await;
    let mut connection = harness.connect().await;
    for message in [b'P', b'B', b'E'].map(FrontendMessage::Extended) {
        connection.send_raw(&message).await.unwrap();
    }
    connection.send_raw(&FrontendMessage::Sync).await.unwrap();
    let frame = connection.next_frame().await.unwrap();
    let BackendMessage::ErrorResponse(error) = BackendMessage::decode(frame.as_frame()).unwrap()
    else {
        panic!("no error");
    };
    assert_eq!(error.code(), "08P01");
    assert_eq!(connection.next_frame().await.unwrap().tag(), b'Z');
    run(&mut connection, "SELECT 1").await;
}

#[tokio::test]
async fn a_plain_connection_has_no_replication_commands() {
    let harness = Harness::start().await;
    let mut options = harness.options();
    options.replication = false;
    options.database = Some("elsewhere".to_owned());
    let mut connection = Connection::connect(&options).await.unwrap();
    let (code, _) = refused(&mut connection, "IDENTIFY_SYSTEM").await;
    assert_eq!(code, "42601");
    assert_eq!(harness.asked.lock()[0], "connect alice elsewhere UTF8");
}

#[tokio::test]
async fn a_physical_walsender_has_no_sql() {
    let harness = Harness::start().await;
    let mut options = harness.options();
    options.replication = false;
    options.parameters = vec![("replication".to_owned(), "true".to_owned())];
    let mut connection = Connection::connect(&options).await.unwrap();
    assert_eq!(
        refused(&mut connection, "SELECT 1").await,
        (
            "0A000".to_owned(),
            "cannot execute SQL commands in WAL sender for physical replication".to_owned()
        )
    );
    let system = run(&mut connection, "IDENTIFY_SYSTEM").await;
    assert_eq!(row(&system)[3], None);
    let (code, _) = refused(&mut connection, &create("s")).await;
    assert_eq!(code, "55000");
}

#[tokio::test]
async fn a_cancel_request_reaches_the_statement_at_the_source() {
    let harness = Harness::start().await;
    let mut connection = harness.connect().await;
    let cancel = connection.cancel_token();
    let asked = Arc::clone(&harness.asked);
    let cancelling = tokio::spawn(async move {
        eventually("the source is asked", || {
            asked
                .lock()
                .iter()
                .any(|statement| statement.contains("sleep"))
        })
        .await;
        cancel.cancel().await.unwrap();
    });
    let (code, _) = refused(&mut connection, "SELECT pg_sleep(60)").await;
    assert_eq!(code, "57014");
    cancelling.await.unwrap();
    run(&mut connection, "SELECT 1").await;
}
