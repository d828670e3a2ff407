//! The receivers: one lean program for every server that is measured, so that differences are the servers'.
//!
//! It opens connections, asks each for a stream, splits what comes into frames, counts rows, notes times, and keeps
//! nothing. It is a process of its own, so that its CPU time can be told from everybody else's.
//!
//! # Conversation
//!
//! Lines on standard input and output, JSON where they carry something:
//!
//! ```text
//! > {plan}            connects
//! < "Ready"
//! > go                asks for the streams; the clock starts
//! < "Started"         all streams have begun
//! > mark              latencies so far, and forgets them
//! < {"Latency": …}
//! > until 0/1234568   waits until every connection has all below it
//! < {"Report": …}
//! ```
//!
//! `mark` and `until` may come again.
//!
//! It ends, and hangs up, when its input ends: until then the other side's processes are there to be looked at.

mod connection;
mod frames;
mod grpc;
mod grpc_codec;
mod program;
mod quantiles;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use frames::{Frames, Tally};
pub use program::run;
pub use quantiles::Quantiles;

/// What a drain program is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Whom to ask.
    pub server: Server,
    /// One for each connection.
    pub subscriptions: Vec<Subscription>,
    /// pgoutput's protocol version.
    pub proto_version: u32,
    /// Further options of pgoutput, such as `streaming 'on'`.
    pub options: String,
    /// Whether each transaction's time from its commit to its receipt is noted.
    pub latencies: bool,
    /// Whether positions are confirmed; otherwise the same backlog can be asked for again.
    pub confirm: bool,
    /// Time between two status updates that nobody asked for.
    pub status_interval_ms: u64,
    /// Time between two questions to the server where it stands, while an end is waited for.
    pub ask_interval_ms: u64,
    /// Keeps the first connection's CopyData frames in a file.
    pub record: Option<PathBuf>,
}

/// A server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Server {
    /// PostgreSQL's replication protocol on a port of 127.0.0.1.
    Postgres {
        /// The port.
        port: u16,
    },
    /// A fanout's gRPC service.
    Grpc {
        /// Its address.
        url: String,
    },
}

/// One stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Subscription {
    /// The slot, on whose position it begins.
    pub slot: String,
    /// The publication.
    pub publication: String,
}

/// PostgreSQL's `wal_receiver_status_interval`.
const STATUS_INTERVAL_MS: u64 = 10_000;

const ASK_INTERVAL_MS: u64 = 50;

impl Plan {
    /// A plan for `connections` streams of one publication, with slots that are named `<prefix>_<number>`.
    pub fn new(server: Server, prefix: &str, publication: &str, connections: usize) -> Self {
        let subscription = |number| Subscription {
            slot: format!("{prefix}_{number}"),
            publication: publication.to_owned(),
        };
        Self {
            server,
            subscriptions: (0..connections).map(subscription).collect(),
            proto_version: 1,
            options: String::new(),
            latencies: false,
            confirm: false,
            status_interval_ms: STATUS_INTERVAL_MS,
            ask_interval_ms: ASK_INTERVAL_MS,
            record: None,
        }
    }
}

/// What a drain program says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Event {
    /// All connections are there.
    Ready,
    /// All streams have begun.
    Started,
    /// The answer to `mark`, in microseconds.
    Latency(Quantiles),
    /// Everything has been received.
    Report(Report),
    /// It can't go on.
    Failed(String),
}

/// What was received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Rows of all connections.
    pub rows: u64,
    /// Bytes of all connections.
    pub bytes: u64,
    /// Transactions of all connections.
    pub commits: u64,
    /// From `go` to the end of the last connection.
    pub seconds: f64,
    /// From `go` to the first row of each connection, for those that got one.
    pub first_row_seconds: Vec<f64>,
    /// When the first row came, in microseconds since 2000, the earliest of all connections.
    pub first_row_at: Option<i64>,
    /// Commit to receipt, in microseconds.
    pub latency: Quantiles,
}
