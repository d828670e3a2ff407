//! Definitions of Decant's own publications that count from an older position than the log states them.
//!
//! They take the place of what the log says in their part of it, for those who name these publications and nobody else.

use std::collections::VecDeque;
use std::sync::Arc;

use pg_proto::Lsn;
use storage_format::block::Block;
use storage_format::catalog::{Catalog, OwnTimeline, PublicationState};

use super::definition::is_change;
use crate::selection::{Publications, SelectionSpec};
use crate::versions::VersionsFile;

/// States that are remembered: those around one place of the log.
const MADE_MAX: usize = 8;

/// The versions of the publications that one subscriber named.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions {
    file: Option<VersionsFile>,
    /// Of the file's state at hand.
    count: u64,
    timeline: OwnTimeline,
    /// The part whose definition is in force behind what was judged last.
    pub(super) part: usize,
    made: VecDeque<Made>,
}

#[derive(Clone, Debug)]
struct Made {
    part: usize,
    state: Arc<PublicationState>,
    catalog: Arc<Catalog>,
    made: Arc<PublicationState>,
}

impl Versions {
    pub(super) fn new(file: VersionsFile, spec: &SelectionSpec) -> Self {
        let mut versions = Self {
            count: file.count(),
            file: Some(file),
            ..Self::default()
        };
        versions.read(spec);
        versions
    }

    /// Takes over what was changed in the file; true if it was.
    pub(super) fn renew(&mut self, spec: &SelectionSpec) -> bool {
        let count = self.file.as_ref().map_or(0, VersionsFile::count);
        let changed = count != self.count;
        if changed {
            self.count = count;
            self.read(spec);
        }
        changed
    }

    fn read(&mut self, spec: &SelectionSpec) {
        let (Some(file), Publications::Named(names)) = (&self.file, &spec.publications) else {
            return;
        };
        let wanted = |name: &str| names.iter().any(|one| one == name);
        self.timeline = OwnTimeline::new(file.versions(), wanted);
        self.made.clear();
    }

    pub(super) fn part_of(&self, lsn: Lsn) -> usize {
        self.timeline.part(lsn)
    }

    /// Whether the log itself states all that is in force in a part.
    pub(super) fn is_stated(&self, part: usize) -> bool {
        self.timeline.is_stated(part)
    }

    /// Whether there is nothing beside the log.
    pub(super) fn are_none(&self) -> bool {
        self.are_alike(Lsn::INVALID, Lsn::MAX)
    }

    /// Whether the same versions are in force at both positions and between them.
    pub(super) fn are_alike(&self, from: Lsn, to: Lsn) -> bool {
        self.part_of(from) == self.part_of(to)
    }

    /// The part that all changes of a block are in; `None` if there are several.
    pub(super) fn part_of_all(&self, block: &Block) -> Option<usize> {
        let changes = block.entries().filter(|entry| is_change(entry.kind()));
        let mut parts = changes.map(|entry| {
            let lsn = block.start_lsn(&entry);
            lsn.is_valid().then(|| self.part_of(lsn))
        });
        let Some(first) = parts.next() else {
            return Some(self.part);
        };
        first.filter(|_| parts.all(|part| part == first))
    }

    /// What is in force in a part where the log has `state`. The same place gives the same value again.
    pub(super) fn in_force(
        &mut self,
        part: usize,
        state: &Arc<PublicationState>,
        catalog: &Arc<Catalog>,
    ) -> Arc<PublicationState> {
        if self.is_stated(part) {
            return Arc::clone(state);
        }
        let known = self.made.iter().find(|one| {
            one.part == part
                && Arc::ptr_eq(&one.state, state)
                && Arc::ptr_eq(one.catalog.relations(), catalog.relations())
        });
        if let Some(known) = known {
            return Arc::clone(&known.made);
        }
        let made = Arc::new(self.timeline.in_force(part, state, catalog));
        if self.made.len() >= MADE_MAX {
            self.made.pop_front();
        }
        self.made.push_back(Made {
            part,
            state: Arc::clone(state),
            catalog: Arc::clone(catalog),
            made: Arc::clone(&made),
        });
        made
    }
}
