//! Where a walk through a block stops, and goes on later: rows have to be judged by PostgreSQL first, or the rest of a
//! transaction that is sent before its end has to come first. And how the next block goes on with what was at hand.

use pg_proto::Xid;
use storage_format::block::{Block, BlockFlags, BlockHeader};
use storage_format::record::RecordKind;

use super::Output;
use super::definition::is_change;
use super::emitter::{Emitter, Outcome, Step};
use super::transaction::Transaction;
use super::walk::Walk;
use crate::error::StreamError;
use crate::filter::{Asks, Verdicts};
use crate::selection::Actions;

/// Where a walk stopped.
#[derive(Debug)]
pub(super) struct Suspended {
    place: usize,
    ordinal: u64,
    /// At places of the emitter's plan, which is kept meanwhile.
    pub(super) planned: bool,
    step: Step,
}

impl<'a, O: Output> Walk<'a, O> {
    /// Goes on where a walk through the same block stopped.
    pub(super) fn resume(
        emitter: &'a mut Emitter,
        block: &'a Block,
        out: &'a mut O,
        suspended: Suspended,
    ) -> Self {
        let Suspended {
            place,
            ordinal,
            planned,
            step,
        } = suspended;
        Self {
            emitter,
            block,
            out,
            ordinal,
            place,
            planned,
            step,
        }
    }

    /// Stops before the record at hand. It and what follows it is to be judged together, up to where other filters may
    /// be in force.
    pub(super) fn suspend(self) -> Result<Outcome, StreamError> {
        let mut asks = Asks::default();
        let place = self.place;
        for (place, entry) in self.block.entries().enumerate().skip(place) {
            let kind = match entry.kind() {
                Some(RecordKind::Publications | RecordKind::Relation) => break,
                Some(kind) => kind,
                None => continue,
            };
            let by_position = self.emitter.by_position && is_change(Some(kind));
            if by_position && !self.emitter.is_judged_alike(self.block.start_lsn(&entry)) {
                break;
            }
            let lane = self.emitter.lanes.get(usize::from(entry.relation));
            let lane = lane.filter(|lane| lane.passes.intersects(Actions::of(kind)));
            let filters = lane
                .filter(|_| Actions::ROWS.intersects(Actions::of(kind)))
                .and_then(|lane| lane.shape.as_ref()?.filters.clone());
            if let Some(filters) = filters {
                let frame = self.block.frame(&entry);
                let place = u32::try_from(place).unwrap_or(u32::MAX);
                let asked = self.emitter.rewriter.ask(frame, &filters, place, &mut asks);
                asked.map_err(|error| self.emitter.row_error(error))?;
            }
            if asks.is_full() {
                break;
            }
        }
        self.note_place();
        Ok(Outcome::Ask(asks))
    }

    /// Stops before a transaction of which not all has been handed over that came before its end.
    pub(super) fn stop_before(mut self, xid: Xid) -> Outcome {
        self.planned = false;
        self.note_place();
        Outcome::Unfinished(xid)
    }

    /// The walk will go on at the record at hand.
    fn note_place(self) {
        self.emitter.suspended = Some(Suspended {
            place: self.place,
            ordinal: self.ordinal,
            planned: self.planned,
            step: self.step,
        });
    }
}

impl Emitter {
    /// Goes on in the block for which rows were to be judged.
    pub(crate) fn resume(
        &mut self,
        block: &Block,
        verdicts: Verdicts,
        out: &mut impl Output,
    ) -> Result<Outcome, StreamError> {
        let Some(suspended) = self.suspended.take() else {
            return Err(self.broken("a walk is resumed that was not suspended"));
        };
        // What was described meanwhile, in a transaction that has not ended.
        if !self.early.is_empty() {
            self.refresh_lanes();
        }
        self.judge.verdicts = verdicts;
        // Not under what was described meanwhile.
        let planned = suspended.planned && self.early.is_empty();
        let walk = Walk::resume(self, block, out, suspended);
        let outcome = if planned {
            walk.run_planned()
        } else {
            walk.run()
        };
        self.leave(block, outcome, out)
    }

    /// Brings the transaction at hand in line with where the block begins. What was not needed may have been left
    /// out in between, but never a block with the COMMIT of a transaction that was sent in part.
    pub(super) fn enter(&mut self, header: &BlockHeader) -> Result<(), StreamError> {
        let continues = header.flags.contains(BlockFlags::CONTINUES);
        if continues {
            self.commit_lsn = header.first_commit_lsn;
        }
        match (&self.transaction, continues) {
            (Transaction::None, false) => {}
            (Transaction::None, true) if header.first_commit_lsn < self.options.start => {
                self.transaction = Transaction::Skipped;
            }
            (Transaction::None, true) => {
                return Err(self.broken("a block goes on with a transaction that did not begin"));
            }
            (Transaction::Skipped | Transaction::Waiting(_), false) => {
                self.transaction = Transaction::None;
            }
            (
                Transaction::Skipped
                | Transaction::Waiting(_)
                | Transaction::Decided(_)
                | Transaction::Early(..),
                true,
            ) => {}
            (Transaction::Sent { commit_lsn }, true) if *commit_lsn == header.first_commit_lsn => {}
            (Transaction::Sent { .. } | Transaction::Decided(_) | Transaction::Early(..), _) => {
                return Err(self.broken("a transaction ends without its COMMIT"));
            }
        }
        Ok(())
    }
}
