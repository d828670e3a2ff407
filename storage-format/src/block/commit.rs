//! Which transaction the records of a block belong to.

use pg_proto::Lsn;

use super::{BlockFlags, BlockHeader};
use crate::record::RecordKind;

/// `final_lsn` of BEGIN and `prepare_lsn` of BEGIN PREPARE, behind the tag.
const LSN_OFFSET: usize = 1;

/// Follows a block's records from one transaction to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitAt(Lsn);

impl CommitAt {
    /// At the start of a block.
    #[must_use]
    pub const fn start(header: &BlockHeader) -> Self {
        if header.flags.contains(BlockFlags::CONTINUES) {
            Self(header.first_commit_lsn)
        } else {
            Self(Lsn::INVALID)
        }
    }

    /// Inside the transaction that commits at `commit_lsn`.
    pub(crate) const fn inside(commit_lsn: Lsn) -> Self {
        Self(commit_lsn)
    }

    /// The commit LSN of the transaction to which the next record belongs, a BEGIN to the one that it begins.
    pub fn of(&mut self, kind: RecordKind, payload: &[u8]) -> Lsn {
        if matches!(kind, RecordKind::Begin | RecordKind::BeginPrepare) {
            let field = payload.get(LSN_OFFSET..).and_then(<[u8]>::first_chunk);
            self.0 = field.map_or(Lsn::INVALID, |bytes| Lsn(u64::from_be_bytes(*bytes)));
        }
        self.0
    }
}
