//! Two-phase commit: what a subscriber that asked for it gets, by PostgreSQL's rules (`ReorderBufferFinishPrepared`).
//!
//! The log has a transaction twice: at its PREPARE, in blocks that others pass over, and once more when it has committed,
//! as an ordinary transaction with a record that says how it was prepared. So a subscriber gets
//! - the first, if it was prepared at or after the position from which the subscriber is one of two-phase commit, and
//!   COMMIT PREPARED in place of the second;
//! - otherwise the second, as BEGIN PREPARE, PREPARE and COMMIT PREPARED one behind the other.

use pg_proto::pgoutput::{CommitPrepared, Message};
use storage_format::block::Entry;
use storage_format::record::{PreparedRecord, RecordKind};
use storage_format::staging::{Rollback, StagedEnd};

use super::early::InLog;
use super::transaction::{Opening, Transaction};
use super::walk::{Next, Walk};
use super::{Made, Output, wire};
use crate::error::StreamError;

impl<O: Output> Walk<'_, O> {
    pub(super) fn begin_prepare(&mut self, entry: &Entry) -> Result<Next, StreamError> {
        let Message::BeginPrepare(begin) = self.decode(entry)? else {
            let what = "a BEGIN PREPARE record without its message";
            return Err(self.emitter.broken(what));
        };
        let options = &self.emitter.options;
        let prepare_lsn = begin.prepare_lsn;
        if options.end.is_some_and(|end| prepare_lsn >= end) {
            return Ok(Next::End);
        }
        let since = options.two_phase_at.filter(|at| prepare_lsn >= *at);
        let streamed = options.streaming && entry.xid != 0;
        let sends = since.is_some() && prepare_lsn >= options.start;
        self.emitter.begin_at(prepare_lsn);
        if streamed && sends && !self.emitter.early.is_empty() {
            // It may have to be given up here.
            self.out.end_block(self.block);
            let ends = |end| end == StagedEnd::Prepared(prepare_lsn);
            match self.emitter.early_in_log(begin.xid, ends, self.out) {
                InLog::Unsent => {}
                InLog::Unfinished => return Ok(Next::Unfinished(begin.xid)),
                InLog::Sent(early) => {
                    self.emitter.transaction = Transaction::Early(begin.xid, early);
                    return Ok(Next::On);
                }
            }
        }
        let start = self.emitter.options.start;
        self.emitter.transaction = if prepare_lsn < start || since.is_none() {
            Transaction::Skipped
        } else {
            Transaction::Waiting(Opening::of_prepared(prepare_lsn, *entry))
        };
        if streamed {
            self.emitter.enter_stream();
        }
        self.ordinal = 0;
        Ok(Next::On)
    }

    pub(super) fn prepare(&mut self, entry: &Entry) {
        match std::mem::replace(&mut self.emitter.transaction, Transaction::None) {
            Transaction::Sent { .. } => self.out.entry(self.block, entry, 0),
            Transaction::Early(xid, early) => {
                self.out.enter_piece(xid, true);
                self.out.entry(self.block, entry, 0);
                self.out.end_block(self.block);
                self.out.leave_piece();
                self.emitter.early_done(*early);
                self.emitter.refresh_lanes();
            }
            _ => {}
        }
        self.emitter.leave_stream();
    }

    /// The transaction that has just begun was prepared before it commits here.
    pub(super) fn prepared(&mut self, entry: &Entry) -> Result<(), StreamError> {
        let Some(since) = self.emitter.options.two_phase_at else {
            return Ok(());
        };
        let position = self.emitter.position();
        if !matches!(
            self.emitter.transaction,
            Transaction::Waiting(_) | Transaction::Early(..)
        ) {
            return Ok(());
        }
        let record = PreparedRecord::decode(self.block.payload(entry))
            .map_err(|source| StreamError::Unreadable { position, source })?;
        let Transaction::Waiting(opening) = &mut self.emitter.transaction else {
            // Sent before its end, and prepared before this subscriber was one of two-phase commit.
            self.emitter.prepared = Some(Box::new(record));
            return Ok(());
        };
        if record.at_prepare && record.prepare_lsn >= since {
            self.emitter.transaction = Transaction::Decided(Box::new(record));
        } else {
            opening.prepared_as(record);
        }
        Ok(())
    }

    /// PREPARE and COMMIT PREPARED of a transaction that was sent with its commit.
    pub(super) fn prepare_and_commit(&mut self, entry: &Entry, record: &PreparedRecord) {
        let prepare = Message::Prepare(record.prepare());
        let frame = wire::message(record.prepare_end_lsn, self.block.frame(entry), &prepare);
        self.made(RecordKind::Prepare, frame);
        self.commit_prepared(entry, record);
    }

    /// COMMIT PREPARED in place of the COMMIT at `entry`.
    pub(super) fn commit_prepared(&mut self, entry: &Entry, record: &PreparedRecord) {
        let Ok(Message::Commit(commit)) = self.decode(entry) else {
            return;
        };
        let message = Message::CommitPrepared(CommitPrepared {
            commit,
            xid: record.xid,
            gid: &record.gid,
        });
        let frame = wire::message(commit.end_lsn, self.block.frame(entry), &message);
        self.made(RecordKind::CommitPrepared, frame);
    }

    /// It is sent whether or not the PREPARE was: the source does not know either. But for where the transaction came
    /// from: the source goes by the session that rolls it back, which its stream does not tell, and here by the PREPARE.
    pub(super) fn rollback_prepared(&mut self, entry: &Entry) -> Result<Next, StreamError> {
        let Message::RollbackPrepared(rollback) = self.decode(entry)? else {
            let what = "a ROLLBACK PREPARED record without its message";
            return Err(self.emitter.broken(what));
        };
        let at = Rollback {
            lsn: rollback.rollback_end_lsn,
            time: rollback.rollback_time,
        };
        if !self.emitter.early.is_empty() {
            self.out.end_block(self.block);
            self.emitter.early_given_up(rollback.xid, at, self.out);
        }
        let options = &self.emitter.options;
        let end_lsn = rollback.rollback_end_lsn;
        if options.end.is_some_and(|end| end_lsn > end) {
            return Ok(Next::End);
        }
        let elsewhere = options.local_origin_only && entry.has(Entry::HAS_ORIGIN);
        if options.two_phase_at.is_some() && end_lsn > options.start && !elsewhere {
            self.out.entry(self.block, entry, 0);
        }
        Ok(Next::On)
    }

    fn made(&mut self, kind: RecordKind, frame: bytes::Bytes) {
        let made = Made {
            kind,
            ordinal: 0,
            frame,
        };
        self.out.made(self.block, made);
    }
}
