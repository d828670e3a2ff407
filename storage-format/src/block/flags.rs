//! What a block's header says about its content.

use std::ops::{BitOr, BitOrAssign};

use crate::record::RecordKind;

/// Flags of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BlockFlags(u32);

impl BlockFlags {
    /// None.
    pub const NONE: Self = Self(0);
    /// The block starts inside a transaction (or a snapshot) that an earlier block began.
    pub const CONTINUES: Self = Self(1);
    /// The block ends inside a transaction (or a snapshot).
    pub const OPEN_END: Self = Self(1 << 1);
    /// There are relation, type, publication or server parameter records.
    pub const HAS_CATALOG: Self = Self(1 << 2);
    /// There are logical messages.
    pub const HAS_MESSAGES: Self = Self(1 << 3);
    /// There is a TRUNCATE.
    pub const HAS_TRUNCATE: Self = Self(1 << 4);
    /// There is an ORIGIN.
    pub const HAS_ORIGIN: Self = Self(1 << 5);

    /// There are records of transactions that the source streamed before their end.
    pub const HAS_STREAMED: Self = Self(1 << 6);
    /// All records belong to transactions that end with PREPARE here: they are for subscribers of two-phase commit only,
    /// and what they make of publications counts for nobody else.
    pub const PREPARED: Self = Self(1 << 7);
    /// There is the end of a prepared transaction: a `prepared` record or a ROLLBACK PREPARED.
    pub const ENDS_PREPARED: Self = Self(1 << 8);

    /// Changes may be older than the publications in force where they stand: each is judged by those of its own position,
    /// [`Definitions::at`](crate::catalog::Definitions::at). Without it those in force judge all changes.
    pub const OLDER: Self = Self(1 << 9);

    const KNOWN: u32 = (1 << 10) - 1;

    /// Whether a record of `kind` in a block with these flags changes the catalog. A prepared transaction may be rolled
    /// back: its publications count when it commits. Its relations may stay, since the source describes those that it
    /// altered once more before their next change.
    #[must_use]
    pub const fn apply(self, kind: RecordKind) -> bool {
        kind.is_catalog()
            && !(self.contains(Self::PREPARED) && matches!(kind, RecordKind::Publications))
    }

    /// The stored bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Flags of stored bits, if this build knows them all.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits & !Self::KNOWN == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// Whether all of `flags` are set.
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether any of `flags` is set.
    #[must_use]
    pub const fn intersects(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    /// These as far as they are in `flags`.
    pub(super) const fn only_if_in(self, flags: Self) -> Self {
        Self(self.0 & flags.0)
    }

    /// These with `flags` taken away.
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }
}

impl BitOr for BlockFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for BlockFlags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}
