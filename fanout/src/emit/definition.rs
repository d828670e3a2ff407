//! By which definition of the publications a change is judged.
//!
//! The rule is that of [`Definitions`]: the one whose transaction committed at or before the change's own position; inside
//! a transaction that alters publications itself, what it has altered counts from its own place on, on top of that. Blocks
//! whose changes can't be older than the definition in force pay nothing for it: they are judged by that one.

use std::sync::Arc;

use pg_proto::Lsn;
use storage_format::block::{Block, BlockFlags, BlockHeader};
use storage_format::catalog::{Catalog, Definitions, PublicationState, PublicationsRecord};
use storage_format::record::RecordKind;

use super::emitter::Emitter;
use crate::error::StreamError;

/// What the transaction at hand has made of the publications.
#[derive(Debug)]
pub(super) struct OwnDefinition {
    /// What it had seen of others then.
    seen: Arc<PublicationState>,
    state: Arc<PublicationState>,
    /// Made of what others have in force, and of this.
    made: Option<(Arc<PublicationState>, Arc<PublicationState>)>,
}

impl OwnDefinition {
    fn on_top_of(&mut self, others: &Arc<PublicationState>) -> Arc<PublicationState> {
        if Arc::ptr_eq(others, &self.seen) {
            return Arc::clone(&self.state);
        }
        if let Some((known, made)) = &self.made
            && Arc::ptr_eq(known, others)
        {
            return Arc::clone(made);
        }
        let made = Arc::new(self.state.on_top_of(&self.seen, others));
        self.made = Some((Arc::clone(others), Arc::clone(&made)));
        made
    }
}

impl Emitter {
    /// Prepares for the definitions by which a block's changes are judged. If one judges all, it is put in force, and the
    /// block passes as any other. Inside one transaction positions only grow, so that its ends say whether that is so.
    pub(super) fn enter_definitions(&mut self, block: &Block) {
        let header = block.header();
        if !header.flags.contains(BlockFlags::CONTINUES) {
            self.own = None;
        }
        self.judge_by_current();
        // Of what has not ended nobody has looked whether it is older.
        self.older = self.is_early || header.flags.contains(BlockFlags::OLDER);
        self.by_position = self.older || self.own.is_some();
        if !self.by_position && !self.enter_versions(block) {
            return;
        }
        if header.flags.contains(BlockFlags::HAS_CATALOG) {
            return;
        }
        let Some((first, last)) = self.change_positions(block) else {
            return;
        };
        if Arc::ptr_eq(&self.definition_at(first), &self.definition_at(last)) {
            self.judge_at(first);
            self.by_position = false;
        }
    }

    /// Between which positions a block's changes are, if one definition that counts for both counts for all.
    fn change_positions(&self, block: &Block) -> Option<(Lsn, Lsn)> {
        let header = block.header();
        let changes = block.entries().filter(|one| is_change(one.kind()));
        let mut positions = changes.map(|entry| block.start_lsn(&entry));
        let inside = BlockFlags::CONTINUES | BlockFlags::OPEN_END;
        if header.flags.contains(inside) && header.first_commit_lsn == header.last_commit_lsn {
            let first = positions.next()?;
            return Some((first, positions.next_back().unwrap_or(first)));
        }
        // What a transaction has altered itself counts up to its end only.
        if self.own.is_some() {
            return None;
        }
        let first = positions.next()?;
        let (low, high) = positions.fold((first, first), |(low, high), lsn| {
            (low.min(lsn), high.max(lsn))
        });
        low.is_valid().then_some((low, high))
    }

    /// Of a block whose changes the log judges all alike: whether versions of Decant's own publications do not.
    fn enter_versions(&mut self, block: &Block) -> bool {
        let header = block.header();
        let since = self.catalog.definitions().current().since;
        if self.versions.are_alike(since, header.last_commit_lsn) {
            return false;
        }
        let has_catalog = header.flags.contains(BlockFlags::HAS_CATALOG);
        let part = self.versions.part_of_all(block);
        if let Some(part) = part.filter(|_| !has_catalog) {
            self.judge_by_part(part);
            return false;
        }
        self.older = true;
        self.by_position = true;
        true
    }

    /// Whether a block's header is enough to say that the definition in force judges its changes.
    pub(super) fn is_judged_by_current(&self, header: &BlockHeader) -> bool {
        let since = self.catalog.definitions().current().since;
        !header.flags.contains(BlockFlags::OLDER)
            && self.own.is_none()
            && self.versions.are_alike(since, header.last_commit_lsn)
            && self.versions.part_of(since) == self.versions.part
    }

    /// Another transaction begins, which commits at `commit_lsn`.
    pub(super) fn begin_at(&mut self, commit_lsn: Lsn) {
        self.commit_lsn = commit_lsn;
        if self.own.take().is_some() {
            self.by_position = self.older;
            if !self.by_position {
                self.judge_by_current();
            }
        }
    }

    /// The transaction at hand states the publications as it sees them, in a record that is not applied yet.
    pub(super) fn state_own_definition(&mut self, payload: &[u8]) -> Result<(), StreamError> {
        let position = self.position();
        let record = PublicationsRecord::decode(payload)
            .map_err(|source| StreamError::Unreadable { position, source })?;
        let definitions = self.catalog.definitions();
        let seen = definitions.seen_at(record.place, self.commit_lsn);
        self.own = Some(OwnDefinition {
            seen: Arc::clone(seen),
            state: Arc::new(record.state),
            made: None,
        });
        self.by_position = true;
        Ok(())
    }

    /// Another version of the catalog is in force: the definition that judges stays, where positions count.
    pub(super) fn renew_view(&mut self) {
        if self.by_position {
            let state = Arc::clone(self.view.publication_state());
            self.judge_by(&state);
        } else {
            self.judge_by_current();
        }
    }

    /// Puts the definition in force that judges a change at `lsn`; true if it is another one than before.
    pub(super) fn judge_at(&mut self, lsn: Lsn) -> bool {
        let state = self.definition_at(lsn);
        let other = !Arc::ptr_eq(&state, self.view.publication_state());
        if other {
            self.judge_by(&state);
        }
        other
    }

    /// Whether a change at `lsn` is judged as the change at hand.
    pub(super) fn is_judged_alike(&mut self, lsn: Lsn) -> bool {
        Arc::ptr_eq(&self.definition_at(lsn), self.view.publication_state())
    }

    fn definition_at(&mut self, lsn: Lsn) -> Arc<PublicationState> {
        let definitions: &Definitions = self.catalog.definitions();
        let others = if lsn.is_valid() {
            let known_from = definitions.known_from();
            if lsn < known_from && !std::mem::replace(&mut self.told_unknown, true) {
                tracing::warn!(
                    %lsn,
                    %known_from,
                    "a change is older than the definitions of publications that are kept, and is judged by the oldest of them"
                );
            }
            definitions.at(lsn)
        } else {
            &definitions.current().state
        };
        let state = match &mut self.own {
            Some(own) => own.on_top_of(others),
            None => Arc::clone(others),
        };
        let lsn = if lsn.is_valid() { lsn } else { self.position() };
        let part = self.versions.part_of(lsn);
        self.versions.in_force(part, &state, &self.catalog)
    }

    /// Puts the definition in force that judges what comes behind all others.
    pub(super) fn judge_by_current(&mut self) {
        let since = self.catalog.definitions().current().since;
        let part = self.versions.part_of(self.position().max(since));
        self.versions.part = part;
        self.judge_by_part(part);
    }

    /// Puts in force what the log states at its place, and versions of Decant's own publications in this part.
    fn judge_by_part(&mut self, part: usize) {
        if self.versions.is_stated(part) {
            if !Arc::ptr_eq(&self.view, &self.catalog) {
                self.view = Arc::clone(&self.catalog);
                self.use_view();
            }
            return;
        }
        let state = Arc::clone(self.catalog.publication_state());
        let state = self.versions.in_force(part, &state, &self.catalog);
        self.judge_by(&state);
    }

    /// Between two transactions: takes over versions of Decant's own publications that were made meanwhile.
    pub(crate) fn renew_versions(&mut self) {
        if self.takes_pieces() && self.versions.renew(self.selection.spec()) {
            self.judge_by_current();
        }
    }

    fn judge_by(&mut self, state: &Arc<PublicationState>) {
        self.view = if Arc::ptr_eq(state, self.catalog.publication_state()) {
            Arc::clone(&self.catalog)
        } else {
            Arc::new(Catalog::judging_by(&self.catalog, state))
        };
        self.use_view();
    }

    fn use_view(&mut self) {
        self.selection.set_catalog(&self.view);
        self.refresh_lanes();
    }
}

/// Whether definitions judge a record of this kind.
pub(super) fn is_change(kind: Option<RecordKind>) -> bool {
    kind.is_some_and(|kind| kind.is_event() && kind != RecordKind::Message)
}
