//! From a filled builder to the bytes of a block.

use std::io::IoSlice;

use pg_proto::{Lsn, PgTimestamp};

use super::builder::{Boundary, Tally};
use super::{BlockBuilder, BlockFlags, BlockHeader, BlockKind, Codec, ENTRY_LEN, Sections};
use crate::checksum::crc32;
use crate::codec::stored_u32;

/// What a header says that the block's content does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    /// The log's position before the block.
    pub(crate) end_lsn: Lsn,
    /// Checksum of the header before.
    pub(crate) chain: u32,
    /// The file is durable up to here.
    pub(crate) synced_offset: u64,
}

impl BlockBuilder {
    /// If transactions end in the block and another one is open behind them: moves what belongs to the open one
    /// to `rest`, so that `self` ends between transactions. A rewind behind `self` then loses no whole transaction.
    pub(crate) fn split_open(&mut self, rest: &mut Self) -> bool {
        if self.open.is_none() || self.boundary.entries == 0 {
            return false;
        }
        rest.start(None);
        rest.open = self.open;
        rest.copy_behind(self, self.boundary);
        self.entries.truncate(self.boundary.entries);
        self.frames.truncate(self.boundary.frames);
        self.aux.truncate(self.boundary.aux);
        self.tally = self.boundary.tally;
        self.open = None;
        true
    }

    /// Copies what lies behind `boundary`: one transaction from its BEGIN on.
    fn copy_behind(&mut self, from: &Self, boundary: Boundary) {
        let relations = from.relations.as_slice();
        let first = boundary.entries / ENTRY_LEN;
        let records = Sections::of_parts(from.sections()).records();
        for record in records.skip(first).flatten() {
            self.copy_record(&record, relations);
            if let Some(kind) = record.entry.kind() {
                self.note_kind(kind);
            }
        }
        if self.tally.flags.contains(BlockFlags::HAS_TRUNCATE) {
            // Which relations it truncates is in its message only; too many in the set do no harm.
            self.relations.add_all(relations.iter().copied());
        }
        if let Some(open) = self.open {
            self.note_transaction(open.commit_lsn, open.commit_time);
            self.note_start(open.start);
        }
    }

    /// The header of a raw block with this content.
    pub(crate) fn header(&self, kind: BlockKind, placement: &Placement) -> BlockHeader {
        let Tally {
            mut flags,
            first,
            last,
            ..
        } = self.tally;
        if self.open.is_some() {
            flags |= BlockFlags::OPEN_END;
        }
        let (first_commit_lsn, first_commit_time) = first.unwrap_or((Lsn::INVALID, PgTimestamp(0)));
        let (last_commit_lsn, last_commit_time) = last.unwrap_or((Lsn::INVALID, PgTimestamp(0)));
        BlockHeader {
            codec: Codec::Raw,
            flags,
            relation_count: stored_u32(self.relations.as_slice().len()),
            stored_len: stored_u32(self.raw_len()),
            entry_count: stored_u32(self.entries.len() / ENTRY_LEN),
            event_count: self.tally.events,
            transaction_count: self.tally.transactions,
            frames_len: stored_u32(self.frames.len()),
            aux_len: stored_u32(self.aux.len()),
            first_commit_lsn,
            last_commit_lsn,
            end_lsn: self.tally.end_lsn.unwrap_or(placement.end_lsn),
            first_ordinal: self.continued.map_or(0, |open| open.next_ordinal),
            first_commit_time,
            last_commit_time,
            synced_offset: placement.synced_offset,
            chain: placement.chain,
            body_crc: crc32(&self.sections()),
            ..BlockHeader::empty(kind)
        }
    }

    /// No change in the block is before this; `None` if there is no transaction.
    pub(crate) const fn lowest(&self) -> Option<Lsn> {
        self.tally.lowest
    }

    /// What the records so far are.
    pub(crate) const fn flags(&self) -> BlockFlags {
        self.tally.flags
    }

    /// Relations in the set.
    pub(crate) fn relation_count(&self) -> usize {
        self.relations.as_slice().len()
    }

    /// The body: entries, frames, aux.
    pub(crate) fn sections(&self) -> [&[u8]; 3] {
        [&self.entries, &self.frames, &self.aux]
    }

    /// Header and relation set into `prefix` (emptied first), and the block as pieces to be written.
    pub(crate) fn pieces<'a>(
        &'a self,
        header: &BlockHeader,
        prefix: &'a mut Vec<u8>,
    ) -> ([IoSlice<'a>; 4], u32) {
        prefix.clear();
        let crc = header.encode(self.relations.as_slice(), prefix);
        let [entries, frames, aux] = self.sections();
        ([prefix, entries, frames, aux].map(IoSlice::new), crc)
    }

    /// As [`Self::pieces`], with another form of the body.
    pub(crate) fn prefixed<'a>(
        &self,
        header: &BlockHeader,
        prefix: &'a mut Vec<u8>,
        stored: &'a [u8],
    ) -> ([IoSlice<'a>; 2], u32) {
        prefix.clear();
        let crc = header.encode(self.relations.as_slice(), prefix);
        ([IoSlice::new(prefix), IoSlice::new(stored)], crc)
    }
}
