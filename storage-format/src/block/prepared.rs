//! Adding what belongs to two-phase commit.

use pg_proto::pgoutput::{BeginPrepare, Prepare, RollbackPrepared};
use pg_proto::{Lsn, PgTimestamp};

use super::{
    BlockBuilder, BuildError, ENTRY_LEN, Entry, FRAME_HEAD_LEN, NO_RELATION, OpenTransaction,
};
use crate::record::RecordKind;

impl BlockBuilder {
    /// BEGIN PREPARE. What follows up to PREPARE is placed as a transaction that commits at the prepare record.
    pub fn push_begin_prepare(
        &mut self,
        begin: &BeginPrepare<'_>,
        start: Lsn,
        send_time: PgTimestamp,
        payload: &[u8],
    ) -> Result<(), BuildError> {
        self.outside(RecordKind::BeginPrepare)?;
        self.not_behind(begin.prepare_lsn)?;
        self.require_room(FRAME_HEAD_LEN + payload.len())?;
        self.boundary = self.here();
        self.note_transaction(begin.prepare_lsn, begin.prepare_time);
        self.note_start(start);
        self.open = Some(OpenTransaction {
            commit_lsn: begin.prepare_lsn,
            start,
            commit_time: begin.prepare_time,
            send_time,
            next_ordinal: 0,
        });
        let kind = RecordKind::BeginPrepare;
        self.push_frame(kind, NO_RELATION, start, send_time, payload);
        self.note_kind(kind);
        Ok(())
    }

    /// PREPARE.
    pub fn push_prepare(
        &mut self,
        prepare: &Prepare<'_>,
        start: Lsn,
        payload: &[u8],
    ) -> Result<(), BuildError> {
        let kind = RecordKind::Prepare;
        let open = self.inside(kind)?;
        if open.commit_lsn != prepare.prepare_lsn {
            return Err(BuildError::OtherCommit {
                begin: open.commit_lsn,
                commit: prepare.prepare_lsn,
            });
        }
        if prepare.end_lsn <= prepare.prepare_lsn {
            return Err(BuildError::Backwards {
                found: prepare.end_lsn,
                position: prepare.prepare_lsn,
            });
        }
        self.require_room(FRAME_HEAD_LEN + payload.len())?;
        self.push_frame(kind, NO_RELATION, start, open.send_time, payload);
        self.note_kind(kind);
        self.tally.end_lsn = Some(prepare.end_lsn);
        self.open = None;
        Ok(())
    }

    /// ROLLBACK PREPARED, between transactions. `has_origin`: the transaction's PREPARE came with an ORIGIN.
    pub fn push_rollback_prepared(
        &mut self,
        rollback: &RollbackPrepared<'_>,
        has_origin: bool,
        start: Lsn,
        send_time: PgTimestamp,
        payload: &[u8],
    ) -> Result<(), BuildError> {
        let kind = RecordKind::RollbackPrepared;
        self.push_lone(kind, rollback.rollback_end_lsn, start, send_time, payload)?;
        if has_origin {
            self.flag_last(Entry::HAS_ORIGIN);
        }
        Ok(())
    }

    fn flag_last(&mut self, flags: u8) {
        if let Some(last) = self.entries.last_chunk_mut::<ENTRY_LEN>() {
            let mut entry = Entry::decode(last);
            entry.flags |= flags;
            *last = entry.encode();
        }
    }
}
