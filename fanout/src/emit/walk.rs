//! A block, record by record.

use pg_proto::pgoutput::{self, Framing, Message};
use pg_proto::{Lsn, Oid, Xid};
use storage_format::block::{Block, BlockFlags, Entry};
use storage_format::record::RecordKind;
use storage_format::staging::StagedEnd;

use super::early::InLog;
use super::emitter::{Emitter, Outcome, Step};
use super::rewrite::Fate;
use super::transaction::{Opening, Transaction};
use super::{Made, Output, truncate, wire};
use crate::error::StreamError;
use crate::selection::Actions;

/// A walk through one block.
pub(super) struct Walk<'a, O> {
    pub(super) emitter: &'a mut Emitter,
    pub(super) block: &'a Block,
    pub(super) out: &'a mut O,
    /// Number of the next event in its transaction.
    pub(super) ordinal: u64,
    /// Number of the record at hand in its block.
    pub(super) place: usize,
    /// It stops at the places of the emitter's plan only.
    pub(super) planned: bool,
    pub(super) step: Step,
}

/// Whether the walk goes on.
pub(super) enum Next {
    On,
    End,
    /// This record can't be judged yet.
    Ask,
    /// This transaction's staged file must be read to its end before.
    Unfinished(Xid),
}

impl<'a, O: Output> Walk<'a, O> {
    pub(super) fn new(emitter: &'a mut Emitter, block: &'a Block, out: &'a mut O) -> Self {
        let step = emitter.step();
        Self {
            emitter,
            block,
            out,
            ordinal: block.header().first_ordinal,
            place: 0,
            planned: false,
            step,
        }
    }

    pub(super) fn run(mut self) -> Result<Outcome, StreamError> {
        self.planned = false;
        let block = self.block;
        for (place, entry) in block.entries().enumerate().skip(self.place) {
            self.place = place;
            match self.record(&entry)? {
                Next::On => {}
                Next::End => return Ok(Outcome::End(self.step)),
                Next::Ask => return self.suspend(),
                Next::Unfinished(xid) => return Ok(self.stop_before(xid)),
            }
        }
        self.end()
    }

    /// As [`Self::run`], stopping at the places of the emitter's plan only. What is between two of them is rows of one
    /// transaction, or all behind a COMMIT.
    pub(super) fn run_planned(mut self) -> Result<Outcome, StreamError> {
        self.planned = true;
        let plan = std::mem::take(&mut self.emitter.plan);
        let first = self.place;
        let mut next = first;
        let places = plan.iter().filter_map(|place| usize::try_from(*place).ok());
        for place in places.skip_while(|place| *place < first) {
            let Some(entry) = self.block.entry(place) else {
                break;
            };
            self.ordinal += place.saturating_sub(next) as u64;
            next = place + 1;
            self.place = place;
            match self.record(&entry)? {
                Next::On => {}
                Next::End => return Ok(Outcome::End(self.step)),
                Next::Ask => {
                    self.emitter.plan = plan;
                    return self.suspend();
                }
                Next::Unfinished(xid) => return Ok(self.stop_before(xid)),
            }
        }
        self.emitter.plan = plan;
        self.end()
    }

    fn end(self) -> Result<Outcome, StreamError> {
        if let Transaction::Waiting(opening) = &mut self.emitter.transaction {
            opening.keep(self.block);
        }
        let open = !matches!(self.emitter.transaction, Transaction::None);
        if open != self.block.header().flags.contains(BlockFlags::OPEN_END) {
            let what = "a block's records do not end where its header says";
            return Err(self.emitter.broken(what));
        }
        Ok(Outcome::On(self.step))
    }

    fn record(&mut self, entry: &Entry) -> Result<Next, StreamError> {
        // A kind of a later format: nothing that this build could send.
        let Some(kind) = entry.kind() else {
            return Ok(Next::On);
        };
        if self.emitter.options.streaming {
            self.out.belongs(entry);
        }
        self.open_eagerly(kind);
        match kind {
            RecordKind::Insert | RecordKind::Update | RecordKind::Delete => {
                self.judge(entry);
                return self.row(entry, Actions::of(kind));
            }
            RecordKind::Begin => return self.begin(entry),
            RecordKind::Commit => self.commit(entry),
            RecordKind::Origin => self.origin(entry),
            RecordKind::Truncate => {
                self.judge(entry);
                self.truncate(entry)?;
            }
            RecordKind::Message => return self.message(entry),
            RecordKind::Publications => {
                let payload = self.block.payload(entry);
                self.emitter.state_own_definition(payload)?;
                let counts = self.block.header().flags.apply(kind) && !self.emitter.is_early;
                if counts && self.emitter.apply(kind, payload)? {
                    self.warn();
                }
            }
            RecordKind::Relation | RecordKind::Type | RecordKind::ServerParameters => {
                if self.emitter.apply(kind, self.block.payload(entry))? {
                    self.warn();
                } else if kind == RecordKind::Relation {
                    self.emitter.repeat(self.block.relation(entry));
                }
            }
            RecordKind::BeginPrepare => return self.begin_prepare(entry),
            RecordKind::Prepare => self.prepare(entry),
            RecordKind::Prepared => self.prepared(entry)?,
            RecordKind::RollbackPrepared => return self.rollback_prepared(entry),
            RecordKind::CommitPrepared => {
                let what = "a COMMIT PREPARED, which this version stores in another form";
                return Err(self.emitter.broken(what));
            }
        }
        Ok(Next::On)
    }

    fn begin(&mut self, entry: &Entry) -> Result<Next, StreamError> {
        let Message::Begin(begin) = self.decode(entry)? else {
            return Err(self
                .emitter
                .broken("a BEGIN record without a BEGIN message"));
        };
        let options = &self.emitter.options;
        let commit_lsn = begin.final_lsn;
        if options.end.is_some_and(|end| commit_lsn >= end) {
            return Ok(Next::End);
        }
        let streamed = options.streaming && entry.xid != 0;
        let start = options.start;
        self.emitter.begin_at(commit_lsn);
        let early = if streamed && !self.emitter.early.is_empty() {
            // It may have to be given up here.
            self.out.end_block(self.block);
            let wanted = commit_lsn >= start;
            let ends = |end| match end {
                StagedEnd::Committed(lsn) => wanted && lsn == commit_lsn,
                StagedEnd::Prepared(lsn) => wanted && lsn < commit_lsn,
                StagedEnd::RolledBack(_) => false,
            };
            self.emitter.early_in_log(begin.xid, ends, self.out)
        } else {
            InLog::Unsent
        };
        match early {
            InLog::Unsent => {}
            InLog::Unfinished => return Ok(Next::Unfinished(begin.xid)),
            InLog::Sent(early) => {
                self.emitter.transaction = Transaction::Early(begin.xid, early);
                return Ok(Next::On);
            }
        }
        self.emitter.transaction = if commit_lsn < start {
            Transaction::Skipped
        } else {
            let mut opening = Opening::new(commit_lsn, *entry);
            if streamed {
                opening.set_eager();
            }
            Transaction::Waiting(opening)
        };
        if streamed {
            self.emitter.enter_stream();
        }
        self.ordinal = 0;
        Ok(Next::On)
    }

    /// Puts the publications in force that judge a change.
    fn judge(&mut self, entry: &Entry) {
        if self.emitter.by_position && self.emitter.judge_at(self.block.start_lsn(entry)) {
            self.warn();
        }
    }

    fn origin(&mut self, entry: &Entry) {
        if let Transaction::Early(..) = self.emitter.transaction {
            return;
        }
        if self.emitter.options.local_origin_only {
            self.emitter.transaction = Transaction::Skipped;
        } else if let Transaction::Waiting(opening) = &mut self.emitter.transaction {
            opening.set_origin(*entry);
        }
    }

    fn commit(&mut self, entry: &Entry) {
        match std::mem::replace(&mut self.emitter.transaction, Transaction::None) {
            Transaction::Sent { .. } => {
                match self.emitter.prepared.take() {
                    Some(record) => self.prepare_and_commit(entry, &record),
                    None => self.out.entry(self.block, entry, 0),
                }
                self.step.commits += 1;
            }
            Transaction::Decided(record) => {
                self.commit_prepared(entry, &record);
                self.step.commits += 1;
            }
            Transaction::Early(xid, early) => {
                self.out.enter_piece(xid, true);
                match self.emitter.prepared.take() {
                    Some(record) => self.prepare_and_commit(entry, &record),
                    None => self.out.entry(self.block, entry, 0),
                }
                self.out.end_block(self.block);
                self.out.leave_piece();
                self.emitter.early_done(*early);
                self.emitter.refresh_lanes();
                self.step.commits += 1;
            }
            Transaction::None | Transaction::Skipped | Transaction::Waiting(_) => {}
        }
        self.emitter.leave_stream();
    }

    fn row(&mut self, entry: &Entry, action: Actions) -> Result<Next, StreamError> {
        let ordinal = self.next_ordinal();
        if !self.sends()? {
            return Ok(Next::On);
        }
        let index = usize::from(entry.relation);
        let Some(lane) = self.emitter.lanes.get(index) else {
            let what = "a row names a relation that its block does not list";
            return Err(self.emitter.broken(what));
        };
        if lane.refused.intersects(action) {
            return Err(lane.refusal.clone().map_or_else(
                || {
                    self.emitter
                        .broken("a relation is refused without a reason")
                },
                StreamError::Refused,
            ));
        }
        if !lane.passes.contains(action) {
            return Ok(Next::On);
        }
        let (oid, announced) = (lane.oid, lane.announced);
        let Emitter {
            lanes,
            rewriter,
            judge,
            ..
        } = &mut *self.emitter;
        let fate = match lanes.get(index).and_then(|lane| lane.shape.as_ref()) {
            Some(shape) => {
                let place = u32::try_from(self.place).unwrap_or(u32::MAX);
                rewriter.row(self.block.frame(entry), shape, place, judge)
            }
            None => Ok(Fate::AsItIs),
        };
        match fate.map_err(|error| self.emitter.row_error(error))? {
            Fate::Dropped => return Ok(Next::On),
            Fate::Ask => {
                self.ordinal = ordinal;
                return Ok(Next::Ask);
            }
            Fate::AsItIs => {
                self.precede(oid, announced, entry)?;
                self.out.entry(self.block, entry, ordinal);
            }
            Fate::Rewritten(kind) => {
                self.precede(oid, announced, entry)?;
                let frame = self.emitter.rewriter.frame();
                self.out.rewritten(self.block, kind, ordinal, frame);
            }
        }
        self.step.changes += 1;
        Ok(Next::On)
    }

    /// Sends what stands before a row.
    fn precede(&mut self, oid: Oid, announced: bool, entry: &Entry) -> Result<(), StreamError> {
        self.open(entry);
        if announced {
            return Ok(());
        }
        self.announce(oid, entry)
    }

    /// Sends a TRUNCATE of those relations that pass, if there are any.
    fn truncate(&mut self, entry: &Entry) -> Result<(), StreamError> {
        let ordinal = self.next_ordinal();
        if !self.sends()? {
            return Ok(());
        }
        let Message::Truncate(message) = self.decode(entry)? else {
            return Err(self
                .emitter
                .broken("a TRUNCATE record without a TRUNCATE message"));
        };
        let passing = truncate::relations(self.emitter, &message)?;
        if passing.is_empty() {
            return Ok(());
        }
        self.open(entry);
        for &oid in &passing {
            let Emitter {
                announced,
                selection,
                view,
                ..
            } = &mut *self.emitter;
            let shape = selection.decide(oid, view).shape.as_ref();
            if !announced.now().is_current(oid, view, shape) {
                self.announce(oid, entry)?;
            }
        }
        if message.relations().eq(passing.iter().copied()) {
            self.out.entry(self.block, entry, ordinal);
        } else {
            let frame = wire::truncate(self.block.frame(entry), &message, &passing);
            let kind = RecordKind::Truncate;
            let made = Made {
                kind,
                ordinal,
                frame,
            };
            self.out.made(self.block, made);
        }
        self.step.changes += 1;
        Ok(())
    }

    fn message(&mut self, entry: &Entry) -> Result<Next, StreamError> {
        let Message::LogicalMessage(message) = self.decode(entry)? else {
            return Err(self
                .emitter
                .broken("a message record without a logical message"));
        };
        if !message.transactional {
            return Ok(self.lone_message(entry, message.lsn));
        }
        let ordinal = self.next_ordinal();
        if self.emitter.options.messages && !self.emitter.transaction.is_over() {
            self.open(entry);
            self.out.entry(self.block, entry, ordinal);
            self.step.changes += 1;
        }
        Ok(Next::On)
    }

    /// A message that stands alone, between transactions. `lsn` is the end of its record, so it lies behind the
    /// start only if it is greater.
    fn lone_message(&mut self, entry: &Entry, lsn: Lsn) -> Next {
        let options = &self.emitter.options;
        if options.end.is_some_and(|end| lsn > end) {
            return Next::End;
        }
        if options.messages && lsn > options.start {
            self.out.entry(self.block, entry, 0);
            self.step.changes += 1;
        }
        Next::On
    }

    /// Whether rows of the transaction at hand are looked at.
    fn sends(&self) -> Result<bool, StreamError> {
        if self.emitter.transaction.is_over() {
            return Ok(false);
        }
        if self.emitter.fails_on_rows() {
            let name = self.emitter.selection.missing().first();
            return Err(StreamError::UnknownPublication {
                name: name.cloned().unwrap_or_default(),
            });
        }
        Ok(true)
    }

    /// Sends the BEGIN if it waits. `first` is what comes behind it.
    fn open(&mut self, first: &Entry) {
        let transaction = &mut self.emitter.transaction;
        if !matches!(transaction, Transaction::Waiting(_)) {
            return;
        }
        if let Transaction::Waiting(opening) = std::mem::replace(transaction, Transaction::None) {
            let start = self
                .emitter
                .options
                .begin_with_first_change
                .then(|| self.block.start_lsn(first));
            *transaction = opening.send(start, self.block, self.out);
        }
    }

    /// Sends the BEGIN if it waits only for an ORIGIN and this is none.
    fn open_eagerly(&mut self, kind: RecordKind) {
        let Transaction::Waiting(opening) = &mut self.emitter.transaction else {
            return;
        };
        if !opening.is_eager() || matches!(kind, RecordKind::Origin | RecordKind::Prepared) {
            return;
        }
        let prepared = opening.prepared().cloned();
        if let Transaction::Waiting(opening) =
            std::mem::replace(&mut self.emitter.transaction, Transaction::None)
        {
            self.emitter.prepared = prepared.map(Box::new);
            self.emitter.transaction = opening.send(None, self.block, self.out);
        }
    }

    /// Sends a relation's types and the relation, in the version in force.
    fn announce(&mut self, oid: Oid, near: &Entry) -> Result<(), StreamError> {
        let emitter = &mut *self.emitter;
        let shape = emitter.selection.decide(oid, &emitter.view).shape.as_ref();
        let Some(messages) = emitter.announced.now().announce(oid, &emitter.view, shape) else {
            return Err(emitter.broken("a change of a relation that the log does not describe"));
        };
        let near = self.block.frame(near);
        for (kind, message) in messages {
            let made = Made {
                kind,
                ordinal: 0,
                frame: wire::description(&message, near),
            };
            self.out.made(self.block, made);
        }
        let lanes = self.emitter.lanes.iter_mut();
        for lane in lanes.filter(|lane| lane.oid == oid) {
            lane.announced = true;
        }
        Ok(())
    }

    fn warn(&mut self) {
        let Step { warnings, .. } = self.emitter.step();
        self.step.warnings.extend(warnings);
    }

    const fn next_ordinal(&mut self) -> u64 {
        let ordinal = self.ordinal;
        self.ordinal += 1;
        ordinal
    }

    pub(super) fn decode(&self, entry: &Entry) -> Result<Message<'a>, StreamError> {
        let position = self.emitter.position();
        pgoutput::decode(self.block.payload(entry), Framing::Plain)
            .map_err(|source| StreamError::Unreadable { position, source })
    }
}
