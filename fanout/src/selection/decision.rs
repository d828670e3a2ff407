//! What of a relation's changes passes, and why not more.

use std::ops::{BitOr, BitOrAssign};
use std::sync::Arc;

use storage_format::catalog::PublicationActions;
use storage_format::record::RecordKind;

use super::{Shape, TableName};

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

    /// Those of them that are in `actions`.
    #[must_use]
    pub const fn restrict(self, actions: Self) -> Self {
        Self(self.0 & actions.0)
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
    /// These pass.
    pub passes: Actions,
    /// These end the stream.
    pub refused: Actions,
    /// Why.
    pub refusal: Option<Arc<Refusal>>,
    /// How rows change on their way. `None`: not at all, they are sent as they lie in the log.
    pub shape: Option<Arc<Shape>>,
}

impl Decision {
    /// Passes these as they are.
    #[must_use]
    pub const fn pass(actions: Actions) -> Self {
        Self {
            passes: actions,
            refused: Actions::NONE,
            refusal: None,
            shape: None,
        }
    }

    /// Ends the stream at these.
    #[must_use]
    pub fn refuse(actions: Actions, refusal: Refusal) -> Self {
        Self {
            refused: actions,
            refusal: Some(Arc::new(refusal)),
            ..Self::default()
        }
    }
}

/// Why a relation's changes can't be sent. They are never sent approximately.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// As PostgreSQL says it.
    #[error("cannot use different column lists for table \"{0}\" in different publications")]
    DifferentLists(TableName),
    /// As PostgreSQL says it.
    #[error(
        "cannot use different values of publish_generated_columns for table \"{0}\" in different publications"
    )]
    DifferentGenerated(TableName),
    /// A generated column is published that the log does not have.
    #[error(
        "column \"{column}\" of table \"{table}\" is a generated column, which the log does not have: the source's publication \
         for Decant must have publish_generated_columns = stored"
    )]
    MissingGenerated {
        /// The table.
        table: TableName,
        /// The column.
        column: String,
    },
    /// A column is asked for that the table does not have here, or that is not published.
    #[error("column \"{column}\" of table \"{table}\" does not exist or is not published")]
    MissingColumn {
        /// The table.
        table: TableName,
        /// The column.
        column: String,
    },
    /// As PostgreSQL says it at the source, where the UPDATE or DELETE itself would fail.
    #[error(
        "cannot publish updates and deletes of table \"{0}\": column used in the publication WHERE expression is not part of the \
         replica identity"
    )]
    FilterIdentity(TableName),
    /// The same of a column list.
    #[error(
        "cannot publish updates and deletes of table \"{0}\": column list used by the publication does not cover the replica \
         identity"
    )]
    ListIdentity(TableName),
    /// A row filter reads a column that is not here, or not what it was.
    #[error(
        "the row filter on table \"{0}\" reads a column that the table does not have at this position, or that has another type or \
         name here"
    )]
    FilterColumn(TableName),
    /// A row filter on a table whose rows go as another one's, or that is another one than it was.
    #[error(
        "the row filter on table \"{0}\" can't be applied: at this position rows are published as partitions or as partitioned \
         table where the filter expects the other, or the table was made anew"
    )]
    FilterTable(TableName),
    /// The role may not name the publication.
    #[error("permission denied for publication \"{0}\"")]
    PublicationDenied(String),
    /// The role must name publications.
    #[error("permission denied for a stream without publications")]
    EverythingDenied,
    /// The role may not ask for logical messages.
    #[error("permission denied for logical messages")]
    MessagesDenied,
    /// The role may not read the table.
    #[error("permission denied for table \"{0}\"")]
    TableDenied(TableName),
    /// The role may not read the column.
    #[error("permission denied for column \"{column}\" of table \"{table}\"")]
    ColumnDenied {
        /// The table.
        table: TableName,
        /// The column.
        column: String,
    },
}

impl Refusal {
    /// The SQLSTATE for it.
    #[must_use]
    pub const fn sqlstate(&self) -> &'static str {
        match self {
            Self::FilterIdentity(_) | Self::ListIdentity(_) => "42P10",
            Self::FilterColumn(_) => "42703",
            Self::FilterTable(_) => "55000",
            _ if self.is_denial() => "42501",
            _ => "0A000",
        }
    }

    /// Whether a right is missing.
    #[must_use]
    pub const fn is_denial(&self) -> bool {
        matches!(
            self,
            Self::PublicationDenied(_)
                | Self::EverythingDenied
                | Self::MessagesDenied
                | Self::TableDenied(_)
                | Self::ColumnDenied { .. }
        )
    }

    /// Whether a row filter can't be applied here.
    #[must_use]
    pub const fn is_of_filter(&self) -> bool {
        matches!(self, Self::FilterColumn(_) | Self::FilterTable(_))
    }

    /// The actions at which the stream ends, where `published` would be sent. Publications that contradict each other
    /// are an error at the source as soon as it looks at a change of the relation, whether that is published or not.
    #[must_use]
    pub const fn reach(&self, published: Actions) -> Actions {
        match self {
            Self::DifferentLists(_) | Self::DifferentGenerated(_) => Actions::ALL,
            _ => published,
        }
    }

    /// Whether PostgreSQL would refuse as well.
    #[must_use]
    pub const fn is_of_postgresql(&self) -> bool {
        matches!(
            self,
            Self::DifferentLists(_)
                | Self::DifferentGenerated(_)
                | Self::FilterIdentity(_)
                | Self::ListIdentity(_)
        )
    }
}
