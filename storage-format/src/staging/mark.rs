//! What a staged file has beside its blocks, for those who read it while it grows.

use pg_proto::{Lsn, PgTimestamp, Xid};

use crate::checksum::crc32;
use crate::codec::Fields;

/// Bytes of a mark.
pub(crate) const MARK_LEN: usize = 64;
const MAGIC: [u8; 8] = *b"DECANTMK";
const CRC_OFFSET: usize = MARK_LEN - 4;

/// What a mark says. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum MarkKind {
    /// The transaction begins: position and send time of its first STREAM START.
    Begin = 1,
    /// A subtransaction is rolled back.
    Aborted = 2,
    /// The transaction commits there.
    Committed = 3,
    /// It is prepared there.
    Prepared = 4,
    /// It is rolled back.
    RolledBack = 5,
}

/// One mark. The layout is in `FORMAT.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) kind: MarkKind,
    /// The transaction, or the subtransaction that is rolled back.
    pub(crate) xid: Xid,
    pub(crate) lsn: Lsn,
    pub(crate) time: PgTimestamp,
    /// Everything that commits below this came before the mark.
    pub(crate) position: Lsn,
}

impl Mark {
    pub(super) fn encode(&self) -> [u8; MARK_LEN] {
        let mut bytes = Vec::with_capacity(MARK_LEN);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[self.kind as u8, 0, 0, 0]);
        bytes.extend_from_slice(&self.xid.0.to_le_bytes());
        bytes.extend_from_slice(&self.lsn.0.to_le_bytes());
        bytes.extend_from_slice(&self.time.0.to_le_bytes());
        bytes.extend_from_slice(&self.position.0.to_le_bytes());
        bytes.resize(CRC_OFFSET, 0);
        let crc = crc32(&[&bytes]);
        bytes.extend_from_slice(&crc.to_le_bytes());
        let mut mark = [0; MARK_LEN];
        mark.copy_from_slice(&bytes);
        mark
    }

    /// Whether what begins like this may be a mark.
    pub(crate) fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// The mark at the start of `bytes`, if there is a sound one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MARK_LEN] = bytes.first_chunk()?;
        let (content, crc) = bytes.split_last_chunk()?;
        if u32::from_le_bytes(*crc) != crc32(&[content]) {
            return None;
        }
        let mut fields = Fields::new(content);
        if fields.array() != MAGIC {
            return None;
        }
        let kind = match fields.array() {
            [1, 0, 0, 0] => MarkKind::Begin,
            [2, 0, 0, 0] => MarkKind::Aborted,
            [3, 0, 0, 0] => MarkKind::Committed,
            [4, 0, 0, 0] => MarkKind::Prepared,
            [5, 0, 0, 0] => MarkKind::RolledBack,
            _ => return None,
        };
        let mark = Self {
            kind,
            xid: Xid(fields.u32()),
            lsn: Lsn(fields.u64()),
            time: PgTimestamp(fields.i64()),
            position: Lsn(fields.u64()),
        };
        (fields.array() == [0; 20]).then_some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark {
        kind: MarkKind::Aborted,
        xid: Xid(701),
        lsn: Lsn(0x1234),
        time: PgTimestamp(-5),
        position: Lsn(0x1000),
    };

    #[test]
    fn comes_back_as_it_was() {
        for kind in [
            MarkKind::Begin,
            MarkKind::Aborted,
            MarkKind::Committed,
            MarkKind::Prepared,
            MarkKind::RolledBack,
        ] {
            let mark = Mark { kind, ..MARK };
            assert_eq!(Mark::decode(&mark.encode()), Some(mark));
        }
    }

    #[test]
    fn what_is_cut_off_or_changed_is_none() {
        let bytes = MARK.encode();
        for length in 0..MARK_LEN {
            assert_eq!(Mark::decode(&bytes[..length]), None);
        }
        for at in 0..MARK_LEN {
            let mut bytes = bytes;
            bytes[at] ^= 0x10;
            assert_eq!(Mark::decode(&bytes), None, "byte {at}");
        }
    }

    #[test]
    fn golden_bytes() {
        let hex: String = MARK.encode().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "444543414e544d4b02000000bd0200003412000000000000fbffffffffffffff0010000000000000\
             0000000000000000000000000000000000000000ac7431fb"
        );
    }
}
