//! Rows that PostgreSQL has to judge, and its verdicts.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use row_filter::{ColumnView, FilterError, Scratch, TupleView};

use super::Filter;

/// Most rows, and most bytes of values, that are asked about at once.
const ROWS_MAX: usize = 2000;
const BYTES_MAX: usize = 1 << 20;

/// A row of the block at hand: its entry's number, and whether it is the new row of it.
pub(super) type Key = (u32, bool);

/// Rows to be judged, by filter, each filter's in the order of the log.
#[derive(Debug, Default)]
pub struct Asks {
    pub(super) groups: Vec<Group>,
    rows: usize,
    bytes: usize,
    /// Never contended: asks have one owner. The lock lets that owner be shared between threads.
    pub(super) scratch: Mutex<Scratch>,
}

/// Rows that one filter judges.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) filter: Arc<Filter>,
    pub(super) keys: Vec<Key>,
    /// For each column that the filter needs, the rows' values.
    pub(super) columns: Vec<Vec<Option<Box<[u8]>>>>,
}

impl Asks {
    /// Whether it is time to ask.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.rows >= ROWS_MAX || self.bytes >= BYTES_MAX
    }

    /// Whether there is nothing to ask.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// By which filters.
    pub(super) fn filters(&self) -> impl Iterator<Item = &Filter> {
        self.groups.iter().map(|group| &*group.filter)
    }

    pub(super) fn add(
        &mut self,
        filter: &Arc<Filter>,
        key: Key,
        row: &impl TupleView,
    ) -> Result<(), FilterError> {
        let known = self
            .groups
            .iter()
            .position(|group| Arc::ptr_eq(&group.filter, filter));
        let index = known.unwrap_or_else(|| {
            self.groups.push(Group {
                filter: Arc::clone(filter),
                keys: Vec::new(),
                columns: vec![Vec::new(); filter.needed().len()],
            });
            self.groups.len() - 1
        });
        let Some(group) = self.groups.get_mut(index) else {
            return Ok(());
        };
        group.keys.push(key);
        for (column, values) in filter.needed().iter().zip(&mut group.columns) {
            let value = match row.column(*column) {
                ColumnView::Null => None,
                ColumnView::Text(text) => Some(Box::<[u8]>::from(text)),
                ColumnView::Unchanged => return Err(unchanged()),
            };
            self.bytes += value.as_deref().map_or(0, <[u8]>::len) + 4;
            values.push(value);
        }
        self.rows += 1;
        Ok(())
    }
}

fn unchanged() -> FilterError {
    FilterError {
        sqlstate: "XX000".into(),
        message: "a row filter reads an unchanged TOAST value that is not in the log".into(),
    }
}

/// What PostgreSQL has said of rows of the block at hand.
#[derive(Debug, Default)]
pub struct Verdicts {
    known: HashMap<Key, Result<bool, FilterError>>,
}

impl Verdicts {
    /// The block is done.
    pub fn clear(&mut self) {
        self.known.clear();
    }

    pub(super) fn get(&self, key: Key) -> Option<Result<bool, FilterError>> {
        self.known.get(&key).cloned()
    }

    pub(super) fn set(&mut self, key: Key, verdict: Result<bool, FilterError>) {
        self.known.insert(key, verdict);
    }
}
