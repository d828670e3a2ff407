//! What of a relation's changes passes, and why not more.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};
use std::sync::Arc;

use storage_format::catalog::PublicationActions;
use storage_format::record::RecordKind;

/// A set of kinds of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actions(u8);

impl Actions {
    /// None.
    pub const NONE: Self = Self(0);
    /// INSERT.
    pub const INSERT: Self = Self(1);
    /// UPDATE.
    pub const UPDATE: Self = Self(1 << 1);
    /// DELETE.
    pub const DELETE: Self = Self(1 << 2);
    /// TRUNCATE.
    pub const TRUNCATE: Self = Self(1 << 3);
    /// INSERT, UPDATE and DELETE.
    pub const ROWS: Self = Self(0b0111);
    /// All of them.
    pub const ALL: Self = Self(0b1111);

    /// The action of a record, none if it is no change.
    #[must_use]
    pub const fn of(kind: RecordKind) -> Self {
        match kind {
            RecordKind::Insert => Self::INSERT,
            RecordKind::Update => Self::UPDATE,
            RecordKind::Delete => Self::DELETE,
            RecordKind::Truncate => Self::TRUNCATE,
            _ => Self::NONE,
        }
    }

    /// Whether all of `actions` are in it.
    #[must_use]
    pub const fn contains(self, actions: Self) -> bool {
        self.0 & actions.0 == actions.0
    }

    /// Whether any of `actions` is in it.
    #[must_use]
    pub const fn intersects(self, actions: Self) -> bool {
        self.0 & actions.0 != 0
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// These without `actions`.
    #[must_use]
    pub const fn without(self, actions: Self) -> Self {
        Self(self.0 & !actions.0)
    }
}

impl From<PublicationActions> for Actions {
    fn from(actions: PublicationActions) -> Self {
        let each = [
            (actions.insert, Self::INSERT),
            (actions.update, Self::UPDATE),
            (actions.delete, Self::DELETE),
            (actions.truncate, Self::TRUNCATE),
        ];
        let set = each.into_iter().filter(|(set, _)| *set);
        set.fold(Self::NONE, |all, (_, action)| all | action)
    }
}

impl BitOr for Actions {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Actions {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// What of one relation's changes passes a selection. An action is in at most one of the two sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// These pass as they are.
    pub passes: Actions,
    /// These would pass in part or changed, which can't be done yet: they end the stream.
    pub refused: Actions,
    /// Why.
    pub refusal: Option<Arc<Unsupported>>,
}

impl Decision {
    /// Passes these.
    #[must_use]
    pub const fn pass(actions: Actions) -> Self {
        Self {
            passes: actions,
            refused: Actions::NONE,
            refusal: None,
        }
    }
}

/// A publication that can't be served exactly. SQLSTATE 0A000. It is never served approximately.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("publication \"{publication}\" {feature}, which is not supported yet")]
pub struct Unsupported {
    /// The publication.
    pub publication: String,
    /// What is in the way.
    pub feature: Feature,
}

/// A part of a publication's definition that is not supported yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feature {
    /// A row filter on this table.
    RowFilter(String),
    /// A column list of this table.
    ColumnList(String),
    /// Partitioned tables published via their root.
    PartitionRoot,
    /// Stored generated columns.
    GeneratedColumns,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RowFilter(table) => write!(f, "has a row filter on table \"{table}\""),
            Self::ColumnList(table) => write!(f, "has a column list for table \"{table}\""),
            Self::PartitionRoot => f.write_str(
                "publishes partitioned tables via their root (publish_via_partition_root)",
            ),
            Self::GeneratedColumns => {
                f.write_str("publishes generated columns (publish_generated_columns)")
            }
        }
    }
}
