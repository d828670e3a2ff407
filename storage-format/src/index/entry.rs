//! One entry of an index.

use pg_proto::{Lsn, PgTimestamp};

use crate::block::{BlockFlags, BlockHeader};
use crate::codec::Fields;

/// Bytes of an entry.
pub const INDEX_ENTRY_LEN: usize = 32;

/// A block, as far as finding it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The log's position before the block: everything below it is in earlier blocks.
    pub lsn: Lsn,
    /// The block's offset in the file.
    pub offset: u64,
    /// Highest commit time in the segment up to the end of the block. Commit times go up and down a little; their
    /// maximum only goes up, and so can be searched.
    pub time_max: PgTimestamp,
    /// The block's flags.
    pub flags: BlockFlags,
}

impl IndexEntry {
    /// The entry of a block behind `lsn`; `time_max` is that of the entry before.
    #[must_use]
    pub fn of(lsn: Lsn, offset: u64, time_max: PgTimestamp, header: &BlockHeader) -> Self {
        Self {
            lsn,
            offset,
            time_max: time_max.max(time_max_of(header)),
            flags: header.flags,
        }
    }

    /// Whether reading may begin at the block: it does not begin inside a transaction.
    #[must_use]
    pub const fn is_start(&self) -> bool {
        !self.flags.contains(BlockFlags::CONTINUES)
    }

    /// The stored bytes: position, offset, time, flags, reserved (0).
    #[must_use]
    pub fn encode(&self) -> [u8; INDEX_ENTRY_LEN] {
        let mut bytes = [0; INDEX_ENTRY_LEN];
        let fields = [
            self.lsn.0,
            self.offset,
            self.time_max.0.cast_unsigned(),
            u64::from(self.flags.bits()),
        ];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// The inverse of [`Self::encode`]; `None` if there are flags that this version does not know.
    #[must_use]
    pub fn decode(bytes: &[u8; INDEX_ENTRY_LEN]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        Some(Self {
            lsn: Lsn(fields.u64()),
            offset: fields.u64(),
            time_max: PgTimestamp(fields.i64()),
            flags: BlockFlags::from_bits(fields.u32())?,
        })
    }
}

/// The highest commit time in a block, the lowest of all times if it has no transaction.
pub(crate) fn time_max_of(header: &BlockHeader) -> PgTimestamp {
    if header.first_commit_lsn.is_valid() {
        header.first_commit_time.max(header.last_commit_time)
    } else {
        PgTimestamp(i64::MIN)
    }
}
