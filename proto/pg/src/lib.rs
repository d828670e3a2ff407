//! The bytes of PostgreSQL, without any I/O: log positions and identifiers, the frames of protocol 3 in both
//! directions, the commands and messages of replication, and the pgoutput stream.
//!
//! | module | what | source in PostgreSQL |
//! |---|---|---|
//! | [`lsn`], [`oid`], [`xid`], [`time`] | values that travel in messages | `pg_lsn.c`, `xact.c`, `timestamp.h` |
//! | [`quote`] | names and strings inside the text of a statement | `quote.c` |
//! | [`read`] | the checked reader that every parser here is built on | - |
//! | [`wire`] | start-up, frontend and backend messages, error fields | `protocol.sgml` "Message Formats" |
//! | [`replication`] | the grammar of replication commands; XLogData, keepalive, status update | `repl_gram.y`, `walsender.c` |
//! | [`pgoutput`] | the messages of the logical decoding plugin, decoded and encoded | `proto.c`, `pgoutput.c` |
//!
//! Everything here may be handed bytes from a network or a disk: nothing panics, and no length that a peer
//! claims is allocated before it was compared with what is really there.

#![deny(clippy::indexing_slicing)]

pub mod lsn;
pub mod oid;
pub mod pgoutput;
pub mod quote;
pub mod read;
pub mod replication;
pub mod time;
pub mod wire;
pub mod xid;

pub use lsn::Lsn;
pub use oid::Oid;
pub use read::{ReadError, Reader};
pub use time::PgTimestamp;
pub use xid::Xid;
