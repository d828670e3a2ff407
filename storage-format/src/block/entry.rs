//! Entries: where each record of a block is.

use crate::codec::Fields;
use crate::record::{FIRST_AUX, RecordKind};

/// Bytes of an entry.
pub const ENTRY_LEN: usize = 16;

/// Bytes of a frame before its message: 'd', its length, 'w', dataStart, walEnd, sendTime.
pub const FRAME_HEAD_LEN: usize = 30;

/// The relation index of a record that has no relation, or several.
pub const NO_RELATION: u16 = u16::MAX;

/// One record: its kind, its relation and its place. `kind` may be a number that this build does not know;
/// such a record is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The stored kind, see [`RecordKind`].
    pub kind_id: u8,
    /// [`Self::HAS_ORIGIN`], and what later versions add.
    pub flags: u8,
    /// Index into the block's relation set, or [`NO_RELATION`].
    pub relation: u16,
    /// Offset in the frames section, or in the aux section for kinds from 64 on.
    pub offset: u32,
    /// Bytes there; of a frame the whole of it, head included.
    pub length: u32,
    /// In a transaction that the source streamed before its end: the subtransaction that wrote the record, or the
    /// transaction itself. 0 in all others.
    pub xid: u32,
}

impl Entry {
    /// Of a ROLLBACK PREPARED, whose message does not say so: the transaction has a replication origin.
    pub const HAS_ORIGIN: u8 = 1;

    /// The kind, if this build knows it.
    #[must_use]
    pub const fn kind(&self) -> Option<RecordKind> {
        RecordKind::from_id(self.kind_id)
    }

    /// Whether the record is in the aux section: of kinds that this build does not know, too, the number alone tells.
    #[must_use]
    pub const fn is_aux(&self) -> bool {
        self.kind_id >= FIRST_AUX
    }

    /// Whether all of `flags` are set.
    #[must_use]
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// The stored bytes: kind, flags, relation, offset, length, transaction id.
    #[must_use]
    pub fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        let [kind, flags, relation_0, relation_1, rest @ ..] = &mut bytes;
        *kind = self.kind_id;
        *flags = self.flags;
        [*relation_0, *relation_1] = self.relation.to_le_bytes();
        let place = u64::from(self.offset) | u64::from(self.length) << 32;
        if let Some(chunk) = rest.first_chunk_mut::<8>() {
            *chunk = place.to_le_bytes();
        }
        if let Some(chunk) = rest.last_chunk_mut::<4>() {
            *chunk = self.xid.to_le_bytes();
        }
        bytes
    }

    /// The inverse of [`Self::encode`]. Flags that this build does not know are kept.
    #[must_use]
    pub fn decode(bytes: &[u8; ENTRY_LEN]) -> Self {
        let mut fields = Fields::new(bytes);
        Self {
            kind_id: fields.u8(),
            flags: fields.u8(),
            relation: fields.u16(),
            offset: fields.u32(),
            length: fields.u32(),
            xid: fields.u32(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trips(kind_id: u8, flags: u8, relation: u16, offset: u32, length: u32, xid: u32) {
            let entry = Entry { kind_id, flags, relation, offset, length, xid };
            prop_assert_eq!(Entry::decode(&entry.encode()), entry);
        }
    }

    #[test]
    fn layout() {
        let entry = Entry {
            kind_id: 3,
            flags: 0xF0,
            relation: 0x0201,
            offset: 0x0605_0403,
            length: 0x0A09_0807,
            xid: 0x0E0D_0C0B,
        };
        assert_eq!(
            entry.encode(),
            [3, 0xF0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
        );
    }
}
