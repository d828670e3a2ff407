//! Making an index while a segment is sealed.

use pg_proto::{Lsn, PgTimestamp};

use super::IndexEntry;
use super::file::encode_header;
use crate::block::{BlockHeader, BlockKind};
use crate::segment::SegmentName;

/// Collects the entries of a segment's blocks, in order.
#[derive(Clone, Debug)]
pub struct IndexBuilder {
    name: SegmentName,
    position: Lsn,
    time_max: PgTimestamp,
    entries: Vec<u8>,
}

impl IndexBuilder {
    /// For the segment of this name.
    #[must_use]
    pub const fn new(name: SegmentName) -> Self {
        Self {
            name,
            position: name.first_lsn,
            time_max: PgTimestamp(i64::MIN),
            entries: Vec::new(),
        }
    }

    /// The next block, at `offset`. Every block of the file is to be pushed; those that hold nothing to be found,
    /// which are snapshots and ends, get no entry.
    pub fn push(&mut self, offset: u64, header: &BlockHeader) {
        if matches!(
            header.kind,
            BlockKind::Data | BlockKind::Progress | BlockKind::Gap
        ) {
            let entry = IndexEntry::of(self.position, offset, self.time_max, header);
            self.time_max = entry.time_max;
            self.entries.extend_from_slice(&entry.encode());
        }
        if header.kind != BlockKind::Snapshot {
            self.position = header.end_lsn;
        }
    }

    /// The content of the index file. `segment_len` is the length of the whole sealed file.
    #[must_use]
    pub fn finish(self, segment_len: u64) -> Vec<u8> {
        let mut out = encode_header(self.name, self.position, segment_len, &self.entries);
        out.extend_from_slice(&self.entries);
        out
    }
}
