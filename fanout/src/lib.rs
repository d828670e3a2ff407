//! Serves a log of decoded transactions to many subscribers, each with its own tables and its own position.
//!
//! ```text
//! log directory ──► replay ──► emit (selection) ──► sink::grpc | sink::walsender ──► socket
//!                                                        │
//!                                   positions ◄──────────┘ confirmed positions ──► decoder
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`replay`] | the log's head and a subscriber's way through the log |
//! | [`selection`] | which changes a subscriber gets: publications, tables |
//! | [`filter`] | row filters |
//! | [`emit`] | from a block of the log to what one subscriber is sent |
//! | [`positions`] | slots: the client of the decoder's control service |
//! | [`subscriber`] | who is connected, with counters |
//! | [`auth`] | who may connect to the PostgreSQL endpoint |
//! | [`sink`] | the two ways out: gRPC and PostgreSQL's replication protocol |
//! | [`metrics`] | what `/metrics` shows |
//! | [`runtime`] | the running process |

pub mod auth;
pub mod emit;
pub mod error;
pub mod filter;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod metrics;
pub mod positions;
pub mod replay;
pub mod runtime;
pub mod selection;
pub mod sink;
pub mod snapshot;
pub mod subscriber;
mod versions;

#[cfg(test)]
mod testing;
