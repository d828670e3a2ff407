//! Subscribers that asked for the same share what is made of a block for the first of them.
//!
//! Nothing of it depends on who it is for, if the block is one of whole transactions behind everybody's start and all of them
//! have the descriptions of its relations already: that is nearly every block on the way. What passes is then slices of the
//! block's memory, and of rows that were rewritten once; one more subscriber costs a look here and its socket's write.
//! What a family keeps is bounded by [`BLOCKS_MAX`] and [`BYTES_MAX`]: members that are near each other, at the head as a
//! rule, find it, others make their own.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use storage_format::block::Block;
use storage_format::catalog::Catalog;

use super::{EmitOptions, Form, Piece};
use crate::selection::{Publications, SelectionSpec};

/// Blocks that a family keeps: some times as many as a member takes before it writes to its socket and it is the next
/// one's turn.
const BLOCKS_MAX: usize = 64;
/// And their bytes, with those of the rows that were rewritten.
const BYTES_MAX: usize = 4 << 20;
/// Smaller blocks are walked faster than they are looked for.
const ENTRIES_MIN: u32 = 8;

/// All families. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Families {
    /// By the publications that were named, since comparing with each would take long where there are thousands.
    known: Arc<Mutex<HashMap<Publications, Vec<Weak<Family>>>>>,
}

/// Those who asked for the same.
#[derive(Debug)]
pub(crate) struct Family {
    spec: SelectionSpec,
    /// Without the start.
    options: EmitOptions,
    form: Form,
    kept: Mutex<Kept>,
}

/// What was made last, the newest behind.
#[derive(Debug, Default)]
struct Kept {
    made: VecDeque<Made>,
    /// Of all of them.
    bytes: usize,
}

/// What is sent of a block.
#[derive(Clone, Debug)]
struct Made {
    block: Arc<Block>,
    /// In force at its start.
    catalog: Arc<Catalog>,
    sent: Arc<Sent>,
    bytes: usize,
}

/// What is sent of a block, with its counts.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) pieces: Vec<Piece>,
    pub(super) changes: u64,
    pub(super) commits: u64,
}

impl Families {
    /// The family of those who asked for this.
    pub(crate) fn join(
        &self,
        spec: &SelectionSpec,
        options: &EmitOptions,
        form: Form,
    ) -> Arc<Family> {
        let options = EmitOptions {
            start: pg_proto::Lsn::INVALID,
            ..options.clone()
        };
        let mut known = self.known.lock();
        known.retain(|_, families| {
            families.retain(|family| family.strong_count() > 0);
            !families.is_empty()
        });
        let families = known.entry(spec.publications.clone()).or_default();
        let mut living = families.iter().filter_map(Weak::upgrade);
        let same =
            |one: &Arc<Family>| one.form == form && one.options == options && one.spec == *spec;
        if let Some(family) = living.find(same) {
            return family;
        }
        let family = Arc::new(Family {
            spec: spec.clone(),
            options,
            form,
            kept: Mutex::default(),
        });
        families.push(Arc::downgrade(&family));
        family
    }
}

impl Family {
    /// Whether a block is worth it, now.
    pub(super) fn shares(self: &Arc<Self>, block: &Block) -> bool {
        Arc::strong_count(self) > 1 && block.header().entry_count >= ENTRIES_MIN
    }

    /// What another one was sent of this block under this catalog.
    pub(super) fn find(&self, block: &Arc<Block>, catalog: &Arc<Catalog>) -> Option<Arc<Sent>> {
        let kept = self.kept.lock();
        let mut newest_first = kept.made.iter().rev();
        let found = newest_first
            .find(|made| Arc::ptr_eq(&made.block, block) && Arc::ptr_eq(&made.catalog, catalog));
        found.map(|made| Arc::clone(&made.sent))
    }

    /// Keeps what was sent of a block, for the others.
    pub(super) fn keep(&self, block: &Arc<Block>, catalog: &Arc<Catalog>, sent: Sent) {
        let pieces: usize = sent.pieces.iter().map(|piece| piece.bytes.len()).sum();
        let made = Made {
            block: Arc::clone(block),
            catalog: Arc::clone(catalog),
            sent: Arc::new(sent),
            bytes: block.weight() + pieces,
        };
        let mut kept = self.kept.lock();
        kept.bytes += made.bytes;
        kept.made.push_back(made);
        while kept.made.len() > BLOCKS_MAX || kept.bytes > BYTES_MAX {
            let Some(oldest) = kept.made.pop_front() else {
                return;
            };
            kept.bytes -= oldest.bytes;
        }
    }
}
