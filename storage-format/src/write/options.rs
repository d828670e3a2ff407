//! What a writer is given, and what it found.

use std::path::PathBuf;
use std::sync::Arc;

use pg_proto::Lsn;

use crate::catalog::Catalog;
use crate::error::Damage;
use crate::segment::SegmentName;

/// How to write.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// Size at which a segment is ended. A transaction that does not fit makes its segment longer.
    pub segment_bytes: u64,
    /// Where the log begins if it is new: nothing before this position is in it.
    pub start_lsn: Lsn,
}

impl WriterOptions {
    /// 64 MiB segments.
    pub const DEFAULT_SEGMENT_BYTES: u64 = 64 << 20;
    /// Smallest size of a segment: below it more is spent on snapshots than on data.
    pub const MIN_SEGMENT_BYTES: u64 = 64 << 10;
}

/// What a new writer found in the log directory.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// The log's end: the source is asked from here on.
    pub end_lsn: Lsn,
    /// Commit LSN of the last transaction, `0/0` if there is none.
    pub last_commit_lsn: Lsn,
    /// The catalog there.
    pub catalog: Arc<Catalog>,
    /// The new writer's epoch.
    pub writer_epoch: u64,
    /// Whether the log was made just now.
    pub created: bool,
    /// What was removed from the end of the last segment.
    pub cut: Option<Cut>,
    /// Finished segments that are not sealed yet, oldest first.
    pub unsealed: Vec<SegmentName>,
}

/// The end of the last segment was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file.
    pub path: PathBuf,
    /// Where it ends now.
    pub offset: u64,
    /// Why.
    pub reason: CutReason,
}

/// Why the end of a segment was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CutReason {
    /// A transaction that was not complete; the source sends it again.
    OpenTransaction,
    /// A write that was not complete, and never reported as durable.
    Torn(Damage),
}
