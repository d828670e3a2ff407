//! The decoder: decodes one PostgreSQL database's WAL once and writes every committed transaction into the log.
//!
//! # The way of a change
//!
//! ```text
//! socket ──► source task ──► ingest thread ──► appender thread ──► log
//!               │                │                  │
//!               │                └► staging files ──┘
//!               └─ feedback task ◄── head (what is durable)
//! ```
//!
//! | module | what |
//! |---|---|
//! | `source` | connects, checks, reads the stream, answers it; reconnects |
//! | `ingest` | the meaning of the stream's messages: blocks that are filled, transactions that are staged |
//! | `appender` | the one writer of the log, group commit, sealing |
//! | [`catalog`] | how the publications of the source get into the stream |
//! | [`registry`] | the subscribers' slots |
//! | [`control`] | the gRPC service that fanouts and `decctl` use |
//! | [`retention`] | which segments may go |
//! | [`state`] | what all of them know of each other |
//!
//! # Invariants
//!
//! - The source is told that a position is safe only after everything before it is durable in the log (`feedback`
//!   reads nothing but the head's `durable_lsn`).
//! - Nothing that waits for the disk is between the source's question and the answer to it.
//! - What is on its way is bounded: bytes before `ingest`, blocks before `appender`, memory in staging.
//! - A connection's incomplete transactions end with the connection; the next one begins at the log's end.

mod appender;
pub mod catalog;
pub mod clock;
pub mod control;
pub mod disk;
mod error;
mod ingest;
mod mailbox;
pub mod metrics;
pub mod registry;
pub mod retention;
mod run;
mod services;
#[cfg(feature = "simulation")]
pub mod simulation;
mod source;
pub mod state;
mod threads;

pub use error::DecoderError;
pub use ingest::{IngestError, StreamError};
pub use run::Prepared;
pub use source::{Addresses, Severity, SourceError, connect_options};
