//! Adding the content of one block to another.

use pg_proto::{Lsn, Oid};

use super::{
    BlockBuilder, BlockFlags, BlockHeader, BlockKind, Entry, NO_RELATION, OpenTransaction,
    Placement, Record, Sections,
};
use crate::codec::stored_u32;
use crate::error::Damage;

impl BlockBuilder {
    /// Adds the records of the block that follows the ones here. Its relation set comes along whole, since which
    /// relations a TRUNCATE names is only in its message.
    pub(crate) fn absorb(
        &mut self,
        header: &BlockHeader,
        relations: &[Oid],
        sections: Sections<'_>,
    ) -> Result<(), Damage> {
        if self.is_empty() {
            self.tally.flags |= BlockFlags::CONTINUES.only_if_in(header.flags);
            self.continued = self
                .tally
                .flags
                .contains(BlockFlags::CONTINUES)
                .then(|| open_transaction(header, header.first_ordinal));
        }
        for record in sections.records() {
            self.copy_record(&record?, relations);
        }
        self.relations.add_all(relations.iter().copied());
        self.tally_block(header);
        Ok(())
    }

    /// The log's position behind the block, if the source moved on without changes after it.
    pub(crate) fn raise_end(&mut self, lsn: Lsn) {
        if !self.is_empty() {
            self.tally.end_lsn = self.tally.end_lsn.max(Some(lsn));
        }
    }

    fn tally_block(&mut self, header: &BlockHeader) {
        let ends = BlockFlags::CONTINUES | BlockFlags::OPEN_END;
        self.tally.flags |= header.flags.without(ends);
        self.tally.events += header.event_count;
        self.tally.transactions += header.transaction_count;
        if header.first_commit_lsn.is_valid() {
            self.note_transaction(header.first_commit_lsn, header.first_commit_time);
            self.note_transaction(header.last_commit_lsn, header.last_commit_time);
        }
        self.tally.end_lsn = Some(header.end_lsn);
        self.open = header
            .flags
            .contains(BlockFlags::OPEN_END)
            .then(|| open_transaction(header, 0));
    }

    /// Copies a record of another block, whose relation set is `relations`.
    pub(super) fn copy_record(&mut self, record: &Record<'_>, relations: &[Oid]) {
        let section = if record.entry.is_aux() {
            &mut self.aux
        } else {
            &mut self.frames
        };
        let offset = stored_u32(section.len());
        section.extend_from_slice(record.bytes);
        let relation = relations
            .get(usize::from(record.entry.relation))
            .and_then(|&relation| self.relations.index_of(relation));
        let entry = Entry {
            relation: relation.unwrap_or(NO_RELATION),
            offset,
            ..record.entry
        };
        self.entries.extend_from_slice(&entry.encode());
    }

    /// Takes back what [`Self::split_open`] moved to `rest`.
    pub(crate) fn join(&mut self, rest: &Self, placement: &Placement) -> Result<(), Damage> {
        let boundary = self.here();
        if let Some(lowest) = rest.tally.lowest {
            self.note_start(lowest);
        }
        let header = rest.header(BlockKind::Data, placement);
        let sections = Sections::of_parts(rest.sections());
        self.absorb(&header, rest.relations.as_slice(), sections)?;
        self.boundary = boundary;
        self.tally.end_lsn = boundary.tally.end_lsn;
        self.open = rest.open;
        Ok(())
    }
}

/// Enough of an open transaction for a header to be made of it.
const fn open_transaction(header: &BlockHeader, next_ordinal: u64) -> OpenTransaction {
    OpenTransaction {
        commit_lsn: header.last_commit_lsn,
        // Whether changes are older than the publications is in the header's flags already.
        start: header.last_commit_lsn,
        commit_time: header.last_commit_time,
        send_time: header.last_commit_time,
        next_ordinal,
    }
}
