//! The index of an active segment, kept in memory by its readers.

use pg_proto::{Lsn, PgTimestamp};

use crate::block::{BlockFlags, BlockHeader, BlockKind};
use crate::index::IndexEntry;
use crate::segment::{SEGMENT_HEADER_LEN, SegmentName};

/// Blocks of an active segment are small, so not each of them gets an entry: one per this many bytes, and each that
/// changes the catalog.
const SPACING: u64 = 64 << 10;

/// Grows as the segment does.
#[derive(Debug)]
pub(super) struct SparseIndex {
    pub(super) entries: Vec<IndexEntry>,
    /// Offset behind the last block that was looked at.
    pub(super) scanned: u64,
    /// Whether the block that ends the file was met.
    pub(super) ended: bool,
    position: Lsn,
    time_max: PgTimestamp,
    next_at: u64,
}

impl SparseIndex {
    pub(super) const fn new(name: SegmentName) -> Self {
        Self {
            entries: Vec::new(),
            scanned: SEGMENT_HEADER_LEN as u64,
            ended: false,
            position: name.first_lsn,
            time_max: PgTimestamp(i64::MIN),
            next_at: 0,
        }
    }

    /// The block at [`Self::scanned`], `length` bytes long.
    pub(super) fn push(&mut self, header: &BlockHeader, length: u64) {
        let entry = IndexEntry::of(self.position, self.scanned, self.time_max, header);
        match header.kind {
            BlockKind::Data | BlockKind::Progress | BlockKind::Gap => self.note(entry),
            BlockKind::SegmentEnd | BlockKind::Footer => self.ended = true,
            BlockKind::Snapshot => {}
        }
        if header.kind != BlockKind::Snapshot {
            self.position = header.end_lsn;
        }
        self.scanned += length;
    }

    fn note(&mut self, entry: IndexEntry) {
        self.time_max = entry.time_max;
        let due = entry.is_start() && entry.offset >= self.next_at;
        if due || entry.flags.contains(BlockFlags::HAS_CATALOG) {
            self.entries.push(entry);
            self.next_at = entry.offset + SPACING;
        } else if let Some(last) = self.entries.last_mut() {
            // An entry stands for all blocks up to the next one.
            last.time_max = self.time_max;
        }
    }
}
