//! Where assembled transactions go.

use std::sync::Arc;

use pg_proto::pgoutput::{Begin, Commit, CommitPrepared, Prepare, RollbackPrepared, StreamCommit};
use pg_proto::{Lsn, Xid};
use storage_format::catalog::PublicationState;
use storage_format::staging::Rollback;

use super::error::StreamError;
use super::record::{Incoming, Record};

/// The transaction that a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The one that was begun last.
    Open,
    /// One that is staged.
    Staged {
        /// The top-level transaction.
        top: Xid,
        /// The subtransaction; the top-level one itself for its own records.
        sub: Xid,
    },
}

/// Takes what the assembler understood, in order.
pub(crate) trait Sink {
    /// Why it can't.
    type Error: From<StreamError>;

    /// A transaction begins.
    fn begin(&mut self, begin: &Begin, message: &Incoming<'_>) -> Result<(), Self::Error>;
    /// A record of a transaction.
    fn record(&mut self, place: Place, record: &Record<'_>) -> Result<(), Self::Error>;
    /// The publications as they are from here on, stated at `lsn`.
    fn publications(
        &mut self,
        place: Place,
        lsn: Lsn,
        state: Arc<PublicationState>,
    ) -> Result<(), Self::Error>;
    /// The open transaction commits.
    fn commit(&mut self, commit: &Commit, message: &Incoming<'_>) -> Result<(), Self::Error>;
    /// A message that stands outside transactions.
    fn lone_message(&mut self, lsn: Lsn, message: &Incoming<'_>) -> Result<(), Self::Error>;
    /// Nothing more will come that commits below `to`.
    fn advance(&mut self, to: Lsn) -> Result<(), Self::Error>;

    /// An in-progress transaction begins to be staged.
    fn stage_begin(&mut self, top: Xid, message: &Incoming<'_>) -> Result<(), Self::Error>;
    /// Whether it is being staged.
    fn is_staged(&self, top: Xid) -> bool;
    /// A part of it is complete: those who follow it may have it.
    fn stage_stop(&mut self, top: Xid) -> Result<(), Self::Error>;
    /// A subtransaction, or all if `sub` is `top`, is rolled back. One that was never staged is ignored.
    fn stage_abort(&mut self, top: Xid, sub: Xid, at: Rollback) -> Result<(), Self::Error>;
    /// The log has the transaction already.
    fn stage_discard(&mut self, top: Xid);
    /// A staged transaction commits.
    fn stage_commit(&mut self, stream: &StreamCommit) -> Result<(), Self::Error>;

    /// A transaction that comes whole and ends with PREPARE begins to be staged.
    fn prepare_begin(&mut self, xid: Xid, message: &Incoming<'_>) -> Result<(), Self::Error>;
    /// Whether the transaction is prepared and not decided.
    fn is_prepared(&self, xid: Xid, gid: &[u8]) -> bool;
    /// A staged transaction is prepared. `late`: it was prepared before the source sent such transactions, so that it
    /// comes only now, and commits with the next message.
    fn prepare(&mut self, prepare: &Prepare<'_>, late: bool) -> Result<(), Self::Error>;
    /// A prepared transaction commits.
    fn commit_prepared(&mut self, end: &CommitPrepared<'_>) -> Result<(), Self::Error>;
    /// A prepared transaction, perhaps one that never came, is rolled back.
    fn rollback_prepared(
        &mut self,
        end: &RollbackPrepared<'_>,
        message: &Incoming<'_>,
    ) -> Result<(), Self::Error>;
}
