//! Plain SQL.

use std::time::Duration;

use pg_client::{Connection, Error, TransactionStatus};
use pg_proto::wire::{BackendMessage, FrontendMessage};
use tokio::time::timeout;

use crate::support::Server;

#[tokio::test]
async fn queries() {
    let server = Server::start("", "").await;
    let mut connection = server.admin().await;
    gives_results(&mut connection).await;
    goes_on_after_errors(&mut connection).await;
    keeps_to_one_statement(&mut connection).await;
    keeps_notices(&mut connection).await;
    refuses_copies(&mut connection).await;
    refuses_other_encodings(&mut connection).await;
    survives_being_dropped(&mut connection).await;
    cancels(&mut connection).await;
    relays_frames(&mut connection).await;
    knows_that_it_was_terminated(&server).await;
}

async fn gives_results(connection: &mut Connection) {
    let sql =
        "SELECT 1 AS a, NULL AS b, 'x' AS c UNION ALL SELECT 2, 'y', ''; CREATE TEMP TABLE t (); ;";
    let results = connection.simple_query(sql).await.unwrap();
    let [select, create] = &results[..] else {
        panic!("{results:?}");
    };
    assert_eq!(
        (select.tag.as_str(), create.tag.as_str()),
        ("SELECT 2", "CREATE TABLE")
    );
    let names: Vec<_> = select
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(select.columns[0].type_oid.0, 23);
    assert_eq!(select.value(0, "a"), Some("1"));
    assert_eq!(select.value(0, "b"), None);
    assert_eq!(select.value(1, "c"), Some(""));
    let empty = connection.simple_query("").await.unwrap();
    assert_eq!((empty.len(), empty[0].tag.as_str()), (1, ""));
    let long = connection
        .query_one_value("SELECT repeat('x', 20000000)")
        .await;
    assert_eq!(long.unwrap().unwrap().len(), 20_000_000);
    let many = connection
        .simple_query("SELECT generate_series(1, 100000)")
        .await
        .unwrap();
    assert_eq!(many[0].rows.len(), 100_000);
    let none = connection
        .query_one_value("SELECT 1 WHERE false")
        .await
        .unwrap_err();
    assert!(matches!(none, Error::NotOneValue { rows: 0 }));
}

async fn keeps_to_one_statement(connection: &mut Connection) {
    connection
        .single_statement("CREATE TEMP TABLE single (id int)")
        .await
        .unwrap();
    let two = "INSERT INTO single VALUES (1); DROP TABLE single";
    let refused = connection.single_statement(two).await.unwrap_err();
    assert_eq!(refused.code(), Some("42601"));
    let count = connection
        .query_one_value("SELECT count(*) FROM single")
        .await;
    assert_eq!(count.unwrap().as_deref(), Some("0"));
}

async fn goes_on_after_errors(connection: &mut Connection) {
    let error = connection
        .simple_query("SELECT 1; SELEC 2")
        .await
        .unwrap_err();
    assert_eq!(error.code(), Some("42601"));
    assert!(!error.is_transient());
    connection.simple_query("BEGIN").await.unwrap();
    assert_eq!(
        connection.transaction_status(),
        TransactionStatus::Transaction
    );
    let error = connection.simple_query("SELECT 1/0").await.unwrap_err();
    assert_eq!(error.server().unwrap().message(), "division by zero");
    assert_eq!(connection.transaction_status(), TransactionStatus::Failed);
    connection.simple_query("ROLLBACK").await.unwrap();
    assert_eq!(connection.transaction_status(), TransactionStatus::Idle);
}

async fn keeps_notices(connection: &mut Connection) {
    let sql = "DO $$ BEGIN FOR i IN 1..100 LOOP RAISE NOTICE 'n%', i; END LOOP; END $$";
    connection.simple_query(sql).await.unwrap();
    let notices = connection.take_notices();
    assert_eq!(notices.len(), 64);
    assert_eq!(notices[63].message(), "n100");
    assert!(connection.take_notices().is_empty());
    connection
        .simple_query("SET application_name = 'other'")
        .await
        .unwrap();
    assert_eq!(connection.parameter("application_name"), Some("other"));
}

async fn refuses_copies(connection: &mut Connection) {
    for sql in [
        "COPY pg_class TO STDOUT",
        "CREATE TEMP TABLE c (a int); COPY c FROM STDIN",
    ] {
        let error = connection.simple_query(sql).await.unwrap_err();
        assert!(matches!(error, Error::Unexpected { .. }), "{error:?}");
        assert_eq!(
            connection
                .query_one_value("SELECT 1")
                .await
                .unwrap()
                .unwrap(),
            "1"
        );
    }
}

async fn refuses_other_encodings(connection: &mut Connection) {
    connection
        .simple_query("SET client_encoding = LATIN1")
        .await
        .unwrap();
    let error = connection
        .simple_query("SELECT chr(233) AS word")
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::NotUtf8 { column } if column == "word"),
        "{error:?}"
    );
    connection
        .simple_query("SET client_encoding = UTF8")
        .await
        .unwrap();
    assert_eq!(
        connection
            .query_one_value("SELECT chr(233)")
            .await
            .unwrap()
            .unwrap(),
        "é"
    );
}

async fn survives_being_dropped(connection: &mut Connection) {
    for _ in 0..3 {
        let slow = connection.simple_query("SELECT pg_sleep(0.05), 'slow'");
        assert!(timeout(Duration::from_millis(10), slow).await.is_err());
    }
    assert_eq!(
        connection
            .query_one_value("SELECT 'mine'")
            .await
            .unwrap()
            .unwrap(),
        "mine"
    );
}

async fn cancels(connection: &mut Connection) {
    let token = connection.cancel_token();
    let canceller = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        token.cancel().await.unwrap();
    });
    let error = connection
        .simple_query("SELECT pg_sleep(60)")
        .await
        .unwrap_err();
    assert_eq!(error.code(), Some("57014"));
    canceller.await.unwrap();
}

async fn relays_frames(connection: &mut Connection) {
    let setup = connection.simple_query("CREATE TEMP TABLE c (a int)");
    setup.await.unwrap();
    connection
        .send_query_raw(b"SELECT 7; COPY c FROM STDIN; BEGIN")
        .await
        .unwrap();
    let mut tags = Vec::new();
    loop {
        let frame = connection.next_frame().await.unwrap();
        tags.push(frame.tag());
        let message = BackendMessage::decode(frame.as_frame()).unwrap();
        let mut again = Vec::new();
        message.encode(&mut again);
        assert_eq!(frame.wire_bytes(), again);
        match frame.tag() {
            b'G' => {
                for message in [FrontendMessage::CopyData(b"1\n"), FrontendMessage::CopyDone] {
                    connection.send_raw(&message).await.unwrap();
                }
            }
            b'Z' => break,
            _ => {}
        }
    }
    assert_eq!(tags, b"TDCGCCZ");
    assert_eq!(
        connection.transaction_status(),
        TransactionStatus::Transaction
    );
    connection.simple_query("ROLLBACK").await.unwrap();
}

async fn knows_that_it_was_terminated(server: &Server) {
    let mut connection = server.admin().await;
    let pid = connection.backend_pid();
    server
        .execute(&format!("SELECT pg_terminate_backend({pid}, 5000)"))
        .await;
    let error = connection.simple_query("SELECT 1").await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    let error = connection.simple_query("SELECT 1").await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
}
