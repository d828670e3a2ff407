//! Versions of the catalog, shared by all cursors of a log.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::segment::Segment;
use crate::block::{Block, CommitAt};
use crate::cache::BlockKey;
use crate::catalog::Catalog;
use crate::error::{Damage, FormatError};

/// Places whose version is remembered.
const PLACES: usize = 1024;
/// Different versions that are remembered. Those in use live on without it.
const VERSIONS: usize = 32;

/// Which version is in force behind which block. The key of a segment's snapshot has offset 0.
#[derive(Debug, Default)]
pub(super) struct Catalogs {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    places: HashMap<BlockKey, Arc<Catalog>>,
    /// Oldest first.
    order: VecDeque<BlockKey>,
    versions: VecDeque<Arc<Catalog>>,
}

impl Catalogs {
    pub(super) fn clear(&self) {
        *self.known.lock() = Known::default();
    }

    pub(super) fn get(&self, key: BlockKey) -> Option<Arc<Catalog>> {
        self.known.lock().places.get(&key).map(Arc::clone)
    }

    /// Remembers the version behind a block. Returns the one to use: if one with the same content is known, that one.
    pub(super) fn put(&self, key: BlockKey, catalog: Arc<Catalog>) -> Arc<Catalog> {
        let mut known = self.known.lock();
        let catalog = known.intern(catalog);
        known.remember(key, Arc::clone(&catalog));
        catalog
    }
}

impl Known {
    fn intern(&mut self, catalog: Arc<Catalog>) -> Arc<Catalog> {
        if let Some(same) = self.versions.iter().rev().find(|known| **known == catalog) {
            return Arc::clone(same);
        }
        if self.versions.len() >= VERSIONS
            && let Some(oldest) = self.versions.pop_front()
        {
            self.places
                .retain(|_, version| !Arc::ptr_eq(version, &oldest));
            let places = &self.places;
            self.order.retain(|key| places.contains_key(key));
        }
        self.versions.push_back(Arc::clone(&catalog));
        catalog
    }

    fn remember(&mut self, key: BlockKey, catalog: Arc<Catalog>) {
        if self.places.insert(key, catalog).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > PLACES
            && let Some(oldest) = self.order.pop_front()
        {
            self.places.remove(&oldest);
        }
    }
}

/// Applies the catalog records of the block at `offset`.
pub(super) fn apply_block(
    catalog: &mut Arc<Catalog>,
    block: &Block,
    segment: &Segment,
    offset: u64,
) -> Result<(), FormatError> {
    let flags = block.header().flags;
    let mut commit = CommitAt::start(block.header());
    for entry in block.entries() {
        let Some(kind) = entry.kind() else { continue };
        let payload = block.payload(&entry);
        let commit_lsn = commit.of(kind, payload);
        if flags.apply(kind) {
            Catalog::apply(catalog, kind, payload, commit_lsn).map_err(|error| {
                let damage = Damage::Content(format!("{error}: {}", error.source));
                segment.damage(damage, offset)
            })?;
        }
    }
    Ok(())
}
