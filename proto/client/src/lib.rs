//! A client of a PostgreSQL server, for what a replication system needs: connecting, plain SQL by the simple
//! query protocol, frames passed on unread, and the copy-both phase of streaming replication.
//!
//! | module | what |
//! |---|---|
//! | [`ConnectOptions`] | where to, as whom, with what settings |
//! | [`Connection`] | start-up over TCP, Unix socket or TLS; authentication; queries |
//! | [`CopyBoth`] | START_REPLICATION: a receiving half and a sending half |
//! | [`CancelToken`] | cancelling another connection's query |
//! | [`server_end_point`] | what a certificate is in channel binding, for a server's side too |
//!
//! Of the extended query protocol there are only frames to be passed on, and there are no types: values are text.
//!
//! # Cancellation
//!
//! Every future of this crate may be dropped at any `await`. What was read stays buffered, what was to be
//! written stays queued and goes out before anything else, and answers that nobody waited for are skipped by
//! the next query. A dropped [`Connection::connect`] closes its socket.
//!
//! # Example
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use pg_client::{ConnectOptions, Connection};
//!
//! let mut options = ConnectOptions::new("localhost", 5432, "postgres");
//! options.database = Some("postgres".into());
//! let mut connection = Connection::connect(&options).await?;
//! let version = connection.query_one_value("SHOW server_version").await?;
//! println!("{}", version.unwrap_or_default());
//! # Ok(())
//! # }
//! ```

#![deny(clippy::indexing_slicing)]

mod auth;
mod buffer;
mod cancel;
mod channel_binding;
mod connect;
mod connection;
mod copy_both;
mod error;
mod options;
mod query;
mod session;
mod tls;
mod transport;
mod wire;

pub use cancel::CancelToken;
pub use channel_binding::server_end_point;
pub use connection::{Connection, RawFrame};
pub use copy_both::{CopyBoth, CopyReceiver, CopySender};
pub use error::{ConnectError, Error};
pub use options::{ConnectOptions, Password, SslMode, UnknownSslMode};
pub use pg_proto::wire::{ErrorFields, TransactionStatus};
pub use query::{Column, QueryResult};
