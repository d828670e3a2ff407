//! Which records of a block a subscriber's walk stops at, if row filters leave out most of them.

use storage_format::block::{Block, BlockFlags};
use storage_format::record::RecordKind;

use super::emitter::{Emitter, Lane};
use crate::filter::Sorted;
use crate::selection::Actions;

/// Places of a block, in order, each once. Kept from block to block for its memory.
pub(super) type Plan = Vec<u32>;

/// Flags of blocks in which a transaction without a row that passes leaves no trace.
const PLAIN: [BlockFlags; 3] = [
    BlockFlags::CONTINUES,
    BlockFlags::OPEN_END,
    BlockFlags::HAS_ORIGIN,
];

impl Emitter {
    /// Fills in the places at which the walk through a block stops: every record that is no row, and those rows that may
    /// pass; of a block of nothing but rows only the transactions that have one. False if all have to be looked at.
    pub(super) fn plan(&mut self, block: &Block) -> bool {
        let guarded = |lane: &&Lane| lane.filters_rows();
        let Some(shape) = self
            .lanes
            .iter()
            .find(guarded)
            .and_then(|one| one.shape.clone())
        else {
            return false;
        };
        let flags = block.header().flags;
        if flags.contains(BlockFlags::HAS_CATALOG) || self.fails_on_rows() {
            return false;
        }
        let sorted = shape.filters.as_ref().and_then(|one| one.sorted(block));
        let Some(sorted) = sorted else {
            return false;
        };
        self.plan.clear();
        if !self.candidates(block, sorted) {
            return false;
        }
        self.plan.sort();
        self.plan.dedup();
        if self.is_plain(block) {
            add_transactions(block, &sorted.others, &mut self.plan);
        } else {
            self.plan.extend(&sorted.others);
        }
        self.plan.sort();
        true
    }

    /// Adds the rows that may pass. False if nothing is won.
    fn candidates(&mut self, block: &Block, sorted: &Sorted) -> bool {
        let Self {
            lanes, plan, judge, ..
        } = self;
        let mut any = false;
        for ((number, lane), rows) in (0..).zip(&*lanes).zip(&*sorted.rows) {
            let passes = lane.passes.restrict(Actions::ROWS);
            if lane.refused.intersects(Actions::ROWS) {
                plan.extend(&**rows);
                continue;
            }
            if passes.is_empty() {
                continue;
            }
            let filters = lane.shape.as_ref().and_then(|one| one.filters.as_ref());
            let before = plan.len();
            let found =
                filters.is_some_and(|one| one.candidates(block, number, passes, judge, plan));
            if found {
                any = true;
                let left = rows.len().saturating_sub(plan.len() - before);
                judge.pass_over(left as u64);
            } else {
                plan.extend(&**rows);
            }
        }
        any
    }

    /// Whether transactions without a row that passes need not be looked at.
    fn is_plain(&self, block: &Block) -> bool {
        let (header, options) = (block.header(), &self.options);
        let mut odd = PLAIN
            .into_iter()
            .fold(header.flags, |flags, plain| flags.without(plain));
        if !options.streaming {
            odd = odd.without(BlockFlags::HAS_STREAMED);
        }
        odd == BlockFlags::NONE && options.end.is_none_or(|end| header.last_commit_lsn < end)
    }
}

/// Adds to rows what stands around them: BEGIN, ORIGIN and COMMIT of their transactions. A transaction that another block
/// began ends here in any case, and one that goes on in the next has begun. `others`: all that is no row.
fn add_transactions(block: &Block, others: &[u32], plan: &mut Plan) {
    let begins = |at: usize| {
        let place = others
            .get(at)
            .and_then(|place| usize::try_from(*place).ok());
        let entry = place.and_then(|place| block.entry(place));
        entry.and_then(|entry| entry.kind()) == Some(RecordKind::Begin)
    };
    let flags = block.header().flags;
    let rows = plan.len();
    // Numbers of others that are in the plan already.
    let mut done = 0;
    if flags.contains(BlockFlags::CONTINUES) && !others.is_empty() && !begins(0) {
        plan.extend(others.first());
        done = 1;
    }
    for at in 0..rows {
        let Some(&row) = plan.get(at) else { break };
        let behind = others.partition_point(|other| *other < row);
        if behind < done {
            continue;
        }
        let mut first = behind;
        while first > done && !begins(first) {
            first -= 1;
        }
        plan.extend(
            others
                .get(first..=behind)
                .or(others.get(first..))
                .unwrap_or_default(),
        );
        done = behind + 1;
    }
    if flags.contains(BlockFlags::OPEN_END) {
        let mut first = others.len();
        while first > done && !begins(first) {
            first -= 1;
        }
        plan.extend(others.get(first..).unwrap_or_default());
    }
}
