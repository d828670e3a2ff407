//! The bytes of the file.

use pg_proto::Lsn;

use crate::checksum::crc32;
use crate::codec::Fields;
use crate::segment::SegmentName;

pub(super) const HEADER_LEN: usize = 64;
pub(super) const ENTRY_LEN: usize = 16;
/// Where [`encode_oldest`] goes.
pub(super) const OLDEST_OFFSET: u64 = 32;
pub(super) const OLDEST_LEN: usize = 12;

const MAGIC: [u8; 8] = *b"DECANTNM";
const VERSION: u16 = 1;
/// Bytes that the header's checksum covers.
const COVERED_LEN: usize = 28;

/// What stands before the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Sequence of the first entry.
    pub(super) first: u64,
    /// Sequence of a segment: those before it were deleted.
    pub(super) oldest: u64,
}

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER_LEN] {
        let mut out = Vec::with_capacity(HEADER_LEN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&u16::try_from(ENTRY_LEN).unwrap_or_default().to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.first.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        debug_assert_eq!(out.len(), COVERED_LEN);
        out.extend_from_slice(&crc32(&[&out]).to_le_bytes());
        out.extend_from_slice(&encode_oldest(self.oldest));
        let mut header = [0; HEADER_LEN];
        for (place, byte) in header.iter_mut().zip(out) {
            *place = byte;
        }
        header
    }

    /// `None` if anything is not as this version writes it.
    pub(super) fn decode(bytes: &[u8; HEADER_LEN]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        let magic: [u8; 8] = fields.array();
        let (version, entry_len) = (fields.u16(), fields.u16());
        let _reserved = fields.u32();
        let first = fields.u64();
        let _reserved = fields.u32();
        let checksum = fields.u32();
        let oldest: [u8; OLDEST_LEN] = fields.array();
        let covered = bytes.get(..COVERED_LEN)?;
        if (magic, version, usize::from(entry_len)) != (MAGIC, VERSION, ENTRY_LEN)
            || checksum != crc32(&[covered])
        {
            return None;
        }
        Some(Self {
            first,
            oldest: decode_oldest(&oldest)?,
        })
    }

    /// Where the entry of a segment is in the file.
    pub(super) fn place(&self, sequence: u64) -> Option<u64> {
        let number = sequence.checked_sub(self.first)?;
        number
            .checked_mul(ENTRY_LEN as u64)?
            .checked_add(HEADER_LEN as u64)
    }
}

/// The only part of the header that changes, with its checksum.
pub(super) fn encode_oldest(oldest: u64) -> [u8; OLDEST_LEN] {
    let mut out = [0; OLDEST_LEN];
    let bytes = oldest.to_le_bytes();
    let sum = crc32(&[&bytes]).to_le_bytes();
    for (place, byte) in out.iter_mut().zip(bytes.into_iter().chain(sum)) {
        *place = byte;
    }
    out
}

fn decode_oldest(bytes: &[u8; OLDEST_LEN]) -> Option<u64> {
    let oldest = Fields::new(bytes).u64();
    (encode_oldest(oldest) == *bytes).then_some(oldest)
}

/// A segment's entry: its first LSN, a checksum that is right for this sequence only, reserved (0).
pub(super) fn encode_entry(name: SegmentName) -> [u8; ENTRY_LEN] {
    let mut out = [0; ENTRY_LEN];
    let (sequence, first_lsn) = (name.sequence.to_le_bytes(), name.first_lsn.0.to_le_bytes());
    let sum = crc32(&[&sequence, &first_lsn]).to_le_bytes();
    for (place, byte) in out.iter_mut().zip(first_lsn.into_iter().chain(sum)) {
        *place = byte;
    }
    out
}

/// The inverse of [`encode_entry`]; `None` if it is not this segment's, torn or damaged.
pub(super) fn decode_entry(sequence: u64, bytes: &[u8; ENTRY_LEN]) -> Option<SegmentName> {
    let first_lsn = Lsn(Fields::new(bytes).u64());
    let name = SegmentName {
        sequence,
        first_lsn,
    };
    (encode_entry(name) == *bytes).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trips(first: u64, oldest: u64, sequence: u64, lsn: u64) {
            let header = Header { first, oldest };
            prop_assert_eq!(Header::decode(&header.encode()), Some(header));
            let name = SegmentName { sequence, first_lsn: Lsn(lsn) };
            let entry = encode_entry(name);
            prop_assert_eq!(decode_entry(sequence, &entry), Some(name));
            prop_assert_eq!(decode_entry(sequence ^ 1, &entry), None);
        }

        #[test]
        fn a_changed_byte_is_noticed(
            (first, sequence, lsn) in any::<(u64, u64, u64)>(),
            at in 0..HEADER_LEN,
            change in 1_u8..,
        ) {
            let mut header = Header { first, oldest: first }.encode();
            header[at] ^= change;
            let reserved = at >= 32 + OLDEST_LEN;
            prop_assert_eq!(Header::decode(&header).is_some(), reserved);
            let mut entry = encode_entry(SegmentName { sequence, first_lsn: Lsn(lsn) });
            entry[at % ENTRY_LEN] ^= change;
            prop_assert_eq!(decode_entry(sequence, &entry), None);
        }
    }
}
