//! The state of one subscriber's way through the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use pg_proto::{Lsn, Oid, Xid};
use storage_format::block::{Block, BlockFlags, BlockHeader, BlockKind};
use storage_format::catalog::Catalog;
use storage_format::record::{PreparedRecord, RecordKind};

use super::announced::{Announced, Descriptions};
use super::definition::OwnDefinition;
use super::early::EarlyTransaction;
use super::family::Family;
use super::plan::Plan;
use super::rewrite::{Rewriter, RowError};
use super::suspend::Suspended;
use super::transaction::Transaction;
use super::versions::Versions;
use super::walk::Walk;
use super::{EmitOptions, MissingPublication, Output};
use crate::error::StreamError;
use crate::filter::{Asks, Judge, Paths};
use crate::selection::{Actions, Decision, Refusal, Selection, Shape};
use crate::versions::VersionsFile;

/// What was handed over in one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Rows, truncates and messages.
    pub changes: u64,
    /// COMMITs.
    pub commits: u64,
    /// To be told to the subscriber; empty as a rule.
    pub warnings: Vec<Warning>,
}

/// Something that a subscriber should know and that does not end its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The publication does not exist here; PostgreSQL 18 says `skipped loading publication "x"`, SQLSTATE 55000.
    PublicationSkipped(String),
}

/// Whether the stream goes on behind a block.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It does.
    On(Step),
    /// [`EmitOptions::end`] was reached in the block; this was handed over before it.
    End(Step),
    /// It does not before PostgreSQL has judged these rows: then [`Emitter::resume`].
    Ask(Asks),
    /// It does not before the staged file of this transaction is read to its end: then [`Emitter::resume`].
    Unfinished(Xid),
}

/// What holds for one relation of the block at hand.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) oid: Oid,
    pub(super) passes: Actions,
    pub(super) refused: Actions,
    pub(super) refusal: Option<Arc<Refusal>>,
    /// How rows change on their way.
    pub(super) shape: Option<Arc<Shape>>,
    /// Whether the connection knows the relation as it is now.
    pub(super) announced: bool,
}

impl Lane {
    fn new(oid: Oid, decision: &Decision, announced: &mut Announced, catalog: &Catalog) -> Self {
        Self {
            oid,
            passes: decision.passes,
            refused: decision.refused,
            refusal: decision.refusal.clone(),
            shape: decision.shape.clone(),
            announced: announced.is_current(oid, catalog, decision.shape.as_ref()),
        }
    }

    /// Whether an index may tell which rows pass.
    pub(super) fn filters_rows(&self) -> bool {
        let filters = self.shape.as_ref().and_then(|shape| shape.filters.as_ref());
        self.passes.intersects(Actions::ROWS) && filters.is_some_and(|one| one.are_guarded())
    }

    /// Whether every row is sent as it lies in the log, with nothing before it.
    pub(super) const fn passes_whole(&self) -> bool {
        self.announced && self.shape.is_none() && self.passes.contains(Actions::ROWS)
    }
}

/// One subscriber's state: its options, the catalog in force, the relations that its connection knows, the
/// transaction at hand.
#[derive(Debug)]
pub(crate) struct Emitter {
    pub(super) options: EmitOptions,
    pub(super) selection: Selection,
    pub(super) catalog: Arc<Catalog>,
    /// The catalog with the publications that judge the change at hand.
    pub(super) view: Arc<Catalog>,
    /// What the transaction at hand has made of the publications.
    pub(super) own: Option<OwnDefinition>,
    /// Whether each change of the block at hand is judged by the publications of its own position.
    pub(super) by_position: bool,
    /// Whether the block says so.
    pub(super) older: bool,
    /// Versions of Decant's own publications beside the log.
    pub(super) versions: Versions,
    /// It was said that a change is older than all definitions that are known.
    pub(super) told_unknown: bool,
    /// Of the transaction at hand.
    pub(super) commit_lsn: Lsn,
    pub(super) announced: Descriptions,
    /// How the transaction at hand was prepared, if it is sent as such with its commit.
    pub(super) prepared: Option<Box<PreparedRecord>>,
    pub(super) transaction: Transaction,
    /// One for each relation of the block at hand, in its order.
    pub(super) lanes: Vec<Lane>,
    pub(super) rewriter: Rewriter,
    pub(super) judge: Judge,
    pub(super) suspended: Option<Suspended>,
    /// Where the walk through the block at hand stops, if not at every record.
    pub(super) plan: Plan,
    /// Those who asked for the same.
    pub(super) family: Option<Arc<Family>>,
    /// What it goes through is the staging of a transaction that has not ended.
    pub(super) is_early: bool,
    /// Transactions that are being sent before their end.
    pub(super) early: BTreeMap<Xid, Box<EarlyTransaction>>,
    position: Lsn,
    pub(super) warned: Vec<String>,
    /// For tests, to compare: no block is handed on whole.
    pub(super) walk_always: bool,
}

impl Emitter {
    /// A subscriber that begins where the log is at `position`.
    pub(crate) fn new(
        options: EmitOptions,
        selection: Selection,
        catalog: Arc<Catalog>,
        position: Lsn,
    ) -> Self {
        Self {
            options,
            selection,
            view: Arc::clone(&catalog),
            catalog,
            own: None,
            by_position: false,
            older: false,
            told_unknown: false,
            versions: Versions::default(),
            commit_lsn: Lsn::INVALID,
            announced: Descriptions::default(),
            prepared: None,
            transaction: Transaction::None,
            lanes: Vec::new(),
            rewriter: Rewriter::default(),
            judge: Judge::default(),
            suspended: None,
            plan: Plan::default(),
            family: None,
            is_early: false,
            early: BTreeMap::new(),
            position,
            warned: Vec::new(),
            walk_always: false,
        }
    }

    /// Shares what is made of a block with others.
    pub(crate) fn with_family(mut self, family: Arc<Family>) -> Self {
        self.family = Some(family);
        self
    }

    /// Judges by versions of Decant's own publications that the log does not state, too.
    pub(crate) fn with_versions(mut self, file: VersionsFile) -> Self {
        self.versions = Versions::new(file, self.selection.spec());
        self.judge_by_current();
        self
    }

    /// Which way the rows went that filters judged.
    pub(crate) const fn filter_paths(&self) -> &Arc<Paths> {
        &self.judge.paths
    }

    /// Every transaction whose commit is below this was handed over whole, as far as it passes.
    pub(crate) const fn position(&self) -> Lsn {
        self.position
    }

    /// The log is read from `start` on, which may have moved: the cursor looks its place up anew after a restart of
    /// the decoder, and what lies before it was handed over already.
    pub(crate) fn set_start(&mut self, start: Lsn) {
        self.options.start = self.options.start.max(start);
    }

    /// The log was followed to `position` without anything that passes.
    pub(crate) fn passed(&mut self, position: Lsn) {
        self.position = self.position.max(position);
    }

    /// Whether [`EmitOptions::end`] is behind.
    pub(crate) fn ended(&self) -> bool {
        self.options.end.is_some_and(|end| self.position >= end)
    }

    /// Where the transaction commits whose BEGIN was handed over and whose COMMIT was not.
    pub(crate) const fn open_transaction(&self) -> Option<Lsn> {
        match self.transaction {
            Transaction::Sent { commit_lsn } => Some(commit_lsn),
            _ => None,
        }
    }

    /// Hands over what passes of a block. `catalog` is the version as of its start.
    pub(crate) fn block(
        &mut self,
        block: &Arc<Block>,
        catalog: &Arc<Catalog>,
        out: &mut impl Output,
    ) -> Result<Outcome, StreamError> {
        let header = block.header();
        self.catalog = Arc::clone(catalog);
        if header.kind != BlockKind::Data || self.is_foreign(header) {
            self.judge_by_current();
            self.passed(header.end_lsn);
            return Ok(Outcome::On(self.step()));
        }
        self.enter(header)?;
        self.announced.clear_fresh();
        self.enter_definitions(block);
        self.open_lanes(block.relations());
        let whole = self.passes_whole(block) && !self.walk_always;
        let shared = if whole && !out.makes_its_own() {
            None
        } else {
            self.sharing(block, whole, out)
        };
        if let Some((family, mark)) = shared {
            return self.walk_shared(block, &family, (mark, whole), out);
        }
        let outcome = if whole {
            Ok(Outcome::On(self.hand_over(block, out)))
        } else {
            self.walk(block, out)
        };
        self.leave(block, outcome, out)
    }

    pub(super) fn walk(
        &mut self,
        block: &Block,
        out: &mut impl Output,
    ) -> Result<Outcome, StreamError> {
        if !self.by_position && self.plan(block) {
            Walk::new(self, block, out).run_planned()
        } else {
            Walk::new(self, block, out).run()
        }
    }

    pub(super) fn leave(
        &mut self,
        block: &Block,
        outcome: Result<Outcome, StreamError>,
        out: &mut impl Output,
    ) -> Result<Outcome, StreamError> {
        // What precedes an error is sent.
        out.end_block(block);
        self.judge.end_block();
        if !self.early.is_empty() {
            self.tell_early();
        }
        let outcome = outcome?;
        if let Outcome::On(_) = outcome {
            self.passed(block.header().end_lsn);
            // What comes next is looked at under them.
            self.judge_by_current();
        }
        Ok(outcome)
    }

    /// Why a row can't be sent.
    pub(super) fn row_error(&self, error: RowError) -> StreamError {
        match error {
            RowError::Read(source) => StreamError::Unreadable {
                position: self.position,
                source,
            },
            RowError::Filter(error) => StreamError::RowFilter(error),
        }
    }

    /// Whether anything of a block can matter, judged without its body. A block that changes the catalog always
    /// does. No transaction may lose its BEGIN or COMMIT: a block is needed if it holds one that this subscriber has
    /// or may get.
    pub(crate) fn needs(&self, header: &BlockHeader, relations: &[Oid]) -> bool {
        if header.kind != BlockKind::Data || header.flags.contains(BlockFlags::HAS_CATALOG) {
            return true;
        }
        if header.last_commit_lsn < self.options.start || self.is_foreign(header) {
            return false;
        }
        if !self.is_judged_by_current(header) {
            return true;
        }
        let continues = header.flags.contains(BlockFlags::CONTINUES);
        let open_end = header.flags.contains(BlockFlags::OPEN_END);
        let inside = continues && open_end && header.first_commit_lsn == header.last_commit_lsn;
        let has_origin = header.flags.contains(BlockFlags::HAS_ORIGIN);
        match &self.transaction {
            Transaction::Skipped | Transaction::Early(..) if inside => return false,
            Transaction::Decided(_) if inside => {
                return has_origin && self.options.local_origin_only;
            }
            // Where it came from counts even if no row beside it does.
            Transaction::Waiting(opening) if has_origin || opening.is_eager() => return true,
            _ => {}
        }
        let has_commit = continues
            && matches!(
                self.transaction,
                Transaction::Sent { .. } | Transaction::Decided(_) | Transaction::Early(..)
            );
        let decides = header.flags.contains(BlockFlags::ENDS_PREPARED)
            && (self.options.two_phase_at.is_some() || !self.early.is_empty());
        let streamed = self.options.streaming && header.flags.contains(BlockFlags::HAS_STREAMED);
        if !inside && (has_commit || open_end || decides || streamed) {
            return true;
        }
        let end_inside = self
            .options
            .end
            .is_some_and(|end| header.last_commit_lsn >= end);
        let messages = self.options.messages && header.flags.contains(BlockFlags::HAS_MESSAGES);
        end_inside || messages || self.fails_on_rows() || self.any_passes(relations)
    }

    /// Applies a record of the catalog in its place. True if anything changed.
    pub(super) fn apply(&mut self, kind: RecordKind, payload: &[u8]) -> Result<bool, StreamError> {
        let changed = Catalog::apply(&mut self.catalog, kind, payload, self.commit_lsn)?;
        if changed {
            self.renew_view();
        }
        Ok(changed)
    }

    /// The source described the relation once more without a change, as it does after `ALTER TABLE ... OWNER`,
    /// `ANALYZE`, `GRANT`. Where it stands a native stream has it, too.
    pub(super) fn repeat(&mut self, relation: Option<Oid>) {
        let Some(oid) = relation.filter(|_| self.options.repeat_relations) else {
            return;
        };
        self.announced.forget(oid);
        for lane in self.lanes.iter_mut().filter(|lane| lane.oid == oid) {
            lane.announced = false;
        }
    }

    /// A streamed transaction begins.
    pub(super) fn enter_stream(&mut self) {
        self.announced.enter_stream();
        self.refresh_lanes();
    }

    /// It ends, if one has begun.
    pub(super) fn leave_stream(&mut self) {
        if self.announced.leave_stream() {
            self.refresh_lanes();
        }
    }

    /// Whether the block is for subscribers of two-phase commit and this is none.
    const fn is_foreign(&self, header: &BlockHeader) -> bool {
        header.flags.contains(BlockFlags::PREPARED) && self.options.two_phase_at.is_none()
    }

    /// Whether any row ends the stream, since a publication is missing.
    pub(super) fn fails_on_rows(&self) -> bool {
        self.options.missing_publication == MissingPublication::Fail
            && !self.selection.missing().is_empty()
    }

    /// An empty step, with what there is to be said about the publications in force.
    pub(super) fn step(&mut self) -> Step {
        let mut step = Step::default();
        if self.options.missing_publication == MissingPublication::Skip {
            for name in self.selection.missing() {
                if !self.warned.contains(name) {
                    self.warned.push(name.clone());
                    step.warnings
                        .push(Warning::PublicationSkipped(name.clone()));
                }
            }
        }
        step
    }

    pub(super) const fn broken(&self, what: &'static str) -> StreamError {
        StreamError::Broken {
            position: self.position,
            what,
        }
    }

    fn open_lanes(&mut self, relations: &[Oid]) {
        self.lanes.clear();
        let announced = self.announced.now();
        for &oid in relations {
            let decision = self.selection.decide(oid, &self.view);
            let lane = Lane::new(oid, decision, announced, &self.view);
            self.lanes.push(lane);
        }
    }

    pub(super) fn refresh_lanes(&mut self) {
        let announced = self.announced.now();
        for lane in &mut self.lanes {
            let decision = self.selection.decide(lane.oid, &self.view);
            *lane = Lane::new(lane.oid, decision, announced, &self.view);
        }
    }

    fn any_passes(&self, relations: &[Oid]) -> bool {
        relations.iter().any(|oid| {
            // What was never decided is looked at once.
            self.selection
                .decided(*oid)
                .is_none_or(|decision| !decision.passes.is_empty() || !decision.refused.is_empty())
        })
    }

    /// From now on no block is handed on whole.
    #[cfg(test)]
    pub(crate) const fn walk_always(&mut self) {
        self.walk_always = true;
    }
}
