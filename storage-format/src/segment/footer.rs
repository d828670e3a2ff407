//! The end of a sealed segment.

use pg_proto::{Lsn, PgTimestamp};

use crate::block::{BLOCK_HEADER_LEN, BlockHeader, BlockKind};
use crate::checksum::crc32;
use crate::codec::{Fields, stored_u32};
use crate::error::Damage;

/// Bytes of the trailer at the very end of a sealed file: where the footer block begins, and a magic.
pub const FOOTER_TRAILER_LEN: usize = 16;

const MAGIC: [u8; 8] = *b"DECANTFT";
const TOTALS_LEN: usize = 88;
/// Bytes of the footer's body: totals, then the trailer.
const BODY_LEN: usize = TOTALS_LEN + FOOTER_TRAILER_LEN;
/// Bytes of a whole footer of this version.
const FOOTER_LEN: usize = BLOCK_HEADER_LEN + BODY_LEN;

/// A sealed segment's totals. The layout is in `FORMAT.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// Offset of the footer block: all before it is header and blocks.
    pub offset: u64,
    /// The log's position behind the segment.
    pub end_lsn: Lsn,
    /// Commit LSN of the first transaction, `0/0` if there is none.
    pub first_commit_lsn: Lsn,
    /// Commit LSN of the last transaction in or before the segment.
    pub last_commit_lsn: Lsn,
    /// Commit time of the first transaction.
    pub first_commit_time: PgTimestamp,
    /// The highest commit time, as a rule that of the last transaction.
    pub last_commit_time: PgTimestamp,
    /// Blocks, the footer not counted.
    pub block_count: u64,
    /// Transactions.
    pub transaction_count: u64,
    /// Records.
    pub entry_count: u64,
    /// Records that are events.
    pub event_count: u64,
    /// Bytes of all bodies before compression.
    pub raw_bytes: u64,
    /// Checksum over the bodies' checksums, each as 4 bytes, in order.
    pub bodies_crc: u32,
}

impl Footer {
    /// The footer block, which goes at [`Self::offset`]. `chain` is the checksum of the last block's header.
    #[must_use]
    pub fn encode(&self, chain: u32) -> Vec<u8> {
        let body = self.encode_body();
        let header = BlockHeader {
            stored_len: stored_u32(body.len()),
            aux_len: stored_u32(body.len()),
            first_commit_lsn: self.first_commit_lsn,
            last_commit_lsn: self.last_commit_lsn,
            end_lsn: self.end_lsn,
            first_commit_time: self.first_commit_time,
            last_commit_time: self.last_commit_time,
            chain,
            body_crc: crc32(&[&body]),
            ..BlockHeader::empty(BlockKind::Footer)
        };
        let mut out = Vec::with_capacity(FOOTER_LEN);
        header.encode(&[], &mut out);
        out.extend_from_slice(&body);
        debug_assert_eq!(out.len(), FOOTER_LEN);
        out
    }

    fn encode_body(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(BODY_LEN);
        for field in [
            self.block_count,
            self.transaction_count,
            self.entry_count,
            self.event_count,
            self.raw_bytes,
        ] {
            body.extend_from_slice(&field.to_le_bytes());
        }
        body.extend_from_slice(&self.bodies_crc.to_le_bytes());
        body.resize(TOTALS_LEN, 0);
        body.extend_from_slice(&self.offset.to_le_bytes());
        body.extend_from_slice(&MAGIC);
        body
    }

    /// Where the footer begins, from the last [`FOOTER_TRAILER_LEN`] bytes of the file.
    pub fn locate(trailer: &[u8], file_len: u64) -> Result<u64, Damage> {
        let mut fields = Fields::new(trailer);
        let (offset, magic) = (fields.u64(), fields.array::<8>());
        if trailer.len() != FOOTER_TRAILER_LEN || magic != MAGIC {
            return Err(Damage::mismatch(
                "footer magic",
                format!("{MAGIC:02x?}"),
                format!("{magic:02x?}"),
            ));
        }
        if offset >= file_len {
            return Err(Damage::mismatch(
                "footer offset",
                format!("less than {file_len}"),
                offset,
            ));
        }
        Ok(offset)
    }

    /// Decodes and checks the footer block `bytes`, which reach from `offset` to the end of the file; also
    /// returns its `chain`.
    pub fn decode(bytes: &[u8], offset: u64) -> Result<(Self, u32), Damage> {
        let block = BlockHeader::decode(bytes)?;
        let header = block.header;
        if header.kind != BlockKind::Footer {
            return Err(Damage::mismatch(
                "block kind",
                format!("{:?}", BlockKind::Footer),
                format!("{:?}", header.kind),
            ));
        }
        let body = bytes.get(block.prefix_len..).unwrap_or_default();
        if body.len() < BODY_LEN || body.len() != header.raw_len() {
            return Err(Damage::mismatch(
                "footer length",
                header.raw_len(),
                body.len(),
            ));
        }
        let computed = crc32(&[body]);
        if computed != header.body_crc {
            return Err(Damage::mismatch(
                "footer checksum",
                computed,
                header.body_crc,
            ));
        }
        let mut fields = Fields::new(body);
        let footer = Self {
            offset,
            end_lsn: header.end_lsn,
            first_commit_lsn: header.first_commit_lsn,
            last_commit_lsn: header.last_commit_lsn,
            first_commit_time: header.first_commit_time,
            last_commit_time: header.last_commit_time,
            block_count: fields.u64(),
            transaction_count: fields.u64(),
            entry_count: fields.u64(),
            event_count: fields.u64(),
            raw_bytes: fields.u64(),
            bodies_crc: fields.u32(),
        };
        Ok((footer, header.chain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer() -> Footer {
        Footer {
            offset: 4096,
            end_lsn: Lsn(900),
            first_commit_lsn: Lsn(100),
            last_commit_lsn: Lsn(800),
            first_commit_time: PgTimestamp(5),
            last_commit_time: PgTimestamp(6),
            block_count: 7,
            transaction_count: 8,
            entry_count: 9,
            event_count: 10,
            raw_bytes: 11,
            bodies_crc: 12,
        }
    }

    #[test]
    fn round_trips() {
        let bytes = footer().encode(77);
        let file_len = 4096 + bytes.len() as u64;
        let trailer = &bytes[bytes.len() - FOOTER_TRAILER_LEN..];
        assert_eq!(Footer::locate(trailer, file_len), Ok(4096));
        assert_eq!(Footer::decode(&bytes, 4096), Ok((footer(), 77)));
    }

    #[test]
    fn every_changed_byte_and_every_truncation_is_noticed() {
        let bytes = footer().encode(77);
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(Footer::decode(&bad, 4096).is_err(), "byte {at}");
            assert!(Footer::decode(&bytes[..at], 4096).is_err(), "length {at}");
        }
    }
}
