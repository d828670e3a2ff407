//! Blocks that are handed on as they lie in the log.

use storage_format::block::{Block, BlockFlags};
use storage_format::record::RecordKind;

use super::emitter::Emitter;

impl Emitter {
    /// Whether every byte of the block's frames is sent, in this order and with nothing between: the result is the
    /// same as that of walking it.
    pub(super) fn passes_whole(&self, block: &Block) -> bool {
        let header = block.header();
        let has = |flag| header.flags.contains(flag);
        let options = &self.options;
        // A message that stands alone at the start itself was sent before.
        let before = header.first_commit_lsn < options.start
            || (header.first_commit_lsn == options.start && has(BlockFlags::HAS_MESSAGES));
        let odd = before
            || has(BlockFlags::HAS_CATALOG)
            || has(BlockFlags::HAS_TRUNCATE)
            || has(BlockFlags::PREPARED)
            || has(BlockFlags::ENDS_PREPARED)
            || (has(BlockFlags::HAS_STREAMED) && options.streaming)
            || (has(BlockFlags::HAS_MESSAGES) && !options.messages)
            || (has(BlockFlags::HAS_ORIGIN) && options.local_origin_only);
        if odd
            || self.by_position
            || options.end.is_some_and(|end| header.last_commit_lsn >= end)
            || self.fails_on_rows()
            || self.prepared.is_some()
        {
            return false;
        }
        let begun = !has(BlockFlags::CONTINUES) || self.open_transaction().is_some();
        begun
            && self.lanes.iter().all(|lane| lane.passes_whole())
            && (!has(BlockFlags::OPEN_END) || ends_behind_an_event(block))
    }
}

/// Whether the transaction that is open behind the block has something in it already: then its BEGIN does not wait.
fn ends_behind_an_event(block: &Block) -> bool {
    let last = block.entries().next_back().and_then(|entry| entry.kind());
    last.is_some_and(RecordKind::is_event)
}
