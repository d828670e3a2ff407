//! What the source sent can't be put into the log.

use pg_proto::read::ReadError;
use pg_proto::{Lsn, Xid};

/// The stream breaks a rule of its protocol. None of these goes away by asking again.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// A message's bytes are not what its first byte says.
    #[error(
        "the source sent a malformed message (first byte {tag:#04x}, position {start}) after {position}"
    )]
    Malformed {
        /// The message's first byte.
        tag: u8,
        /// Its own position.
        start: Lsn,
        /// Up to where the stream was understood.
        position: Lsn,
        /// What is wrong with it.
        #[source]
        source: ReadError,
    },
    /// A message stands where it can't stand.
    #[error("the source sent message {tag:?} (position {start}) {place}, after {position}")]
    Misplaced {
        /// The message's first byte.
        tag: char,
        /// Its own position.
        start: Lsn,
        /// Where it stood.
        place: &'static str,
        /// Up to where the stream was understood.
        position: Lsn,
    },
    /// BEGIN and COMMIT do not belong together.
    #[error(
        "the source began a transaction that commits at {begun} and ended one that commits at {ended}"
    )]
    Mismatch {
        /// What BEGIN said.
        begun: Lsn,
        /// What COMMIT said.
        ended: Lsn,
    },
    /// A transaction comes after the source had said that it would not.
    #[error(
        "the source sent a transaction that commits at {commit}, but had said before that everything below \
         {position} was sent"
    )]
    OutOfOrder {
        /// Start of its commit record.
        commit: Lsn,
        /// The promise.
        position: Lsn,
    },
    /// A part of a streamed transaction comes whose beginning did not.
    #[error(
        "the source sent a part of in-progress transaction {xid} without its beginning, after {position}"
    )]
    UnknownStream {
        /// The transaction.
        xid: Xid,
        /// Up to where the stream was understood.
        position: Lsn,
    },
    /// A prepared transaction commits whose content is not here.
    #[error(
        "prepared transaction {gid:?} ({xid}) commits at {commit}, but the log does not have its changes: it was prepared \
         before this log began, or the part of the log with its PREPARE is gone. To go on without it, put a gap in its \
         place, which every subscriber is told of that comes to it: decctl verify --gap-to {end}"
    )]
    UnknownPrepared {
        /// The transaction.
        xid: Xid,
        /// The identifier that its user gave it.
        gid: String,
        /// Start of its commit record.
        commit: Lsn,
        /// Its end.
        end: Lsn,
    },
}
