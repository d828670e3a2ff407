//! What a builder hands to the next one, and why it refuses a record.

use pg_proto::{Lsn, PgTimestamp};

use crate::record::RecordKind;

/// A transaction that has begun and not ended: what the next block needs to go on with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Where it will commit (`Begin::final_lsn`).
    pub commit_lsn: Lsn,
    /// The position in the head of its BEGIN: none of its changes is before it.
    pub start: Lsn,
    /// When it will.
    pub commit_time: PgTimestamp,
    /// The time in the heads of all its frames.
    pub send_time: PgTimestamp,
    /// Ordinal of its next event.
    pub next_ordinal: u64,
}

/// A record can't be added to the block. The block is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The block can't hold it: append the block, and add the record to the next one.
    #[error("the block is full")]
    Full,
    /// The record stands only inside a transaction.
    #[error("a {0:?} record outside a transaction")]
    OutsideTransaction(RecordKind),
    /// The record stands only between transactions.
    #[error("a {0:?} record inside a transaction")]
    InsideTransaction(RecordKind),
    /// COMMIT does not end the transaction that BEGIN began.
    #[error("COMMIT at {commit} ends a transaction that began with {begin}")]
    OtherCommit {
        /// `Begin::final_lsn`.
        begin: Lsn,
        /// `Commit::commit_lsn`.
        commit: Lsn,
    },
    /// A transaction does not come after the one before it.
    #[error("{found} comes after the position {position}")]
    Backwards {
        /// The commit LSN, or the position of a message.
        found: Lsn,
        /// The end of what came before.
        position: Lsn,
    },
}
