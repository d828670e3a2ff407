//! Transactions that are sent before they end, from the decoder's staging.
//!
//! Each has an [`Emitter`] of its own, which goes through its staged blocks as any other goes through the log's: with
//! the catalog as it is where the subscriber is, and what the transaction itself changed of it. When the log comes to
//! the transaction, its copy there is passed over and only its end is sent.
//!
//! What a connection has been told of a relation is told in several places at once: outside streamed transactions, and
//! in each of them. A subscriber may take a RELATION for all of them (the leader of parallel apply workers does), or
//! only when the transaction commits (one that spools). So a relation that is described in one place in another way
//! than in the others is described anew in those.

use std::sync::Arc;

use bytes::Bytes;
use pg_proto::pgoutput::StreamAbort;
use pg_proto::{Lsn, Oid, PgTimestamp, Xid};
use storage_format::block::{Block, BlockFlags};
use storage_format::catalog::Catalog;
use storage_format::record::RecordKind;
use storage_format::staging::{Rollback, StagedEnd};

use super::emitter::{Emitter, Outcome};
use super::transaction::{Opening, Transaction};
use super::{Output, wire};
use crate::error::StreamError;
use crate::filter::Verdicts;
use crate::selection::Selection;

/// One transaction that is being sent before its end.
#[derive(Debug)]
pub(super) struct EarlyTransaction {
    emitter: Emitter,
    send_time: PgTimestamp,
    /// The catalog that the transaction's own was made of.
    base: Arc<Catalog>,
    /// What the transaction itself changed of it, in order.
    own: Vec<OwnRecord>,
    end: Option<StagedEnd>,
}

/// A record of the catalog in an uncommitted transaction.
#[derive(Debug)]
struct OwnRecord {
    writer: Xid,
    kind: RecordKind,
    /// The relation, for a RELATION.
    relation: Option<Oid>,
    payload: Bytes,
}

/// What the log's copy of a transaction is for this subscriber.
#[derive(Debug)]
pub(super) enum InLog {
    /// Nothing of it was sent.
    Unsent,
    /// Its staged file must be read to its end first.
    Unfinished,
    /// All of it was sent, but for its end.
    Sent(Box<EarlyTransaction>),
}

impl Emitter {
    /// A transaction begins whose end is not known.
    pub(crate) fn early_begin(&mut self, xid: Xid, start: Lsn, send_time: PgTimestamp) {
        let mut options = self.options.clone();
        // It ends behind everything that is known of the log.
        options.start = Lsn::INVALID;
        options.end = None;
        let selection = Selection::new(self.selection.spec().clone(), &self.catalog)
            .with_filters(self.selection.filters().clone());
        let catalog = Arc::clone(&self.catalog);
        let mut emitter = Self::new(options, selection, catalog, self.position());
        emitter.warned.clone_from(&self.warned);
        emitter.is_early = true;
        // The same ones from its first piece to its end.
        emitter.versions = self.versions.clone();
        let begin = wire::early_begin(xid, start, send_time);
        emitter.transaction = Transaction::Waiting(Opening::of_early(begin));
        emitter.enter_stream();
        let early = EarlyTransaction {
            base: Arc::clone(&emitter.catalog),
            emitter,
            send_time,
            own: Vec::new(),
            end: None,
        };
        self.early.insert(xid, Box::new(early));
    }

    /// Whether the transaction has begun here and its end is not known.
    pub(crate) fn early_is_open(&self, xid: Xid) -> bool {
        self.early
            .get(&xid)
            .is_some_and(|early| early.end.is_none())
    }

    /// Whether the subscriber can be sent a piece now: not inside another transaction.
    pub(crate) const fn takes_pieces(&self) -> bool {
        matches!(self.transaction, Transaction::None) && self.suspended.is_none()
    }

    /// Hands over what passes of a staged block. `base` is the catalog as of the log's place.
    pub(crate) fn early_block(
        &mut self,
        xid: Xid,
        block: &Arc<Block>,
        base: &Arc<Catalog>,
        out: &mut impl Output,
    ) -> Result<Outcome, StreamError> {
        let mut early = self.early_of(xid)?;
        let catalog = early.catalog(base)?;
        out.enter_piece(xid, early.is_begun());
        let outcome = early.emitter.block(block, &catalog, out)?;
        out.leave_piece();
        self.early_went_on(xid, early, block, &outcome);
        Ok(outcome)
    }

    /// Goes on in a staged block for which rows were to be judged.
    pub(crate) fn early_resume(
        &mut self,
        xid: Xid,
        block: &Block,
        verdicts: Verdicts,
        out: &mut impl Output,
    ) -> Result<Outcome, StreamError> {
        let mut early = self.early_of(xid)?;
        out.enter_piece(xid, early.is_begun());
        let outcome = early.emitter.resume(block, verdicts, out)?;
        out.leave_piece();
        self.early_went_on(xid, early, block, &outcome);
        Ok(outcome)
    }

    /// A subtransaction is rolled back.
    pub(crate) fn early_aborted(
        &mut self,
        xid: Xid,
        subxid: Xid,
        at: Rollback,
        out: &mut impl Output,
    ) -> Result<(), StreamError> {
        let Some(early) = self.early.get_mut(&xid) else {
            return Ok(());
        };
        early.forget_writer(subxid)?;
        if early.is_begun() {
            out.stream_abort(&abort(xid, subxid, at), early.send_time);
        }
        // A subscriber that spools has lost what was described in that part (`cleanup_rel_sync_cache`).
        early.emitter.announced.enter_stream();
        Ok(())
    }

    /// The staged file has come to its end.
    pub(crate) fn early_ended(&mut self, xid: Xid, end: StagedEnd, out: &mut impl Output) {
        match end {
            StagedEnd::RolledBack(at) => self.early_given_up(xid, at, out),
            StagedEnd::Committed(_) | StagedEnd::Prepared(_) => {
                if let Some(early) = self.early.get_mut(&xid) {
                    early.end = Some(end);
                }
            }
        }
    }

    /// Nothing more will come of what was begun: it is rolled back, or it will come again from its start.
    pub(crate) fn early_given_up(&mut self, xid: Xid, at: Rollback, out: &mut impl Output) {
        if let Some(early) = self.early.remove(&xid)
            && early.is_begun()
        {
            out.stream_abort(&abort(xid, xid, at), early.send_time);
        }
    }

    /// Gives up what should have been in the log by now: all of it was rolled back piece by piece, so that the log has
    /// nothing of it, or the log has lost it.
    pub(crate) fn early_expire(&mut self, out: &mut impl Output) {
        let position = self.position();
        let expired = |early: &EarlyTransaction| matches!(early.end, Some(StagedEnd::Committed(lsn)) if lsn < position);
        let xids: Vec<Xid> = self
            .early
            .iter()
            .filter(|(_, early)| expired(early))
            .map(|(xid, _)| *xid)
            .collect();
        for xid in xids {
            self.early_given_up(xid, Rollback::default(), out);
        }
    }

    /// The log has come to a transaction that ends at `end` there.
    pub(super) fn early_in_log(
        &mut self,
        xid: Xid,
        end: impl Fn(StagedEnd) -> bool,
        out: &mut impl Output,
    ) -> InLog {
        let Some(early) = self.early.get(&xid) else {
            return InLog::Unsent;
        };
        let Some(known) = early.end else {
            return InLog::Unfinished;
        };
        if !early.is_begun() || !end(known) {
            // Another one of that number, from before a fork.
            self.early_given_up(xid, Rollback::default(), out);
            return InLog::Unsent;
        }
        match self.early.remove(&xid) {
            Some(early) => InLog::Sent(early),
            None => InLog::Unsent,
        }
    }

    /// Its end is handed over: what it described holds from here on.
    pub(super) fn early_done(&mut self, early: EarlyTransaction) {
        self.announced.absorb(early.emitter.announced);
    }

    fn early_of(&mut self, xid: Xid) -> Result<Box<EarlyTransaction>, StreamError> {
        let broken = "a piece of a transaction that did not begin";
        self.early.remove(&xid).ok_or_else(|| self.broken(broken))
    }

    /// Takes a transaction back that went one block further.
    fn early_went_on(
        &mut self,
        xid: Xid,
        mut early: Box<EarlyTransaction>,
        block: &Block,
        outcome: &Outcome,
    ) {
        if let Outcome::On(_) = outcome {
            early.note_own(block);
        }
        let fresh = early.emitter.announced.take_fresh();
        self.announced.forget_others(&fresh);
        for other in self.early.values_mut() {
            other.emitter.announced.forget_others(&fresh);
        }
        self.warned.clone_from(&early.emitter.warned);
        self.early.insert(xid, early);
    }

    /// What the log's own blocks have described, where it is another description than in transactions on their way.
    pub(super) fn tell_early(&mut self) {
        let fresh = self.announced.take_fresh();
        if !fresh.is_empty() {
            for early in self.early.values_mut() {
                early.emitter.announced.forget_others(&fresh);
            }
        }
    }
}

impl EarlyTransaction {
    /// Whether its STREAM START was sent.
    const fn is_begun(&self) -> bool {
        matches!(self.emitter.transaction, Transaction::Sent { .. })
    }

    /// The catalog that the transaction sees on top of `base`.
    fn catalog(&mut self, base: &Arc<Catalog>) -> Result<Arc<Catalog>, StreamError> {
        if !Arc::ptr_eq(&self.base, base) {
            let mut catalog = Arc::clone(base);
            // Its publications are laid over those of others where they judge.
            let described = |own: &&OwnRecord| own.kind != RecordKind::Publications;
            for own in self.own.iter().filter(described) {
                Catalog::apply(&mut catalog, own.kind, &own.payload, Lsn::INVALID)?;
            }
            self.base = Arc::clone(base);
            return Ok(catalog);
        }
        Ok(Arc::clone(&self.emitter.catalog))
    }

    /// Keeps the block's records of the catalog: of a relation or type the last one.
    fn note_own(&mut self, block: &Block) {
        if !block.header().flags.contains(BlockFlags::HAS_CATALOG) {
            return;
        }
        for entry in block.entries() {
            let Some(kind) = entry.kind().filter(|kind| kind.is_catalog()) else {
                continue;
            };
            let payload = block.payload(&entry);
            let relation = block.relation(&entry);
            let writer = Xid(entry.xid);
            self.own.retain(|own| {
                own.kind != kind
                    || match kind {
                        RecordKind::Relation => own.relation != relation,
                        RecordKind::Publications => own.writer != writer,
                        _ => own.payload.get(..TYPE_KEY_LEN) != payload.get(..TYPE_KEY_LEN),
                    }
            });
            self.own.push(OwnRecord {
                writer,
                kind,
                relation,
                payload: Bytes::copy_from_slice(payload),
            });
        }
    }

    /// Publications as a rolled back subtransaction made them do not count. What it described stays: the source sends
    /// that once.
    fn forget_writer(&mut self, writer: Xid) -> Result<(), StreamError> {
        let before = self.own.len();
        self.own
            .retain(|own| own.writer != writer || own.kind != RecordKind::Publications);
        if self.own.len() == before {
            return Ok(());
        }
        self.emitter.own = None;
        let stated = |own: &&OwnRecord| own.kind == RecordKind::Publications;
        match self.own.iter().rfind(stated) {
            Some(own) => self.emitter.state_own_definition(&own.payload),
            None => Ok(()),
        }
    }
}

/// The tag and the OID of a TYPE.
const TYPE_KEY_LEN: usize = 5;

const fn abort(xid: Xid, subxid: Xid, at: Rollback) -> StreamAbort {
    StreamAbort {
        xid,
        subxid,
        abort: Some((at.lsn, at.time)),
    }
}
