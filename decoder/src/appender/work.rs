//! What travels between the ingest thread and the appender.

use std::sync::Arc;

use pg_proto::Lsn;
use pg_proto::pgoutput::Commit;
use storage_format::block::BlockBuilder;
use storage_format::staging::{PreparedTransaction, StagedTransaction};

/// Something to write, in the order of the log.
#[derive(Debug)]
pub(crate) enum Work {
    /// A filled block.
    Block(Box<BlockBuilder>),
    /// A staged transaction that has committed.
    Staged(Box<StagedWork>),
    /// A transaction that is prepared.
    Prepared(Arc<PreparedTransaction>),
    /// One that was prepared and commits so.
    CommitPrepared(Arc<PreparedTransaction>, Commit),
    /// How one ended is in what came before.
    Decided(Arc<PreparedTransaction>),
    /// The source moved on without changes.
    Progress(Lsn),
    /// The connection is lost: the transaction that is open, if any, is taken out again.
    Abandon,
    /// The source is on this timeline now.
    Timeline(u32),
    /// Make everything before durable and say so.
    Sync,
}

/// A staged transaction and how it commits.
#[derive(Debug)]
pub(crate) struct StagedWork {
    pub(crate) transaction: StagedTransaction,
    pub(crate) commit: Commit,
}

/// What comes back when work is done.
#[derive(Debug)]
pub(crate) enum Returned {
    /// The block is in the log, and durable if a transaction ends in it.
    Block(Box<BlockBuilder>),
    /// Work without a block is durable.
    Done,
    /// Everything is durable, and the log ends here.
    Synced(Lsn),
}
