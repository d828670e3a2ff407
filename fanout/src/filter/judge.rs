//! What becomes of a row.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use row_filter::{ColumnView, Compiled, FilterError, Guard, Scratch, TupleView};
use storage_format::block::Block;
use storage_format::record::RecordKind;

use super::compiled::Counters;
use super::index::{Awaited, IndexKey, Places, Sorted};
use super::{Asks, Filter, Paths, Relation, Verdicts};
use crate::selection::Actions;

/// The filters of a relation, by action.
#[derive(Clone, Debug)]
pub struct RowFilters {
    /// Of INSERT, UPDATE and DELETE.
    by_action: [Option<Arc<Filter>>; 3],
    /// Where each column of the relation is in the log's rows.
    places: Arc<[Option<u16>]>,
}

/// A row in its message: where its columns are, each with the byte that says its kind.
#[derive(Clone, Copy, Debug)]
pub struct RowBytes<'a> {
    /// The message.
    pub payload: &'a [u8],
    /// The columns.
    pub columns: &'a [Range<usize>],
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing.
    Drop,
    /// The change as it is.
    Pass,
    /// An INSERT of the new row in place of an UPDATE. Its unchanged TOASTed columns are those of the old row, if
    /// that has them.
    Insert,
    /// A DELETE of the old row in place of an UPDATE.
    Delete,
}

/// Why there is no judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterStop {
    /// The filter fails for this row: the stream ends here with this error.
    Error(FilterError),
    /// PostgreSQL has not said yet.
    Ask,
}

impl From<FilterError> for FilterStop {
    fn from(error: FilterError) -> Self {
        Self::Error(error)
    }
}

/// One subscriber's means of judging: memory, and what PostgreSQL has said of the block at hand.
#[derive(Debug, Default)]
pub struct Judge {
    /// Never contended: a judge has one owner. The lock lets that owner be shared between threads.
    scratch: Mutex<Scratch>,
    /// Of rows of the block at hand.
    pub verdicts: Verdicts,
    /// Rows of the block at hand that were judged here, and where they are added up when it ends: all subscribers share
    /// that one number, which a row alone should not fight for.
    native_rows: u64,
    /// The same of rows that an index answered for.
    passed_over: u64,
    /// The same of rows that PostgreSQL judged.
    source_rows: u64,
    counters: Option<Arc<Counters>>,
    /// Of this subscriber alone.
    pub paths: Arc<Paths>,
}

impl Judge {
    /// Forgets what was said of the block at hand.
    pub fn end_block(&mut self) {
        self.verdicts.clear();
        if self.native_rows + self.passed_over + self.source_rows == 0 {
            return;
        }
        self.paths
            .add(self.native_rows, self.passed_over, self.source_rows);
        self.source_rows = 0;
        if let Some(counters) = &self.counters {
            counters.add(self.native_rows, self.passed_over);
        }
        (self.native_rows, self.passed_over) = (0, 0);
    }

    /// So many rows were not looked at since none of them passes.
    pub const fn pass_over(&mut self, rows: u64) {
        self.passed_over += rows;
    }

    fn count_native(&mut self, filter: &Filter) {
        self.native_rows += 1;
        self.count_with(filter);
    }

    fn count_with(&mut self, filter: &Filter) {
        if self.counters.is_none() {
            self.counters = Some(Arc::clone(&filter.counters));
        }
    }
}

const fn action(kind: RecordKind) -> usize {
    match kind {
        RecordKind::Insert => 0,
        RecordKind::Update => 1,
        _ => 2,
    }
}

impl PartialEq for RowFilters {
    /// Equal filters are compiled once, so identity is equality.
    fn eq(&self, other: &Self) -> bool {
        let same = |one: &Option<Arc<Filter>>, two: &Option<Arc<Filter>>| match (one, two) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (one, two) => one.is_none() && two.is_none(),
        };
        let mut pairs = self.by_action.iter().zip(&other.by_action);
        self.places == other.places && pairs.all(|(one, two)| same(one, two))
    }
}

impl Eq for RowFilters {}

impl RowFilters {
    pub(super) fn new(relation: &Relation, by_action: [Option<Arc<Filter>>; 3]) -> Self {
        let places = relation.columns.iter().map(|column| column.index);
        Self {
            by_action,
            places: places.collect(),
        }
    }

    fn of(&self, kind: RecordKind) -> Option<&Arc<Filter>> {
        self.by_action.get(action(kind)).and_then(Option::as_ref)
    }

    /// Whether one of them has a guard, by which an index may tell what passes.
    #[must_use]
    pub fn are_guarded(&self) -> bool {
        let mut filters = self.by_action.iter().flatten();
        filters.any(|filter| filter.guard().is_some())
    }

    /// Whether the source has to judge some rows.
    #[must_use]
    pub fn needs_postgresql(&self) -> bool {
        let mut filters = self.by_action.iter().flatten();
        filters.any(|filter| filter.reason().is_some())
    }

    /// Whether changes of a kind are judged.
    #[must_use]
    pub fn judges(&self, kind: RecordKind) -> bool {
        self.of(kind).is_some()
    }

    /// Judges the change at `place` of its block, whichever of its rows it has.
    pub fn judge(
        &self,
        kind: RecordKind,
        place: u32,
        old: Option<RowBytes<'_>>,
        new: Option<RowBytes<'_>>,
        judge: &mut Judge,
    ) -> Result<Judgement, FilterStop> {
        let Some(filter) = self.of(kind) else {
            return Ok(Judgement::Pass);
        };
        let mut passes = |row: View<'_>, is_new| verdict(filter, row, (place, is_new), judge);
        // One row decides alone.
        let (old, new) = match (old, new) {
            (Some(old), Some(new)) => (old, new),
            (old, new) => {
                let row = new.or(old).ok_or_else(unreadable)?;
                let passes = passes(self.view(row, None), new.is_some())?;
                return Ok(if passes {
                    Judgement::Pass
                } else {
                    Judgement::Drop
                });
            }
        };
        let before = passes(self.view(old, None), false)?;
        let after = passes(self.view(new, Some(old)), true)?;
        Ok(match (before, after) {
            (false, false) => Judgement::Drop,
            (false, true) => Judgement::Insert,
            (true, false) => Judgement::Delete,
            (true, true) => Judgement::Pass,
        })
    }

    /// Adds the places of those rows of a relation that may pass, as far as an index tells. False if it does not: then
    /// any may. `relation` is its number in the block, `passes` what is published of it.
    pub fn candidates(
        &self,
        block: &Block,
        relation: u16,
        passes: Actions,
        judge: &mut Judge,
        found: &mut Vec<u32>,
    ) -> bool {
        let before = found.len();
        let all = self.guards(passes).and_then(|filters| {
            let mut last: Option<&Arc<Filter>> = None;
            for filter in filters.into_iter().flatten() {
                if last.is_none_or(|last| !Arc::ptr_eq(last, filter)) {
                    self.look_up(block, relation, filter, found)?;
                }
                last = Some(filter);
            }
            last
        });
        let Some(filter) = all else {
            found.truncate(before);
            return false;
        };
        judge.count_with(filter);
        true
    }

    /// The filters of what is published, if each has a guard.
    fn guards(&self, passes: Actions) -> Option<[Option<&Arc<Filter>>; 3]> {
        let kinds = [RecordKind::Insert, RecordKind::Update, RecordKind::Delete];
        let mut guarded = [None; 3];
        for (kind, place) in kinds.into_iter().zip(&mut guarded) {
            if passes.contains(Actions::of(kind)) {
                *place = Some(self.of(kind).filter(|filter| filter.guard().is_some())?);
            }
        }
        Some(guarded)
    }

    /// What a row must have to pass, in any of these; `None` if any row may. `passes` is what is published.
    pub(crate) fn awaited(&self, passes: Actions) -> Option<Vec<Awaited>> {
        let mut all: Vec<Awaited> = Vec::new();
        for filter in self.guards(passes)?.into_iter().flatten() {
            let guard = filter.guard()?;
            for term in guard.terms() {
                let awaited = Awaited {
                    column: self.places.get(term.column()).copied().flatten()?,
                    kind: term.kind(),
                    keys: term.keys().into(),
                    nulls: guard.nulls(),
                };
                if !all.contains(&awaited) {
                    all.push(awaited);
                }
            }
        }
        Some(all)
    }

    fn look_up(
        &self,
        block: &Block,
        relation: u16,
        filter: &Filter,
        found: &mut Vec<u32>,
    ) -> Option<()> {
        let (guard, places) = (filter.guard()?, Places::of(block)?);
        let budget = &filter.counters.budget;
        for term in guard.terms() {
            let column = self.places.get(term.column()).copied().flatten()?;
            let kind = term.kind();
            let key = IndexKey {
                relation,
                column,
                kind,
            };
            if !places.look_up(block, (key, term, guard.nulls()), budget, found) {
                return None;
            }
        }
        Some(())
    }

    /// Where the records of a block are, if there is room to remember it.
    #[must_use]
    pub fn sorted<'b>(&self, block: &'b Block) -> Option<&'b Sorted> {
        let filter = self.by_action.iter().flatten().next()?;
        Places::of(block)?.sorted(block, &filter.counters.budget)
    }

    /// Adds the rows of a change to those that PostgreSQL is asked about, if it has to be.
    pub fn ask(
        &self,
        kind: RecordKind,
        place: u32,
        old: Option<RowBytes<'_>>,
        new: Option<RowBytes<'_>>,
        asks: &mut Asks,
    ) -> Result<(), FilterError> {
        let filter = self.of(kind).filter(|filter| filter.reason().is_some());
        let Some(filter) = filter else {
            return Ok(());
        };
        let before = old.map(|old| (self.view(old, None), false));
        let after = new.map(|new| (self.view(new, old), true));
        for (row, is_new) in [before, after].into_iter().flatten() {
            if !is_left_out(filter.guard(), &row, asks.scratch.get_mut()) {
                asks.add(filter, (place, is_new), &row)?;
            }
        }
        Ok(())
    }

    fn view<'a>(&'a self, row: RowBytes<'a>, old: Option<RowBytes<'a>>) -> View<'a> {
        View {
            places: &self.places,
            row,
            old,
        }
    }
}

fn verdict(
    filter: &Filter,
    row: View<'_>,
    key: (u32, bool),
    judge: &mut Judge,
) -> Result<bool, FilterStop> {
    match &filter.compiled {
        Compiled::Native(program) => {
            judge.count_native(filter);
            let verdict = program.eval(&row, judge.scratch.get_mut())?;
            Ok(verdict == Some(true))
        }
        Compiled::Fails(error) => Err(error.clone().into()),
        Compiled::Postgres { guard, .. } => match judge.verdicts.get(key) {
            Some(Ok(passes)) => {
                judge.source_rows += 1;
                Ok(passes)
            }
            Some(Err(error)) => Err(FilterStop::Error(error)),
            None if is_left_out(guard.as_ref(), &row, judge.scratch.get_mut()) => {
                judge.count_native(filter);
                Ok(false)
            }
            None => Err(FilterStop::Ask),
        },
    }
}

/// Whether it is known without PostgreSQL that a row does not pass.
fn is_left_out(guard: Option<&Guard>, row: &View<'_>, scratch: &mut Scratch) -> bool {
    guard.is_some_and(|guard| !guard.admits(row, scratch))
}

fn unreadable() -> FilterError {
    FilterError {
        sqlstate: "XX001".into(),
        message: "a change in the log has no row".into(),
    }
}

/// A row as a filter sees it.
pub(super) struct View<'a> {
    places: &'a [Option<u16>],
    row: RowBytes<'a>,
    /// Where unchanged TOASTed values are, if anywhere.
    old: Option<RowBytes<'a>>,
}

impl TupleView for View<'_> {
    fn column(&self, index: usize) -> ColumnView<'_> {
        let place = self.places.get(index).copied().flatten();
        let Some(place) = place.map(usize::from) else {
            return ColumnView::Unchanged;
        };
        value_of(self.row, self.old, place)
    }
}

/// The column at `place` of a row. An unchanged TOASTed value is that of `old`, if that has it.
pub(super) fn value_of<'a>(
    row: RowBytes<'a>,
    old: Option<RowBytes<'a>>,
    place: usize,
) -> ColumnView<'a> {
    let own = value(row, place);
    if own != ColumnView::Unchanged {
        return own;
    }
    match old.map(|old| value(old, place)) {
        Some(ColumnView::Text(text)) => ColumnView::Text(text),
        _ => ColumnView::Unchanged,
    }
}

fn value(row: RowBytes<'_>, place: usize) -> ColumnView<'_> {
    let range = row.columns.get(place).cloned();
    let bytes = range.and_then(|range| row.payload.get(range));
    match bytes.and_then(<[u8]>::split_first) {
        Some((b'n', _)) => ColumnView::Null,
        // A length of four bytes, which the range has counted already.
        Some((b't', value)) => ColumnView::Text(value.get(4..).unwrap_or_default()),
        _ => ColumnView::Unchanged,
    }
}
