//! Which rows of a block a filter can pass.
//!
//! A thousand subscribers, each with `tenant = <its own>`, would each evaluate every row of the table. Instead the rows of
//! a block are indexed by that column once, for all of them, and each looks up its constants: what it does not find
//! it does not look at (`row_filter::Guard` says when that is exact). What it finds is evaluated as ever, so a key may be a
//! hash.
//!
//! An index lives as long as its block is in memory. Indexes of all blocks share a budget; beyond it rows are evaluated one
//! by one, with the same result. A column is indexed when the second filter asks for it: for one alone it is not worth it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use row_filter::{ColumnView, KeyKind, Scratch, Term};
use storage_format::block::{Block, Entry};
use storage_format::record::RecordKind;

use super::Rows;
use super::judge::value_of;

/// Most memory for indexes of blocks.
const BYTES_MAX: usize = 64 << 20;

/// What all indexes of a fanout share.
#[derive(Debug, Default)]
pub(super) struct Budget {
    bytes: AtomicUsize,
    rows: AtomicU64,
}

impl Budget {
    /// Rows that were put into indexes.
    pub(super) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    fn is_spent(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= BYTES_MAX
    }
}

/// A part of the budget, given back when it is dropped.
#[derive(Debug)]
struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Share {
    fn new(budget: &Arc<Budget>, bytes: usize) -> Self {
        budget.bytes.fetch_add(bytes, Ordering::Relaxed);
        Self {
            budget: Arc::clone(budget),
            bytes,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What a row must have for a subscriber to be concerned: one of these keys in a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Awaited {
    /// Of the log's rows.
    pub(crate) column: u16,
    pub(crate) kind: KeyKind,
    pub(crate) keys: Box<[u32]>,
    /// Or a null there.
    pub(crate) nulls: bool,
}

/// What the column at `column` of the rows of a change is.
pub(crate) enum Found {
    Key(u32),
    Null,
    /// It can't be read, or is not there.
    Unknown,
}

/// Reads keys from changes, one after the other, in the same memory.
#[derive(Debug, Default)]
pub(crate) struct KeyReader {
    rows: Rows,
    scratch: Scratch,
}

impl KeyReader {
    /// Goes on to a change; false if it can't be read.
    pub(crate) fn read(&mut self, payload: &[u8]) -> bool {
        self.rows.find(payload).is_ok()
    }

    /// The keys of a column in the old and in the new row of the change that was read.
    pub(crate) fn keys(
        &mut self,
        payload: &[u8],
        column: u16,
        kind: KeyKind,
    ) -> [Option<Found>; 2] {
        let (old, new) = (self.rows.old.bytes(payload), self.rows.new.bytes(payload));
        let column = usize::from(column);
        let before = old.map(|old| value_of(old, None, column));
        let after = new.map(|new| value_of(new, old, column));
        [before, after].map(|value| {
            Some(match value? {
                ColumnView::Null => Found::Null,
                ColumnView::Unchanged => Found::Unknown,
                ColumnView::Text(text) => kind
                    .key(text, &mut self.scratch)
                    .map_or(Found::Unknown, Found::Key),
            })
        })
    }
}

/// Where the records of a block are, by what they are, and the indexes of its rows.
#[derive(Debug, Default)]
pub(super) struct Places {
    sorted: OnceLock<Sorted>,
    indexes: RwLock<HashMap<IndexKey, Slot>>,
}

/// The places of a block's records, each in order.
#[derive(Debug)]
pub struct Sorted {
    /// Of all that are no rows.
    pub others: Box<[u32]>,
    /// Of the rows of each relation, as the block numbers them.
    pub rows: Box<[Box<[u32]>]>,
    _share: Share,
}

/// What is indexed: a column of a relation, as the block numbers both, as keys of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct IndexKey {
    pub(super) relation: u16,
    pub(super) column: u16,
    pub(super) kind: KeyKind,
}

#[derive(Debug)]
enum Slot {
    /// One has asked, and looked at all rows itself.
    Asked,
    Ready(Index),
}

/// Rows by the keys that one of their columns has, in their old or their new row.
#[derive(Debug)]
struct Index {
    /// Key and place, in order.
    keys: Box<[(u32, u32)]>,
    /// Rows with a null.
    nulls: Box<[u32]>,
    /// Rows in which the value can't be read, or is not there.
    unknown: Box<[u32]>,
    _share: Share,
}

impl Places {
    /// Those of a block.
    #[must_use]
    pub(super) fn of(block: &Block) -> Option<&Self> {
        block.derived(Self::default)
    }

    /// The records by what they are; `None` if there is no room for that.
    pub(super) fn sorted(&self, block: &Block, budget: &Arc<Budget>) -> Option<&Sorted> {
        if self.sorted.get().is_none() && budget.is_spent() {
            return None;
        }
        Some(self.sorted.get_or_init(|| Sorted::new(block, budget)))
    }

    /// Adds the places of rows for which `term` may hold, also if its column is null if `nulls`. False if there is no
    /// index to tell.
    pub(super) fn look_up(
        &self,
        block: &Block,
        (key, term, nulls): (IndexKey, &Term, bool),
        budget: &Arc<Budget>,
        found: &mut Vec<u32>,
    ) -> bool {
        if let Some(Slot::Ready(index)) = self.indexes.read().get(&key) {
            index.look_up(term.keys(), nulls, found);
            return true;
        }
        let Some(sorted) = self.sorted(block, budget) else {
            return false;
        };
        let mut indexes = self.indexes.write();
        let slot = match indexes.get(&key) {
            None => {
                indexes.insert(key, Slot::Asked);
                return false;
            }
            Some(Slot::Asked) if budget.is_spent() => return false,
            Some(Slot::Asked) => {
                let rows = sorted.rows.get(usize::from(key.relation));
                let rows = rows.map(AsRef::as_ref).unwrap_or_default();
                Slot::Ready(Index::new(block, key, rows, budget))
            }
            Some(Slot::Ready(index)) => {
                index.look_up(term.keys(), nulls, found);
                return true;
            }
        };
        if let Slot::Ready(index) = &slot {
            index.look_up(term.keys(), nulls, found);
        }
        indexes.insert(key, slot);
        true
    }
}

impl Sorted {
    fn new(block: &Block, budget: &Arc<Budget>) -> Self {
        let mut others = Vec::new();
        let mut rows = vec![Vec::new(); block.relations().len()];
        for (place, entry) in (0..).zip(block.entries()) {
            let list = match rows.get_mut(usize::from(entry.relation)) {
                Some(rows) if is_row(&entry) => rows,
                _ => &mut others,
            };
            list.push(place);
        }
        let entries = block.entries().len();
        let bytes = entries * size_of::<u32>() + rows.len() * size_of::<Box<[u32]>>();
        Self {
            others: others.into(),
            rows: rows.into_iter().map(Vec::into).collect(),
            _share: Share::new(budget, bytes),
        }
    }
}

/// Whether a record is an INSERT, UPDATE or DELETE.
pub(crate) fn is_row(entry: &Entry) -> bool {
    matches!(
        entry.kind(),
        Some(RecordKind::Insert | RecordKind::Update | RecordKind::Delete)
    )
}

impl Index {
    fn new(block: &Block, key: IndexKey, places: &[u32], budget: &Arc<Budget>) -> Self {
        let mut building = Building {
            column: key.column,
            kind: key.kind,
            reader: KeyReader::default(),
            keys: Vec::with_capacity(places.len()),
            nulls: Vec::new(),
            unknown: Vec::new(),
        };
        for &place in places {
            building.add(block, place);
        }
        building.keys.sort_unstable();
        building.keys.dedup();
        budget
            .rows
            .fetch_add(places.len() as u64, Ordering::Relaxed);
        let pairs = building.keys.len() * size_of::<(u32, u32)>();
        let bytes = pairs + (building.nulls.len() + building.unknown.len()) * size_of::<u32>();
        Self {
            keys: building.keys.into(),
            nulls: building.nulls.into(),
            unknown: building.unknown.into(),
            _share: Share::new(budget, bytes),
        }
    }

    fn look_up(&self, keys: &[u32], nulls: bool, found: &mut Vec<u32>) {
        for &key in keys {
            let first = self.keys.partition_point(|(known, _)| *known < key);
            let behind = self.keys.get(first..).unwrap_or_default();
            let same = behind.iter().take_while(|(known, _)| *known == key);
            found.extend(same.map(|(_, place)| place));
        }
        if nulls {
            found.extend(&self.nulls);
        }
        found.extend(&self.unknown);
    }
}

/// An index that is being made.
struct Building {
    column: u16,
    kind: KeyKind,
    reader: KeyReader,
    keys: Vec<(u32, u32)>,
    nulls: Vec<u32>,
    unknown: Vec<u32>,
}

impl Building {
    fn add(&mut self, block: &Block, place: u32) {
        let entry = usize::try_from(place).ok().and_then(|at| block.entry(at));
        let payload = entry.as_ref().map(|entry| block.payload(entry));
        let payload = payload.unwrap_or_default();
        // Who walks over it says what is wrong with it.
        if !self.reader.read(payload) {
            return self.unknown.push(place);
        }
        let keys = self.reader.keys(payload, self.column, self.kind);
        for found in keys.into_iter().flatten() {
            match found {
                Found::Key(key) => self.keys.push((key, place)),
                Found::Null => self.nulls.push(place),
                Found::Unknown => self.unknown.push(place),
            }
        }
    }
}
