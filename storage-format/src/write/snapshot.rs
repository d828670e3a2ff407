//! The catalog at the start of a segment.

use pg_proto::Lsn;

use crate::block::{BlockBuilder, BlockFlags, BlockKind, Placement};
use crate::catalog::Catalog;
use crate::error::FormatError;

/// A catalog that is larger than this is stored in several blocks.
const SNAPSHOT_BLOCK_LEN: usize = 256 << 10;

/// Appends the snapshot blocks of `catalog` to `out`; returns the last header's checksum. There is always one,
/// also of an empty catalog. `chain` is the segment header's checksum.
pub(crate) fn encode_snapshot(
    catalog: &Catalog,
    end_lsn: Lsn,
    chain: u32,
    out: &mut Vec<u8>,
) -> Result<u32, FormatError> {
    let mut parts = SnapshotParts {
        builder: BlockBuilder::new(),
        placement: Placement {
            end_lsn,
            chain,
            synced_offset: 0,
        },
        flags: BlockFlags::NONE,
    };
    for (kind, payload) in catalog.records() {
        if parts.builder.raw_len() >= SNAPSHOT_BLOCK_LEN {
            parts.finish_block(BlockFlags::OPEN_END, out);
        }
        parts.builder.push_snapshot(kind, &payload)?;
    }
    parts.finish_block(BlockFlags::NONE, out);
    Ok(parts.placement.chain)
}

struct SnapshotParts {
    builder: BlockBuilder,
    placement: Placement,
    flags: BlockFlags,
}

impl SnapshotParts {
    fn finish_block(&mut self, flags: BlockFlags, out: &mut Vec<u8>) {
        let mut header = self.builder.header(BlockKind::Snapshot, &self.placement);
        header.flags |= self.flags | flags;
        self.placement.chain = header.encode(&[], out);
        for section in self.builder.sections() {
            out.extend_from_slice(section);
        }
        self.builder.start(None);
        self.flags = BlockFlags::CONTINUES;
    }
}
