//! Two-phase commit.
//!
//! A transaction comes at its PREPARE, whole or in pieces, and is staged; what its end brings later is only that it
//! ended. The source sends PREPARE again if it was not confirmed, and not if it was: then COMMIT PREPARED comes alone.
//!
//! A transaction that was prepared before the slot sent such transactions comes *late*: with its COMMIT PREPARED, and with
//! the position of a PREPARE that the stream is long past (`ReorderBufferFinishPrepared`).

use pg_proto::pgoutput::{BeginPrepare, CommitPrepared, Message, Prepare, RollbackPrepared, tag};
use pg_proto::{Lsn, Xid};

use super::{Assembler, State};
use crate::ingest::error::StreamError;
use crate::ingest::record::Incoming;
use crate::ingest::sink::{Place, Sink};

impl Assembler {
    pub(super) fn begin_prepare<S: Sink>(
        &mut self,
        begin: &BeginPrepare<'_>,
        incoming: &Incoming<'_>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        if sink.is_prepared(begin.xid, begin.gid) {
            self.state = State::SkippingPrepared;
            return Ok(());
        }
        sink.prepare_begin(begin.xid, incoming)?;
        self.state = State::Preparing {
            xid: begin.xid,
            prepare_lsn: begin.prepare_lsn,
        };
        Ok(())
    }

    pub(super) fn while_preparing<S: Sink>(
        &mut self,
        xid: Xid,
        prepare_lsn: Lsn,
        incoming: &Incoming<'_>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        if incoming.payload.first() != Some(&tag::PREPARE) {
            let place = Place::Staged { top: xid, sub: xid };
            return self.record(place, incoming.start, incoming.payload, sink);
        }
        let Message::Prepare(prepare) = self.decode(incoming)? else {
            return Err(self.misplaced(incoming, "in place of a PREPARE").into());
        };
        if prepare.prepare_lsn != prepare_lsn {
            return Err(StreamError::Mismatch {
                begun: prepare_lsn,
                ended: prepare.prepare_lsn,
            }
            .into());
        }
        self.state = State::Between;
        self.prepare(&prepare, sink)
    }

    pub(super) fn while_skipping_prepared<E: From<StreamError>>(
        &mut self,
        incoming: &Incoming<'_>,
    ) -> Result<(), E> {
        if incoming.payload.first() == Some(&tag::PREPARE) {
            self.state = State::Between;
        }
        Ok(())
    }

    pub(super) fn stream_prepare<S: Sink>(
        &mut self,
        prepare: &Prepare<'_>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        if !sink.is_staged(prepare.xid) {
            return Err(self.unknown_stream(prepare.xid).into());
        }
        if sink.is_prepared(prepare.xid, prepare.gid) {
            sink.stage_discard(prepare.xid);
            return Ok(());
        }
        self.prepare(prepare, sink)
    }

    fn prepare<S: Sink>(&mut self, prepare: &Prepare<'_>, sink: &mut S) -> Result<(), S::Error> {
        let late = prepare.prepare_lsn < self.position;
        sink.prepare(prepare, late)?;
        self.position = self.position.max(prepare.end_lsn);
        Ok(())
    }

    pub(super) fn commit_prepared<S: Sink>(
        &mut self,
        end: &CommitPrepared<'_>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        if end.commit.commit_lsn >= self.resume {
            self.check_order(end.commit.commit_lsn)?;
            if !sink.is_prepared(end.xid, end.gid) {
                return Err(StreamError::UnknownPrepared {
                    xid: end.xid,
                    gid: String::from_utf8_lossy(end.gid).into_owned(),
                    commit: end.commit.commit_lsn,
                    end: end.commit.end_lsn,
                }
                .into());
            }
            sink.commit_prepared(end)?;
        }
        self.advance(end.commit.end_lsn, sink)
    }

    pub(super) fn rollback_prepared<S: Sink>(
        &mut self,
        end: &RollbackPrepared<'_>,
        incoming: &Incoming<'_>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        if end.rollback_end_lsn > self.resume {
            sink.rollback_prepared(end, incoming)?;
        }
        self.advance(end.rollback_end_lsn, sink)
    }
}
