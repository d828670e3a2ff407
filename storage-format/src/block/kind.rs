//! What a block is, and how its body is stored.

/// The kind of a block. The numbers are stored and never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BlockKind {
    /// Records of transactions, and what stands between them.
    Data = 1,
    /// A part of the catalog as of the segment's start.
    Snapshot = 2,
    /// The source moved on without changes. No body.
    Progress = 3,
    /// Nothing follows in this file. No body.
    SegmentEnd = 4,
    /// The end of a sealed segment, with its totals.
    Footer = 5,
    /// Something is known to be missing here.
    Gap = 6,
}

impl BlockKind {
    /// The stored number.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The kind of a stored number.
    #[must_use]
    pub const fn from_id(id: u8) -> Option<Self> {
        Some(match id {
            1 => Self::Data,
            2 => Self::Snapshot,
            3 => Self::Progress,
            4 => Self::SegmentEnd,
            5 => Self::Footer,
            6 => Self::Gap,
            _ => return None,
        })
    }
}

/// How a body is stored. The numbers are stored and never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// As it is.
    Raw = 0,
    /// One zstd frame.
    Zstd = 1,
    /// Columns, in one zstd frame.
    Columns = 2,
}

impl Codec {
    /// The stored number.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The codec of a stored number.
    #[must_use]
    pub const fn from_id(id: u8) -> Option<Self> {
        Some(match id {
            0 => Self::Raw,
            1 => Self::Zstd,
            2 => Self::Columns,
            _ => return None,
        })
    }
}
