//! Conversations over loopback sockets, with a log in a temporary directory, a registry in memory and a source that
//! knows a few statements.

mod access;
mod commands;
mod conversations;
mod log;
mod source;
mod statements;
mod streaming;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pg_client::{ConnectOptions, Connection, CopyBoth, Error, QueryResult};
use pg_proto::Lsn;
use pg_proto::PgTimestamp;
use pg_proto::replication::StatusUpdate;
use service::config::Config;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::log::TestLog;
use self::source::Asked;
use super::Endpoint;
use crate::auth::{Guard, Roles};
use crate::positions::Positions;
use crate::runtime::Lanes;
use crate::sink::Services;
use crate::snapshot::Snapshots;
use crate::subscriber::Subscribers;
use crate::testing::control::{self, Slots};

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(60);

/// An endpoint with all that it needs.
struct Harness {
    log: TestLog,
    slots: Slots,
    asked: Asked,
    address: SocketAddr,
    guard: Arc<Guard>,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
    _directory: TempDir,
}

impl Harness {
    /// Of a source of version 15.
    async fn start() -> Self {
        Self::of_version("15.18 (Debian 15.18-0+deb12u1)", |_| {}).await
    }

    async fn of_version(version: &str, configure: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = TestLog::create(directory.path(), version);
        let (control, slots) = control::serve(log.replay.clone()).await;
        let (source, asked) = source::serve().await;
        let mut config = Config::default();
        config.source.host = source.ip().to_string();
        config.source.port = source.port();
        config.source.database = "app".to_owned();
        configure(&mut config);
        let limit = usize::try_from(config.fanout.max_connections).unwrap();
        let guard = Guard::new(&config.fanout).unwrap();
        let services = Services {
            replay: log.replay.clone(),
            positions: Positions::new(&format!("http://{control}"), "fanout-1").unwrap(),
            subscribers: Subscribers::new(limit),
            snapshots: Snapshots::default(),
            guard: Arc::clone(&guard),
            roles: Arc::new(Roles::new(&config.source)),
            lanes: Lanes::start().unwrap(),
            config: Arc::new(config),
        };
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap(), services, Arc::clone(&guard));
        let endpoint = endpoint.await.unwrap();
        let address = endpoint.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(endpoint.serve(shutdown.clone()));
        Self {
            log,
            slots,
            asked,
            address,
            guard,
            shutdown,
            serving,
            _directory: directory,
        }
    }

    /// The options of a subscriber's connection.
    fn options(&self) -> ConnectOptions {
        let host = self.address.ip().to_string();
        let mut options = ConnectOptions::new(host, self.address.port(), "alice");
        options.database = Some("app".to_owned());
        options.application_name = Some("s1".to_owned());
        options.replication = true;
        options
    }

    async fn connect(&self) -> Connection {
        Connection::connect(&self.options()).await.unwrap()
    }

    /// A slot at the head, and a stream from it with these options beside the usual ones.
    async fn stream(&self, slot: &str, start: &str, options: &str) -> CopyBoth {
        let mut connection = self.connect().await;
        if !self.slots.lock().contains_key(slot) {
            run(&mut connection, &create(slot)).await;
        }
        let command = format!(
            "START_REPLICATION SLOT \"{slot}\" LOGICAL {start} \
             (proto_version '1', publication_names '\"p\"'{options})"
        );
        connection.start_copy_both(&command).await.unwrap()
    }
}

fn create(slot: &str) -> String {
    format!("CREATE_REPLICATION_SLOT \"{slot}\" LOGICAL pgoutput (SNAPSHOT 'nothing')")
}

/// The one result of a statement.
async fn run(connection: &mut Connection, statement: &str) -> QueryResult {
    let mut results = connection.simple_query(statement).await.unwrap();
    assert_eq!(results.len(), 1, "{statement}");
    results.remove(0)
}

/// SQLSTATE and message of the error that a statement must give.
async fn refused(connection: &mut Connection, statement: &str) -> (String, String) {
    match connection.simple_query(statement).await {
        Err(Error::Server(error)) => (error.code().to_owned(), error.message().to_owned()),
        other => panic!("{statement}: {other:?}"),
    }
}

/// A row of texts.
fn row(result: &QueryResult) -> Vec<Option<&str>> {
    assert_eq!(result.rows.len(), 1);
    result.rows[0].iter().map(Option::as_deref).collect()
}

/// Waits until the condition holds.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "{what}");
}

/// A client's report that it has everything up to `lsn`.
const fn has(lsn: u64) -> StatusUpdate {
    StatusUpdate {
        write: Lsn(lsn),
        flush: Lsn(lsn),
        apply: Lsn(lsn),
        client_time: PgTimestamp(0),
        reply_requested: false,
    }
}
