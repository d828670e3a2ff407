//! Filters, compiled once for all subscribers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use row_filter::{Compiled, Environment, FilterColumn, FilterSource, Guard, compile_any};
use storage_format::catalog::RowFilterText;

use super::index::Budget;
use super::{Column, Counts, Relation};

/// Filters that are not in use any more are forgotten when there are so many.
const FORGET_AT: usize = 1024;

/// The filters of one relation and action, united.
#[derive(Debug)]
pub struct Filter {
    pub(super) compiled: Compiled,
    /// For PostgreSQL.
    pub(super) sql: String,
    pub(super) columns: Vec<Column>,
    pub(super) counters: Arc<Counters>,
}

/// What all filters of a fanout count together.
#[derive(Debug, Default)]
pub(super) struct Counters {
    native_rows: AtomicU64,
    passed_over: AtomicU64,
    pub(super) budget: Arc<Budget>,
}

impl Counters {
    /// Rows that were judged here, and rows that an index answered for.
    pub(super) fn add(&self, native: u64, passed_over: u64) {
        self.native_rows.fetch_add(native, Ordering::Relaxed);
        self.passed_over.fetch_add(passed_over, Ordering::Relaxed);
    }
}

impl Filter {
    /// Why it is not evaluated here.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match &self.compiled {
            Compiled::Postgres { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// What a row must have to pass.
    pub(super) const fn guard(&self) -> Option<&Guard> {
        match &self.compiled {
            Compiled::Native(program) => program.guard(),
            Compiled::Postgres { guard, .. } => guard.as_ref(),
            Compiled::Fails(_) => None,
        }
    }

    /// Columns that PostgreSQL needs, as indexes into those of the relation.
    pub(super) fn needed(&self) -> &[usize] {
        match &self.compiled {
            Compiled::Postgres { columns, .. } => columns,
            _ => &[],
        }
    }
}

/// What makes two filters the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    texts: Vec<(String, String)>,
    columns: Vec<(i16, String, u32, u32)>,
    environment: Environment,
}

/// Filters in use.
#[derive(Debug, Default)]
pub(super) struct Cache {
    filters: Mutex<HashMap<Key, Weak<Filter>>>,
    counters: Arc<Counters>,
}

impl Cache {
    pub(super) fn compile(&self, relation: &Relation, texts: &[&RowFilterText]) -> Arc<Filter> {
        let key = Key {
            texts: texts
                .iter()
                .map(|text| (text.tree.clone(), text.sql.clone()))
                .collect(),
            columns: relation
                .columns
                .iter()
                .map(|one| (one.attribute, one.name.clone(), one.type_oid, one.collation))
                .collect(),
            environment: relation.environment,
        };
        let mut filters = self.filters.lock();
        if let Some(filter) = filters.get(&key).and_then(Weak::upgrade) {
            return filter;
        }
        if filters.len() >= FORGET_AT {
            filters.retain(|_, filter| filter.strong_count() > 0);
        }
        let filter = Arc::new(compile(relation, texts, Arc::clone(&self.counters)));
        filters.insert(key, Arc::downgrade(&filter));
        filter
    }

    pub(super) fn counts(&self) -> Counts {
        let filters = self.filters.lock();
        let used = filters.values().filter_map(Weak::upgrade);
        let (postgres, native): (Vec<_>, Vec<_>) =
            used.partition(|filter| filter.reason().is_some());
        let count = |filters: Vec<Arc<Filter>>| u64::try_from(filters.len()).unwrap_or(u64::MAX);
        Counts {
            native_rows: self.counters.native_rows.load(Ordering::Relaxed),
            index_rows: self.counters.passed_over.load(Ordering::Relaxed),
            indexed_rows: self.counters.budget.rows(),
            native_filters: count(native),
            postgres_filters: count(postgres),
            ..Counts::default()
        }
    }
}

fn compile(relation: &Relation, texts: &[&RowFilterText], counters: Arc<Counters>) -> Filter {
    let columns: Vec<FilterColumn<'_>> = relation
        .columns
        .iter()
        .map(|column| FilterColumn {
            attribute: column.attribute,
            name: &column.name,
            type_oid: column.type_oid,
            collation: column.collation,
        })
        .collect();
    let sources: Vec<FilterSource<'_>> = texts
        .iter()
        .map(|text| FilterSource {
            tree: &text.tree,
            columns: &columns,
            environment: relation.environment,
        })
        .collect();
    let compiled = compile_any(&sources);
    let each: Vec<String> = texts.iter().map(|text| format!("({})", text.sql)).collect();
    let sql = each.join(" OR ");
    if let Compiled::Postgres { reason, .. } = &compiled {
        tracing::info!(
            filter = sql,
            reason,
            "a row filter is evaluated by PostgreSQL"
        );
    }
    Filter {
        compiled,
        sql,
        columns: relation.columns.clone(),
        counters,
    }
}
