//! Who waits for rows that have certain keys: subscribers whose row filters ask for equality with constants.
//!
//! A row is looked at once, for all of them, and rings those who wait for its keys; what it costs grows with who is rung
//! and not with who waits. Ringing too many is no error, so a key may be a hash.

use std::collections::HashMap;

use pg_proto::Oid;
use row_filter::KeyKind;
use storage_format::block::{Block, BlockFlags};

use crate::filter::{Awaited, Found, KeyReader, is_row};
use crate::selection::OidMap;

/// Most keys that one seat waits for in one relation. Who waits for more is rung for every row.
const KEYS_MAX: usize = 1024;

/// What a seat waits for.
pub(super) type Wanted = Vec<(Oid, Vec<Awaited>)>;

/// All who wait for keys, by relation.
#[derive(Debug, Default)]
pub(super) struct Keyed {
    relations: OidMap<Relation>,
}

#[derive(Debug, Default)]
struct Relation {
    /// All of them, whatever they wait for.
    seats: Vec<usize>,
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    column: u16,
    kind: KeyKind,
    by_key: HashMap<u32, Vec<usize>>,
    nulls: Vec<usize>,
}

/// Whether so many keys are too many to wait for.
pub(super) fn is_too_much(awaited: &[Awaited]) -> bool {
    awaited.iter().map(|one| one.keys.len()).sum::<usize>() > KEYS_MAX
}

impl Keyed {
    /// A seat waits.
    pub(super) fn add(&mut self, seat: usize, wanted: &Wanted) {
        for (oid, awaited) in wanted {
            let relation = self.relations.entry(*oid).or_default();
            relation.seats.push(seat);
            for one in awaited {
                relation.column(one).add(seat, one);
            }
        }
    }

    /// It does not wait any more for what it waited for.
    pub(super) fn remove(&mut self, seat: usize, wanted: &Wanted) {
        for (oid, awaited) in wanted {
            let Some(relation) = self.relations.get_mut(oid) else {
                continue;
            };
            relation.seats.retain(|one| *one != seat);
            for one in awaited {
                relation.column(one).remove(seat, one);
            }
            relation.columns.retain(|column| !column.is_empty());
            if relation.seats.is_empty() {
                self.relations.remove(oid);
            }
        }
    }

    /// Whether anybody waits for rows of one of the relations.
    pub(super) fn any_of(&self, relations: &[Oid]) -> bool {
        !self.relations.is_empty() && relations.iter().any(|oid| self.relations.contains_key(oid))
    }

    /// Rings those whom the rows of a block concern.
    pub(super) fn ring_for(&self, block: &Block, reader: &mut KeyReader, ring: &impl Fn(usize)) {
        let oids = block.relations().iter();
        let relations: Vec<Option<&Relation>> = oids.map(|oid| self.relations.get(oid)).collect();
        if block.header().flags.contains(BlockFlags::HAS_TRUNCATE) {
            for relation in relations.iter().flatten() {
                relation.ring_all(ring);
            }
        }
        for entry in block.entries().filter(is_row) {
            if let Some(Some(relation)) = relations.get(usize::from(entry.relation)) {
                relation.ring_for(block.payload(&entry), reader, ring);
            }
        }
    }
}

impl Relation {
    fn column(&mut self, awaited: &Awaited) -> &mut Column {
        let mut columns = self.columns.iter();
        let known =
            columns.position(|one| one.column == awaited.column && one.kind == awaited.kind);
        let place = known.unwrap_or_else(|| {
            self.columns.push(Column {
                column: awaited.column,
                kind: awaited.kind,
                by_key: HashMap::new(),
                nulls: Vec::new(),
            });
            self.columns.len() - 1
        });
        &mut self.columns[place]
    }

    fn ring_all(&self, ring: &impl Fn(usize)) {
        for seat in &self.seats {
            ring(*seat);
        }
    }

    fn ring_for(&self, payload: &[u8], reader: &mut KeyReader, ring: &impl Fn(usize)) {
        // Who looks at it says what is wrong with it.
        if !reader.read(payload) {
            return self.ring_all(ring);
        }
        for column in &self.columns {
            let keys = reader.keys(payload, column.column, column.kind);
            for found in keys.into_iter().flatten() {
                let seats = match found {
                    Found::Key(key) => column.by_key.get(&key),
                    Found::Null => Some(&column.nulls),
                    Found::Unknown => Some(&self.seats),
                };
                for seat in seats.into_iter().flatten() {
                    ring(*seat);
                }
            }
        }
    }
}

impl Column {
    fn add(&mut self, seat: usize, awaited: &Awaited) {
        for key in &awaited.keys {
            self.by_key.entry(*key).or_default().push(seat);
        }
        if awaited.nulls {
            self.nulls.push(seat);
        }
    }

    fn remove(&mut self, seat: usize, awaited: &Awaited) {
        for key in &awaited.keys {
            if let Some(seats) = self.by_key.get_mut(key) {
                seats.retain(|one| *one != seat);
                if seats.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
        self.nulls.retain(|one| *one != seat);
    }

    fn is_empty(&self) -> bool {
        self.by_key.is_empty() && self.nulls.is_empty()
    }
}
