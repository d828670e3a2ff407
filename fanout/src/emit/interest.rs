//! For which new blocks a subscriber that waits at the head has to be woken.

use std::sync::Arc;

use pg_proto::Oid;
use storage_format::block::BlockFlags;
use storage_format::catalog::Catalog;

use super::Emitter;
use crate::filter::Awaited;

/// What has to be in a block that is read between two transactions. [`Emitter::needs`] is about every block on the way,
/// and more of them: a transaction of which nothing passes may be left out whole, with its first and last block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    /// One of these.
    pub(crate) flags: BlockFlags,
    /// Or changes of one of these relations; `None`: anything, also if only the position moves.
    pub(crate) relations: Option<Vec<Oid>>,
    /// Or rows of these that have what is awaited, or a TRUNCATE of them.
    pub(crate) keyed: Vec<(Oid, Vec<Awaited>)>,
}

impl Interest {
    /// All flags that anybody may be interested in.
    pub(crate) const FLAGS: [BlockFlags; 5] = [
        BlockFlags::HAS_MESSAGES,
        BlockFlags::HAS_STREAMED,
        BlockFlags::PREPARED,
        BlockFlags::ENDS_PREPARED,
        BlockFlags::OLDER,
    ];
}

impl Emitter {
    /// The catalog in force at the subscriber's place.
    pub(crate) const fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// What new blocks the subscriber has to be woken for, under the catalog in force, if they have changes of no
    /// relations but `relations`. What changes the catalog wakes everybody.
    pub(crate) fn interest(&mut self, relations: &[Oid]) -> Interest {
        let mut flags = BlockFlags::NONE;
        let two_phase = self.options.two_phase_at.is_some();
        // A prepared transaction is sent even if it is empty.
        let wanted = [
            self.options.messages,
            self.options.streaming,
            two_phase,
            // What was sent before its end may be rolled back.
            two_phase || self.options.streaming,
            // Under which publications its changes count can't be said from here.
            true,
        ];
        for (wanted, flag) in wanted.into_iter().zip(Interest::FLAGS) {
            if wanted {
                flags |= flag;
            }
        }
        if self.options.end.is_some() || self.fails_on_rows() {
            return Interest {
                flags,
                relations: None,
                keyed: Vec::new(),
            };
        }
        let (mut passing, mut keyed) = (Vec::new(), Vec::new());
        for &oid in relations {
            let decision = self.selection.decide(oid, &self.view);
            if decision.passes.is_empty() && decision.refused.is_empty() {
                continue;
            }
            let filters = decision.shape.as_ref().and_then(|one| one.filters.as_ref());
            let filters = filters.filter(|_| decision.refused.is_empty());
            match filters.and_then(|one| one.awaited(decision.passes)) {
                Some(awaited) => keyed.push((oid, awaited)),
                None => passing.push(oid),
            }
        }
        Interest {
            flags,
            relations: Some(passing),
            keyed,
        }
    }
}
