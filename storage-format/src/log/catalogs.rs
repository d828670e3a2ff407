//! Versions of the catalog, shared by all cursors of a log.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::segment::Segment;
use crate::block::Block;
use crate::cache::BlockKey;
use crate::catalog::Catalog;
use crate::error::{Damage, FormatError};

/// Versions kept for cursors to come. Those in use live on without being kept here.
const KEPT: usize = 32;

/// Which version is in force behind which block. The key of a segment's snapshot has offset 0.
#[derive(Debug, Default)]
pub(super) struct Catalogs {
    versions: Mutex<VecDeque<(BlockKey, Arc<Catalog>)>>,
}

impl Catalogs {
    pub(super) fn clear(&self) {
        self.versions.lock().clear();
    }

    pub(super) fn get(&self, key: BlockKey) -> Option<Arc<Catalog>> {
        let versions = self.versions.lock();
        let found = versions.iter().rev().find(|(known, _)| *known == key);
        found.map(|(_, catalog)| Arc::clone(catalog))
    }

    /// Keeps the version behind a block. Returns the one to use: if one with the same content is known, that one.
    pub(super) fn put(&self, key: BlockKey, catalog: Arc<Catalog>) -> Arc<Catalog> {
        let mut versions = self.versions.lock();
        let same = versions.iter().rev().find(|(_, known)| *known == catalog);
        let catalog = same.map_or(catalog, |(_, known)| Arc::clone(known));
        versions.retain(|(known, _)| *known != key);
        if versions.len() >= KEPT {
            versions.pop_front();
        }
        versions.push_back((key, Arc::clone(&catalog)));
        catalog
    }
}

/// Applies the catalog records of the block at `offset`.
pub(super) fn apply_block(
    catalog: &mut Arc<Catalog>,
    block: &Block,
    segment: &Segment,
    offset: u64,
) -> Result<(), FormatError> {
    for entry in block.entries() {
        if let Some(kind) = entry.kind().filter(|kind| kind.is_catalog()) {
            Catalog::apply(catalog, kind, block.payload(&entry)).map_err(|error| {
                let damage = Damage::Content(format!("{error}: {}", error.source));
                segment.damage(damage, offset)
            })?;
        }
    }
    Ok(())
}
