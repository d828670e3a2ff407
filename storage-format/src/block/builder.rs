//! Filling a block with records.

use pg_proto::pgoutput::{Begin, Commit};
use pg_proto::{Lsn, Oid, PgTimestamp, Xid};

use super::frame::frame_head;
use super::relations::RelationSet;
use super::{
    BlockFlags, BuildError, ENTRY_LEN, Entry, FRAME_HEAD_LEN, NO_RELATION, OpenTransaction,
    RAW_LEN_MAX,
};
use crate::codec::stored_u32;
use crate::record::RecordKind;

/// Everything that is counted or noted while records are added, and that a header says later.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) flags: BlockFlags,
    pub(super) events: u32,
    pub(super) transactions: u32,
    /// Commit LSN and time of the first and last transaction.
    pub(super) first: Option<(Lsn, PgTimestamp)>,
    pub(super) last: Option<(Lsn, PgTimestamp)>,
    /// End of the last whole transaction.
    pub(super) end_lsn: Option<Lsn>,
    /// No change in the block is before this.
    pub(super) lowest: Option<Lsn>,
}

/// Lengths of the three sections at a moment between two transactions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Boundary {
    pub(super) entries: usize,
    pub(super) frames: usize,
    pub(super) aux: usize,
    pub(super) tally: Tally,
}

/// Collects the records of a block. Buffers are kept when it is started anew, so filling one block after the
/// other allocates nothing once they have grown.
///
/// A block may hold several transactions, and begin or end inside one: [`Self::start`] says which, and
/// [`Self::open_transaction`] what to start the next block with.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    pub(super) entries: Vec<u8>,
    pub(super) frames: Vec<u8>,
    pub(super) aux: Vec<u8>,
    pub(super) relations: RelationSet,
    pub(super) tally: Tally,
    /// The end of the last whole transaction, if one is open behind it.
    pub(super) boundary: Boundary,
    pub(super) continued: Option<OpenTransaction>,
    pub(super) open: Option<OpenTransaction>,
    /// [`Entry::xid`] of the records that are added.
    pub(super) xid: u32,
}

impl BlockBuilder {
    /// An empty block between transactions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the block and begins a new one: between transactions, or inside the given one.
    pub fn start(&mut self, open: Option<OpenTransaction>) {
        self.entries.clear();
        self.frames.clear();
        self.aux.clear();
        self.relations.clear();
        self.tally = Tally::default();
        self.boundary = Boundary::default();
        self.continued = open;
        self.open = open;
        self.xid = 0;
        if let Some(open) = open {
            self.tally.flags = BlockFlags::CONTINUES;
            self.note_transaction(open.commit_lsn, open.commit_time);
            self.note_start(open.start);
        }
    }

    /// The records added from here on were streamed, as part of this (sub)transaction.
    pub const fn streamed_by(&mut self, xid: Xid) {
        self.xid = xid.0;
    }

    /// The transaction that is open behind the last record.
    #[must_use]
    pub const fn open_transaction(&self) -> Option<OpenTransaction> {
        self.open
    }

    /// The transaction that was open before the first record.
    #[must_use]
    pub const fn continued_transaction(&self) -> Option<OpenTransaction> {
        self.continued
    }

    /// Whether no record was added.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of the body so far.
    #[must_use]
    pub const fn raw_len(&self) -> usize {
        self.entries.len() + self.frames.len() + self.aux.len()
    }

    /// Whole transactions so far.
    #[must_use]
    pub const fn transaction_count(&self) -> u32 {
        self.tally.transactions
    }

    /// End of the last whole transaction (or message that stands alone) in the block.
    #[must_use]
    pub const fn end_lsn(&self) -> Option<Lsn> {
        self.tally.end_lsn
    }

    /// BEGIN. `send_time` is the time in its head, and of all frames of the transaction.
    pub fn push_begin(
        &mut self,
        begin: &Begin,
        start: Lsn,
        send_time: PgTimestamp,
        payload: &[u8],
    ) -> Result<(), BuildError> {
        self.outside(RecordKind::Begin)?;
        self.not_behind(begin.final_lsn)?;
        self.require_room(FRAME_HEAD_LEN + payload.len())?;
        self.boundary = self.here();
        self.note_transaction(begin.final_lsn, begin.commit_time);
        self.note_start(start);
        self.open = Some(OpenTransaction {
            commit_lsn: begin.final_lsn,
            start,
            commit_time: begin.commit_time,
            send_time,
            next_ordinal: 0,
        });
        self.push_frame(RecordKind::Begin, NO_RELATION, start, send_time, payload);
        Ok(())
    }

    /// INSERT, UPDATE, DELETE, or a RELATION, of `relation`.
    pub fn push_change(
        &mut self,
        kind: RecordKind,
        relation: Oid,
        start: Lsn,
        payload: &[u8],
    ) -> Result<(), BuildError> {
        debug_assert!(matches!(
            kind,
            RecordKind::Insert | RecordKind::Update | RecordKind::Delete | RecordKind::Relation
        ));
        let open = self.inside(kind)?;
        self.require_room(FRAME_HEAD_LEN + payload.len())?;
        let index = self.relations.index_of(relation).ok_or(BuildError::Full)?;
        self.push_frame(kind, index, start, open.send_time, payload);
        self.note_record(kind);
        Ok(())
    }

    /// TRUNCATE of `relations`.
    pub fn push_truncate(
        &mut self,
        relations: impl IntoIterator<Item = Oid>,
        start: Lsn,
        payload: &[u8],
    ) -> Result<(), BuildError> {
        let open = self.inside(RecordKind::Truncate)?;
        self.require_room(FRAME_HEAD_LEN + payload.len())?;
        if !self.relations.add_all(relations) {
            return Err(BuildError::Full);
        }
        self.push_frame(
            RecordKind::Truncate,
            NO_RELATION,
            start,
            open.send_time,
            payload,
        );
        self.note_record(RecordKind::Truncate);
        Ok(())
    }

    /// TYPE, ORIGIN, or a logical message that belongs to its transaction.
    pub fn push_other(
        &mut self,
        kind: RecordKind,
        start: Lsn,
        payload: &[u8],
    ) -> Result<(), BuildError> {
        debug_assert!(matches!(
            kind,
            RecordKind::Type | RecordKind::Origin | RecordKind::Message
        ));
        let open = self.inside(kind)?;
        self.require_room(FRAME_HEAD_LEN + payload.len())?;
        self.push_frame(kind, NO_RELATION, start, open.send_time, payload);
        self.note_record(kind);
        Ok(())
    }

    /// A logical message that stands alone, between transactions. `lsn` is the position that it names, which
    /// is the end of its record.
    pub fn push_lone_message(
        &mut self,
        lsn: Lsn,
        start: Lsn,
        send_time: PgTimestamp,
        payload: &[u8],
    ) -> Result<(), BuildError> {
        self.push_lone(RecordKind::Message, lsn, start, send_time, payload)
    }

    /// A record between transactions that counts at `lsn`, its end.
    pub(super) fn push_lone(
        &mut self,
        kind: RecordKind,
        lsn: Lsn,
        start: Lsn,
        send_time: PgTimestamp,
        payload: &[u8],
    ) -> Result<(), BuildError> {
        self.outside(kind)?;
        self.not_behind(lsn)?;
        self.require_room(FRAME_HEAD_LEN + payload.len())?;
        self.push_frame(kind, NO_RELATION, start, send_time, payload);
        self.note_kind(kind);
        self.note_transaction(lsn, send_time);
        self.tally.end_lsn = Some(lsn);
        Ok(())
    }

    /// COMMIT.
    pub fn push_commit(
        &mut self,
        commit: &Commit,
        start: Lsn,
        payload: &[u8],
    ) -> Result<(), BuildError> {
        let open = self.inside(RecordKind::Commit)?;
        if open.commit_lsn != commit.commit_lsn {
            return Err(BuildError::OtherCommit {
                begin: open.commit_lsn,
                commit: commit.commit_lsn,
            });
        }
        if commit.end_lsn <= commit.commit_lsn {
            return Err(BuildError::Backwards {
                found: commit.end_lsn,
                position: commit.commit_lsn,
            });
        }
        self.require_room(FRAME_HEAD_LEN + payload.len())?;
        self.push_frame(
            RecordKind::Commit,
            NO_RELATION,
            start,
            open.send_time,
            payload,
        );
        self.tally.transactions += 1;
        self.tally.end_lsn = Some(commit.end_lsn);
        self.open = None;
        Ok(())
    }

    /// A record of Decant's own: publications, at its place in a transaction, or server parameters, at any place.
    pub fn push_aux(&mut self, kind: RecordKind, payload: &[u8]) -> Result<(), BuildError> {
        debug_assert!(kind.is_aux());
        self.require_room(payload.len())?;
        let entry = Entry {
            kind_id: kind.id(),
            flags: 0,
            relation: NO_RELATION,
            offset: stored_u32(self.aux.len()),
            length: stored_u32(payload.len()),
            xid: self.xid,
        };
        self.aux.extend_from_slice(payload);
        self.entries.extend_from_slice(&entry.encode());
        self.note_kind(kind);
        Ok(())
    }

    /// A catalog record of a snapshot: no transaction, no position.
    pub(crate) fn push_snapshot(
        &mut self,
        kind: RecordKind,
        payload: &[u8],
    ) -> Result<(), BuildError> {
        if kind.is_aux() {
            return self.push_aux(kind, payload);
        }
        self.require_room(FRAME_HEAD_LEN + payload.len())?;
        self.push_frame(kind, NO_RELATION, Lsn::INVALID, PgTimestamp(0), payload);
        self.note_kind(kind);
        Ok(())
    }

    /// The lengths and counts now.
    pub(super) const fn here(&self) -> Boundary {
        Boundary {
            entries: self.entries.len(),
            frames: self.frames.len(),
            aux: self.aux.len(),
            tally: self.tally,
        }
    }

    pub(super) const fn inside(&self, kind: RecordKind) -> Result<OpenTransaction, BuildError> {
        match self.open {
            Some(open) => Ok(open),
            None => Err(BuildError::OutsideTransaction(kind)),
        }
    }

    pub(super) const fn outside(&self, kind: RecordKind) -> Result<(), BuildError> {
        if self.open.is_some() {
            return Err(BuildError::InsideTransaction(kind));
        }
        Ok(())
    }

    pub(super) fn not_behind(&self, found: Lsn) -> Result<(), BuildError> {
        match self.tally.end_lsn {
            Some(position) if found < position => Err(BuildError::Backwards { found, position }),
            _ => Ok(()),
        }
    }

    pub(super) const fn require_room(&self, bytes: usize) -> Result<(), BuildError> {
        if self.raw_len() + ENTRY_LEN + bytes > RAW_LEN_MAX {
            return Err(BuildError::Full);
        }
        Ok(())
    }

    pub(super) fn push_frame(
        &mut self,
        kind: RecordKind,
        relation: u16,
        start: Lsn,
        send_time: PgTimestamp,
        payload: &[u8],
    ) {
        let length = FRAME_HEAD_LEN + payload.len();
        let entry = Entry {
            kind_id: kind.id(),
            flags: 0,
            relation,
            offset: stored_u32(self.frames.len()),
            length: stored_u32(length),
            xid: self.xid,
        };
        if self.xid != 0 {
            self.tally.flags |= BlockFlags::HAS_STREAMED;
        }
        self.entries.extend_from_slice(&entry.encode());
        // The length of CopyData counts itself and not the 'd'. pgoutput's dataStart and walEnd are equal.
        let copy_data_len = stored_u32(length - 1);
        self.frames
            .extend_from_slice(&frame_head(copy_data_len, start, send_time));
        self.frames.extend_from_slice(payload);
    }

    fn note_record(&mut self, kind: RecordKind) {
        self.note_kind(kind);
        if kind.is_event()
            && let Some(open) = &mut self.open
        {
            open.next_ordinal += 1;
        }
    }

    pub(super) fn note_kind(&mut self, kind: RecordKind) {
        self.tally.flags |= match kind {
            RecordKind::Message => BlockFlags::HAS_MESSAGES,
            RecordKind::Truncate => BlockFlags::HAS_TRUNCATE,
            RecordKind::Origin => BlockFlags::HAS_ORIGIN,
            RecordKind::BeginPrepare | RecordKind::Prepare => BlockFlags::PREPARED,
            RecordKind::Prepared | RecordKind::RollbackPrepared => BlockFlags::ENDS_PREPARED,
            kind if kind.is_catalog() => BlockFlags::HAS_CATALOG,
            _ => BlockFlags::NONE,
        };
        self.tally.events += u32::from(kind.is_event());
    }

    /// A transaction with changes in the block has none before `start`.
    pub(super) fn note_start(&mut self, start: Lsn) {
        let lowest = self.tally.lowest.unwrap_or(start);
        self.tally.lowest = Some(lowest.min(start));
    }

    pub(super) fn note_transaction(&mut self, commit_lsn: Lsn, commit_time: PgTimestamp) {
        // Commit times go back a little now and then; looking for a time needs the highest.
        let highest = self
            .tally
            .last
            .map_or(commit_time, |(_, time)| time.max(commit_time));
        self.tally.last = Some((commit_lsn, highest));
        if self.tally.first.is_none() {
            self.tally.first = self.tally.last;
        }
    }
}
