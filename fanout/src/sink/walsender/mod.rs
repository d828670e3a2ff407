//! The PostgreSQL endpoint: a fanout as a publisher. A PostgreSQL subscriber, pg_recvlogical or a change data capture
//! client connects here as it would to the source.
//!
//! # A connection
//!
//! ```text
//! endpoint   takes the socket, as many as there is room for
//! opening    encryption requests, TLS, cancel requests, start-up packet
//! login      what the start-up packet asks for, settings
//! authentication   who is let in, and SCRAM
//! replication_role   whether the role may replicate
//! session    statement after statement: Query, Terminate
//!   command    IDENTIFY_SYSTEM, SHOW          slots   CREATE/DROP/ALTER/READ_REPLICATION_SLOT
//!   snapshot   for a slot: one that fits its start
//!   start      START_REPLICATION              sql     everything else
//!     stream     copy-both: changes and keepalives out, reports in
//! upstream   this client's own connection to the source, opened when SQL comes that only the source can answer
//! ```
//!
//! # What is whose
//!
//! Identity, positions and slots are answered from the log and the decoder's registry, so that a subscriber reconnects
//! and streams also while the source is away. Catalog queries and COPY go to the source with the client's own role.
//! Messages, SQLSTATEs and the order of checks are those of PostgreSQL's `walsender.c`, `slot.c` and `pgoutput.c` in
//! the version that the endpoint announces, which is the source's own: clients match on them.
//!
//! # Access
//!
//! [`auth`](crate::auth) has the rules. SCRAM shows this endpoint no password, so a client's own connection to the source
//! is made with the one that the users file has for it, or without.

mod authentication;
mod backends;
mod client;
mod command;
mod endpoint;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod identifiers;
mod keepalive;
mod login;
mod opening;
mod option_value;
mod parameters;
mod progress;
mod replication_role;
mod session;
mod settings;
mod slot_name;
mod slot_options;
mod slots;
mod snapshot;
mod source;
mod sql;
mod start;
mod start_options;
mod stream;
#[cfg(test)]
mod tests;
mod upstream;
mod version;

pub use endpoint::Endpoint;
