//! For which new blocks a subscriber that waits at the head has to be woken.

use std::sync::Arc;

use pg_proto::Oid;
use storage_format::block::BlockFlags;
use storage_format::catalog::Catalog;

use super::Emitter;

/// What has to be in a block that is read between two transactions. [`Emitter::needs`] is about every block on the way,
/// and more of them: a transaction of which nothing passes may be left out whole, with its first and last block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    /// One of these.
    pub(crate) flags: BlockFlags,
    /// Or changes of one of these relations; `None`: anything, also if only the position moves.
    pub(crate) relations: Option<Vec<Oid>>,
}

impl Emitter {
    /// The catalog in force at the subscriber's place.
    pub(crate) const fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// What new blocks the subscriber has to be woken for, under the catalog in force, if they have changes of no
    /// relations but `relations`. What changes the catalog wakes everybody.
    pub(crate) fn interest(&mut self, relations: &[Oid]) -> Interest {
        // Under which publications its changes count can't be said from here.
        let mut flags = BlockFlags::OLDER;
        let wanted = [
            (self.options.messages, BlockFlags::HAS_MESSAGES),
            (self.options.streaming, BlockFlags::HAS_STREAMED),
            // A prepared transaction is sent even if it is empty.
            (self.options.two_phase_at.is_some(), BlockFlags::PREPARED),
            // What was sent before its end may be rolled back.
            (
                self.options.two_phase_at.is_some() || self.options.streaming,
                BlockFlags::ENDS_PREPARED,
            ),
        ];
        for (_, flag) in wanted.into_iter().filter(|(wanted, _)| *wanted) {
            flags |= flag;
        }
        if self.options.end.is_some() || self.fails_on_rows() {
            let relations = None;
            return Interest { flags, relations };
        }
        let mut passing = Vec::new();
        for &oid in relations {
            let decision = self.selection.decide(oid, &self.catalog);
            if !decision.passes.is_empty() || !decision.refused.is_empty() {
                passing.push(oid);
            }
        }
        let relations = Some(passing);
        Interest { flags, relations }
    }
}
