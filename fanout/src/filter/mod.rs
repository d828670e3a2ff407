//! Row filters of a subscriber's publications, on rows of the log.
//!
//! | module | what |
//! |---|---|
//! | `relation` | what a filter's columns are, and where they are in the log's rows |
//! | `compiled` | filters of one relation and action, compiled once for all subscribers |
//! | `row` | the rows of a change in the log |
//! | `judge` | what becomes of a row: `pgoutput_row_filter` |
//! | `index` | which rows of a block a filter can pass, without looking at the others |
//! | `paths` | which way the rows of one subscriber went |
//! | `asks` | rows that PostgreSQL has to judge, and its verdicts |
//! | `postgres` | PostgreSQL's evaluation, in batches on a few connections |
//! | `sql` | the statement that does it |
//!
//! The package `row-filter` evaluates most filters on the row's bytes. The others are evaluated by the source:
//! [`RowFilters::judge`] then answers [`FilterStop::Ask`] until the row's verdict is known. Who walks through a block
//! stops there, collects that row and those behind it ([`RowFilters::ask`]), has them judged together
//! ([`Filters::resolve`], which waits, and holds up nobody else), and goes on.

mod asks;
mod compiled;
mod index;
mod judge;
mod paths;
mod postgres;
mod relation;
mod row;
mod sql;

use std::sync::Arc;

pub use asks::{Asks, Verdicts};
pub use compiled::Filter;
pub use index::Sorted;
pub(crate) use index::{Awaited, Found, KeyReader, is_row};
pub use judge::{FilterStop, Judge, Judgement, RowBytes, RowFilters};
pub use paths::Paths;
pub use postgres::EvaluateError;
pub use relation::{Column, Relation};
pub use row::{Row, Rows};

use compiled::Cache;
use postgres::Evaluator;
use storage_format::catalog::RowFilterText;

/// What all subscribers of a fanout share. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Filters {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    cache: Cache,
    evaluator: Evaluator,
}

/// How many rows were judged, and by whom. An UPDATE may count twice: its old row and its new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Here.
    pub native_rows: u64,
    /// By PostgreSQL.
    pub postgres_rows: u64,
    /// By an index of a block, all at once.
    pub index_rows: u64,
    /// Rows that were put into indexes, once for all subscribers.
    pub indexed_rows: u64,
    /// Statements that PostgreSQL was asked.
    pub postgres_batches: u64,
    /// Filters in use that are evaluated here.
    pub native_filters: u64,
    /// Filters in use that PostgreSQL evaluates.
    pub postgres_filters: u64,
}

impl Default for Filters {
    /// Without a source: what can't be evaluated here can't be evaluated.
    fn default() -> Self {
        Self::with_evaluator(Evaluator::new(None))
    }
}

impl Filters {
    /// With this source to ask what can't be evaluated here.
    #[must_use]
    pub fn new(source: service::config::Source) -> Self {
        Self::with_evaluator(Evaluator::new(Some(source)))
    }

    fn with_evaluator(evaluator: Evaluator) -> Self {
        Self {
            inner: Arc::new(Inner {
                cache: Cache::default(),
                evaluator,
            }),
        }
    }

    /// The filters of a relation for INSERT, UPDATE and DELETE; an action without any passes. Several of one action
    /// are united by OR in the order given.
    #[must_use]
    pub fn of(&self, relation: &Relation, by_action: [&[&RowFilterText]; 3]) -> RowFilters {
        let compile = |texts: &[&RowFilterText]| {
            (!texts.is_empty()).then(|| self.inner.cache.compile(relation, texts))
        };
        RowFilters::new(relation, by_action.map(compile))
    }

    /// Has PostgreSQL judge rows. Tries again for a while if the source is away.
    pub async fn resolve(&self, asks: &Asks) -> Result<Verdicts, EvaluateError> {
        self.inner.evaluator.resolve(asks).await
    }

    /// How many rows took which path.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = self.inner.cache.counts();
        self.inner.evaluator.count(&mut counts);
        counts
    }
}
