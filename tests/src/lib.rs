//! The harness of the integration tests: real PostgreSQL clusters, the real programs, real subscribers.
//!
//! | module | what |
//! |---|---|
//! | [`postgres`] | finds PostgreSQL installations |
//! | [`cluster`] | a private server: start, stop, kill, SQL |
//! | [`sql`] | one session on a server or on a fanout |
//! | [`decant`] | configuration, decoder, fanouts and `decctl` of one log |
//! | [`workload`] | pgbench, contents and checksums of tables |
//! | [`random_sql`] | a workload out of a seed |
//! | [`subscriber`] | a PostgreSQL subscriber, `pg_recvlogical`, a gRPC subscriber with a model of the tables |
//! | [`expect`] | waits with a deadline that say what was seen last |
//! | [`process`], [`ports`], [`scale`] | programs with their logs, free ports, sizes |
//!
//! Everything that a test starts belongs to a value that ends it and removes its files when dropped. When a
//! test fails, the ends of the logs are printed. Failures panic: this is test code.

#![expect(
    clippy::missing_panics_doc,
    reason = "a failing test panics, everywhere"
)]

pub mod cluster;
pub mod decant;
pub mod expect;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod random_sql;
pub mod scale;
pub mod sql;
pub mod subscriber;
mod transaction_ids;
pub mod workload;

pub use cluster::Cluster;
pub use decant::Decant;
pub use expect::wait_until;
pub use process::Process;
pub use sql::{Endpoint, Session};
