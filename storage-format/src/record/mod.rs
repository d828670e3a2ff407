//! Records: what a block's entries describe.

mod prepared;

pub use prepared::PreparedRecord;

/// The kind of a record. The numbers are stored and never change their meaning.
///
/// Kinds below 64 are messages of the source; their bytes are whole CopyData frames in the frames section, in the
/// form that a subscriber gets. Kinds from 64 on are Decant's own; their bytes are in the aux section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// A transaction begins.
    Begin = 1,
    /// It ends.
    Commit = 2,
    /// A row is inserted.
    Insert = 3,
    /// A row is updated.
    Update = 4,
    /// A row is deleted.
    Delete = 5,
    /// Relations are truncated.
    Truncate = 6,
    /// A logical message, inside its transaction or standing alone.
    Message = 7,
    /// A relation's description.
    Relation = 8,
    /// A type's name.
    Type = 9,
    /// The transaction's origin.
    Origin = 10,
    /// A transaction begins that ends with PREPARE.
    BeginPrepare = 11,
    /// It is prepared.
    Prepare = 12,
    /// A prepared transaction commits.
    CommitPrepared = 13,
    /// A prepared transaction is rolled back.
    RollbackPrepared = 14,
    /// The state of all publications.
    Publications = 64,
    /// The source server's reported parameters.
    ServerParameters = 65,
    /// The transaction was prepared before it commits here.
    Prepared = 66,
}

/// The lowest kind whose bytes are in the aux section.
pub(crate) const FIRST_AUX: u8 = 64;

impl RecordKind {
    /// The stored number.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The kind of a stored number, if this build knows it.
    #[must_use]
    pub const fn from_id(id: u8) -> Option<Self> {
        Some(match id {
            1 => Self::Begin,
            2 => Self::Commit,
            3 => Self::Insert,
            4 => Self::Update,
            5 => Self::Delete,
            6 => Self::Truncate,
            7 => Self::Message,
            8 => Self::Relation,
            9 => Self::Type,
            10 => Self::Origin,
            11 => Self::BeginPrepare,
            12 => Self::Prepare,
            13 => Self::CommitPrepared,
            14 => Self::RollbackPrepared,
            64 => Self::Publications,
            65 => Self::ServerParameters,
            66 => Self::Prepared,
            _ => return None,
        })
    }

    /// Whether the record's bytes are in the aux section.
    #[must_use]
    pub const fn is_aux(self) -> bool {
        self.id() >= FIRST_AUX
    }

    /// Whether the record is an event, which has an ordinal in its transaction: changes and logical messages.
    /// What may be repeated or left out by the source (relations, types, origins) is none, so that an event's
    /// `(commit_lsn, ordinal)` is the same however often the source sends its transaction.
    #[must_use]
    pub const fn is_event(self) -> bool {
        matches!(
            self,
            Self::Insert | Self::Update | Self::Delete | Self::Truncate | Self::Message
        )
    }

    /// Whether the record changes the catalog.
    #[must_use]
    pub const fn is_catalog(self) -> bool {
        matches!(
            self,
            Self::Relation | Self::Type | Self::Publications | Self::ServerParameters
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_are_stable() {
        let known: Vec<u8> = (0..=u8::MAX)
            .filter(|id| RecordKind::from_id(*id).is_some())
            .collect();
        let expected: Vec<u8> = (1..=14).chain(64..=66).collect();
        assert_eq!(known, expected);
        for id in known {
            assert_eq!(RecordKind::from_id(id).unwrap().id(), id);
        }
    }

    #[test]
    fn sections_and_ordinals() {
        assert!(RecordKind::Publications.is_aux());
        assert!(!RecordKind::Relation.is_aux());
        assert!(RecordKind::Truncate.is_event());
        assert!(!RecordKind::Origin.is_event());
    }
}
