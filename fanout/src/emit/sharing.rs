//! What is made of a block is made once for all members of a [`Family`].

use std::sync::Arc;

use storage_format::block::{Block, BlockFlags};

use super::family::{Family, Sent};
use super::output::Output;
use super::transaction::Transaction;
use super::{Emitter, Outcome, Step};
use crate::error::StreamError;

impl Emitter {
    /// Hands over a block of which everything passes.
    pub(super) fn hand_over(&mut self, block: &Block, out: &mut impl Output) -> Step {
        let header = block.header();
        out.whole(block);
        self.go_behind(block);
        Step {
            changes: header.event_count.into(),
            commits: header.transaction_count.into(),
            ..self.step()
        }
    }

    /// Everything in the block was handed over.
    fn go_behind(&mut self, block: &Block) {
        let header = block.header();
        self.transaction = if header.flags.contains(BlockFlags::OPEN_END) {
            Transaction::Sent {
                commit_lsn: header.last_commit_lsn,
            }
        } else {
            Transaction::None
        };
    }

    /// Hands over what another member made of the block, or makes it for those who come.
    pub(super) fn walk_shared(
        &mut self,
        block: &Arc<Block>,
        family: &Family,
        (mark, whole): (usize, bool),
        out: &mut impl Output,
    ) -> Result<Outcome, StreamError> {
        // As of the block's start: the walk may change it.
        let catalog = Arc::clone(&self.catalog);
        if let Some(sent) = family.find(block, &catalog) {
            out.give(&sent.pieces);
            if whole {
                self.go_behind(block);
            }
            let step = Step {
                changes: sent.changes,
                commits: sent.commits,
                ..self.step()
            };
            return self.leave(block, Ok(Outcome::On(step)), out);
        }
        let outcome = if whole {
            Ok(Outcome::On(self.hand_over(block, out)))
        } else {
            self.walk(block, out)
        };
        let outcome = self.leave(block, outcome, out)?;
        if let Outcome::On(step) = &outcome
            && self.lanes_are_announced()
            && let Some(pieces) = out.taken_since(mark)
        {
            let sent = Sent {
                pieces,
                changes: step.changes,
                commits: step.commits,
            };
            family.keep(block, &catalog, sent);
        }
        Ok(outcome)
    }

    /// With whom what is made of the block is shared, and where the output stands: only if it depends on nothing but what
    /// they all asked for, and leaves them all in the same state.
    pub(super) fn sharing(
        &self,
        block: &Block,
        whole: bool,
        out: &mut impl Output,
    ) -> Option<(Arc<Family>, usize)> {
        let family = self.family.as_ref().filter(|family| family.shares(block))?;
        // What was made is known by the catalog, which does not say what is beside the log.
        if !Arc::ptr_eq(&self.view, &self.catalog) && !self.versions.are_none() {
            return None;
        }
        let header = block.header();
        let own = [
            BlockFlags::CONTINUES,
            BlockFlags::OPEN_END,
            BlockFlags::HAS_CATALOG,
            BlockFlags::HAS_TRUNCATE,
            BlockFlags::HAS_STREAMED,
            BlockFlags::PREPARED,
            BlockFlags::ENDS_PREPARED,
        ];
        // One that passes whole is the same for all.
        let same = whole
            || header.first_commit_lsn > self.options.start
                && !own.into_iter().any(|flag| header.flags.contains(flag))
                && matches!(self.transaction, Transaction::None)
                && !self.by_position
                && self.prepared.is_none()
                && self.options.end.is_none()
                && !self.fails_on_rows()
                && self.lanes_are_announced()
                && !self.walk_always;
        let mark = if same { out.mark(block)? } else { return None };
        Some((Arc::clone(family), mark))
    }

    /// Whether the connection knows all relations that are sent.
    fn lanes_are_announced(&self) -> bool {
        let mut sent = self.lanes.iter().filter(|lane| !lane.passes.is_empty());
        sent.all(|lane| lane.announced)
    }
}
