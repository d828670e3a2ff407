//! The copy-both phase with a real slot.

use std::time::{Duration, Instant};

use pg_client::{Connection, CopyBoth, CopyReceiver, Error};
use pg_proto::pgoutput::{Change, Framing, Message, decode};
use pg_proto::replication::{BackendCopy, StatusUpdate};
use pg_proto::{Lsn, PgTimestamp};
use tokio::time::timeout;

use crate::support::Server;

/// How long the server may take to notice.
const PATIENCE: Duration = Duration::from_secs(20);
const START: &str =
    "START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1', publication_names 'p')";

async fn replication(server: &Server) -> Connection {
    let mut options = server.admin_options();
    options.replication = true;
    Connection::connect(&options).await.unwrap()
}

/// Streams from the slot, once the server has noticed that the connection before is gone.
async fn start(server: &Server) -> CopyBoth {
    let begun = Instant::now();
    loop {
        match replication(server).await.start_copy_both(START).await {
            Ok(copy) => return copy,
            Err(Error::Server(fields))
                if fields.code() == "55006" && begun.elapsed() < PATIENCE =>
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads inserted values until a commit; its end.
async fn transaction(receiver: &mut CopyReceiver, values: &mut Vec<String>) -> Lsn {
    loop {
        let content = receiver.next().await.unwrap().expect("the stream goes on");
        let BackendCopy::XLogData(data) = BackendCopy::decode(content).unwrap() else {
            continue;
        };
        match decode(data.payload, Framing::Plain).unwrap() {
            Message::Change(Change::Insert { new, .. }) => {
                values.push(format!("{:?}", new.columns().next().unwrap()));
            }
            Message::Commit(commit) => return commit.end_lsn,
            _ => {}
        }
    }
}

fn status(lsn: Lsn) -> StatusUpdate {
    StatusUpdate {
        write: lsn,
        flush: lsn,
        apply: lsn,
        client_time: PgTimestamp::now(),
        reply_requested: true,
    }
}

#[tokio::test]
async fn streams() {
    let server = Server::start("", "").await;
    let setup = "CREATE TABLE t (a int PRIMARY KEY, b text); CREATE PUBLICATION p FOR TABLE t";
    server.execute(setup).await;
    let slot = "SELECT pg_create_logical_replication_slot('s', 'pgoutput')";
    server.execute(slot).await;
    receives_and_confirms(&server).await;
    loses_nothing_when_dropped(&server).await;
    gives_large_rows(&server).await;
    reports_what_is_refused(&server).await;
    ends_with_the_server(&server).await;
}

async fn receives_and_confirms(server: &Server) {
    server
        .execute("INSERT INTO t SELECT i, 'x' FROM generate_series(1, 1000) i")
        .await;
    let (mut receiver, mut sender) = start(server).await.split();
    let mut values = Vec::new();
    let end = transaction(&mut receiver, &mut values).await;
    assert_eq!(values.len(), 1000);
    let answering = tokio::spawn(async move {
        sender.status_update(&status(end)).await.unwrap();
        sender
    });
    // The answer to the request for a reply.
    loop {
        let content = receiver.next().await.unwrap().unwrap();
        if matches!(BackendCopy::decode(content), Ok(BackendCopy::Keepalive(_))) {
            break;
        }
    }
    let sender = answering.await.unwrap();
    let copy = CopyBoth::join(receiver, sender).unwrap();
    let mut connection = copy.into_connection().await.unwrap();
    let results = connection.simple_query("IDENTIFY_SYSTEM").await.unwrap();
    assert_eq!(results[0].value(0, "dbname"), Some("postgres"));
    let sql = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 's'";
    let confirmed = connection.query_one_value(sql).await.unwrap().unwrap();
    assert_eq!(confirmed, end.to_string());
    let again = connection.start_copy_both(START).await.unwrap();
    again
        .into_connection()
        .await
        .unwrap()
        .close()
        .await
        .unwrap();
}

async fn loses_nothing_when_dropped(server: &Server) {
    let mut copy = start(server).await;
    let writer = async {
        for batch in 0..20 {
            let from = 10_000 + batch * 100;
            let sql = format!("INSERT INTO t SELECT i FROM generate_series({from}, {from} + 99) i");
            server.execute(&sql).await;
        }
    };
    let reader = async {
        let mut rows = 0;
        while rows < 2000 {
            let receiver = copy.receiver();
            let Ok(next) = timeout(Duration::from_micros(300), receiver.next()).await else {
                continue;
            };
            let content = next.unwrap().unwrap();
            if let Ok(BackendCopy::XLogData(data)) = BackendCopy::decode(content) {
                rows += usize::from(data.payload[0] == b'I');
            }
            while let Some(content) = receiver.next_buffered().unwrap() {
                if let Ok(BackendCopy::XLogData(data)) = BackendCopy::decode(content) {
                    rows += usize::from(data.payload[0] == b'I');
                }
            }
            assert!(!receiver.has_complete_frame());
        }
        rows
    };
    let ((), rows) = tokio::join!(writer, reader);
    assert_eq!(rows, 2000);
}

async fn gives_large_rows(server: &Server) {
    let (mut receiver, mut sender) = start(server).await.split();
    let sql =
        "INSERT INTO t SELECT 20000 + i, repeat(i::text, 5000000) FROM generate_series(1, 5) i";
    server.execute(sql).await;
    let mut sizes = Vec::new();
    while sizes.len() < 5 {
        let content = receiver.next().await.unwrap().unwrap();
        if let Ok(BackendCopy::XLogData(data)) = BackendCopy::decode(content) {
            let message = decode(data.payload, Framing::Plain).unwrap();
            if data.payload.len() > 1_000_000 && matches!(message, Message::Change(_)) {
                sizes.push(data.payload.len());
            }
        }
    }
    assert!(sizes.iter().all(|&size| size > 5_000_000), "{sizes:?}");
    let end = transaction(&mut receiver, &mut Vec::new()).await;
    sender.status_update(&status(end)).await.unwrap();
    let copy = CopyBoth::join(receiver, sender).unwrap();
    copy.into_connection().await.unwrap().close().await.unwrap();
}

async fn reports_what_is_refused(server: &Server) {
    let _active = start(server).await;
    let error = replication(server)
        .await
        .start_copy_both(START)
        .await
        .unwrap_err();
    assert_eq!(error.code(), Some("55006"), "{error}");
    assert!(error.is_transient());
    let missing = START.replace("SLOT s", "SLOT missing");
    let error = replication(server)
        .await
        .start_copy_both(&missing)
        .await
        .unwrap_err();
    assert_eq!(error.code(), Some("42704"), "{error}");
    assert!(!error.is_transient());
    let mut connection = replication(server).await;
    let error = connection
        .simple_query("DROP_REPLICATION_SLOT")
        .await
        .unwrap_err();
    assert_eq!(error.code(), Some("42601"), "{error}");
    assert_eq!(
        connection
            .query_one_value("SELECT 1")
            .await
            .unwrap()
            .unwrap(),
        "1"
    );
}

async fn ends_with_the_server(server: &Server) {
    let mut copy = start(server).await;
    loop {
        let content = copy.receiver().next().await.unwrap().unwrap();
        if let Ok(BackendCopy::Keepalive(keepalive)) = BackendCopy::decode(content) {
            copy.sender()
                .status_update(&status(keepalive.end))
                .await
                .unwrap();
            break;
        }
    }
    server.stop("immediate");
    let error = loop {
        match copy.receiver().next().await {
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => break error,
        }
    };
    assert!(error.is_transient(), "{error:?}");
    assert!(!matches!(error, Error::Unexpected { .. }), "{error:?}");
}
