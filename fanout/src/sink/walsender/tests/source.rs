//! A source that answers a few statements, to see what is passed on.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use pg_proto::wire::{
    Authentication, BackendMessage, CopyResponse, ErrorFields, FieldDescription, FrontendMessage,
    ReplicationMode, TransactionStatus,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::super::client::Client;
use super::super::login::Login;
use super::super::opening::{Opened, Opening, open};
use crate::auth::roles;

/// What was asked, by connection: `connect <user> <database>`, then each statement.
pub(super) type Asked = Arc<Mutex<Vec<String>>>;

/// For this user the source is far ahead of the log.
pub(super) const AHEAD: &str = "ahead";

/// What a statement waits for that only a cancel request ends.
type Cancelled = Arc<Notify>;

/// Serves until the test's runtime ends.
pub(super) async fn serve() -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Asked::default();
    let heard = Arc::clone(&asked);
    tokio::spawn(async move {
        let cancelled = Cancelled::default();
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(connection(
                socket,
                Arc::clone(&heard),
                Arc::clone(&cancelled),
            ));
        }
    });
    (address, asked)
}

async fn connection(socket: TcpStream, asked: Asked, cancelled: Cancelled) {
    let Opened {
        mut client,
        startup,
        ..
    } = match open(socket, None).await.unwrap() {
        Opening::Startup(opened) => *opened,
        Opening::Cancel { pid, key } => {
            assert_eq!((pid, key.as_slice()), (1, &b"keys"[..]));
            return cancelled.notify_one();
        }
        Opening::Gone => return,
    };
    let login = Login::from_startup(&startup).unwrap();
    assert_eq!(login.mode, ReplicationMode::Off);
    if login.application_name() == roles::APPLICATION_NAME {
        return say_of_roles(client).await;
    }
    let encoding = login.setting("client_encoding").unwrap_or_default();
    let hello = format!("connect {} {} {encoding}", login.user, login.database);
    asked.lock().push(hello);
    greet(&mut client);
    let mut status = TransactionStatus::Idle;
    loop {
        client.sender.flush().await.unwrap();
        let Ok(Some(frame)) = client.receiver.next().await else {
            return;
        };
        let Some(Ok(FrontendMessage::Query(text))) = frame.message() else {
            return;
        };
        let text = String::from_utf8(text.to_vec()).unwrap();
        asked.lock().push(text.clone());
        if text == "SELECT pg_sleep(60)" {
            cancelled.notified().await;
            let message = "canceling statement due to user request";
            client.sender.error(ErrorFields::error("57014", message));
        } else {
            answer(&mut client, &login.user, &text, &mut status);
        }
        client.sender.ready(status);
    }
}

/// Every role may replicate.
async fn say_of_roles(mut client: Client) {
    greet(&mut client);
    client.sender.flush().await.unwrap();
    client.receiver.next().await.unwrap();
    rows(&mut client, &[("login", "t"), ("replication", "t")]);
    client.sender.ready(TransactionStatus::Idle);
    client.sender.flush().await.unwrap();
}

fn greet(client: &mut Client) {
    client
        .sender
        .put(&BackendMessage::Authentication(Authentication::Ok));
    client.sender.put(&BackendMessage::ParameterStatus {
        name: b"is_superuser",
        value: b"on",
    });
    client.sender.put(&BackendMessage::BackendKeyData {
        pid: 1,
        key: b"keys",
    });
    client.sender.ready(TransactionStatus::Idle);
}

fn answer(client: &mut Client, user: &str, text: &str, status: &mut TransactionStatus) {
    let sender = &mut client.sender;
    match text {
        _ if *status == TransactionStatus::Failed && text != "ROLLBACK" => {
            let message = "current transaction is aborted";
            sender.error(ErrorFields::error("25P02", message));
        }
        _ if text.contains("pg_current_snapshot") => {
            *status = TransactionStatus::Transaction;
            let lsn = if user == AHEAD { "0/9000" } else { "0/120" };
            rows(client, &[("snapshot", "10:10:"), ("lsn", lsn)]);
            rows(client, &[("age", "7")]);
        }
        "SELECT pg_catalog.pg_export_snapshot() AS name" => {
            rows(client, &[("name", "00000003-00000001-1")]);
        }
        "SHOW transaction_isolation" => {
            rows(client, &[("transaction_isolation", "repeatable read")])
        }
        _ if text.starts_with("SET TRANSACTION") && *status == TransactionStatus::Transaction => {
            sender.complete("SET");
        }
        _ if text.starts_with("BEGIN") => {
            *status = TransactionStatus::Transaction;
            sender.complete("BEGIN");
        }
        "ROLLBACK" | "COMMIT" => {
            *status = TransactionStatus::Idle;
            sender.complete("ROLLBACK");
        }
        "COPY t TO STDOUT" => {
            sender.put(&BackendMessage::CopyOutResponse(CopyResponse {
                format: 0,
                columns: vec![0],
            }));
            for _ in 0..3 {
                sender.put(&BackendMessage::CopyData(&[b'x'; 40_000]));
            }
            sender.put(&BackendMessage::CopyDone);
            sender.complete("COPY 3");
        }
        _ if text.starts_with("SELECT") || text.starts_with("SHOW") => {
            rows(client, &[("value", "from the source")]);
        }
        _ => {
            if *status == TransactionStatus::Transaction {
                *status = TransactionStatus::Failed;
            }
            sender.error(ErrorFields::error("42601", "syntax error of the source"));
        }
    }
}

/// A result of one row.
fn rows(client: &mut Client, row: &[(&str, &str)]) {
    let columns = row.iter().map(|(name, _)| FieldDescription::text(name));
    let columns = BackendMessage::RowDescription(columns.collect());
    client.sender.put(&columns);
    let values = row.iter().map(|(_, value)| Some(value.as_bytes()));
    let values = BackendMessage::DataRow(values.collect());
    client.sender.put(&values);
    client.sender.complete("SELECT 1");
}
