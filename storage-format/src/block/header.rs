//! The header of a block and its relation set.

use pg_proto::{Lsn, Oid, PgTimestamp};

use super::{BlockFlags, BlockKind, Codec, ENTRY_LEN};
use crate::checksum::crc32;
use crate::codec::{Fields, index, offset};

/// Bytes of a block header of this version, relation set not included.
pub const BLOCK_HEADER_LEN: usize = 128;
/// Largest header that a reader accepts, for fields of later versions.
const HEADER_LEN_MAX: usize = 4096;
/// Most relations in a block's set.
pub const RELATIONS_MAX: usize = 1 << 20;
/// Most bytes of a body before compression. PostgreSQL's largest message is 1 GiB.
pub const RAW_LEN_MAX: usize = (1 << 31) - 1;

const MAGIC: [u8; 4] = *b"DBLK";
const CRC_OFFSET: usize = BLOCK_HEADER_LEN - 4;
const RESERVED_LEN: usize = 20;

/// What is known about a block without its body. The layout is in `FORMAT.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// What the block is.
    pub kind: BlockKind,
    /// How its body is stored.
    pub codec: Codec,
    /// What it contains.
    pub flags: BlockFlags,
    /// Relations in its set.
    pub relation_count: u32,
    /// Bytes of the body in the file.
    pub stored_len: u32,
    /// Records.
    pub entry_count: u32,
    /// Records that are events, see [`RecordKind::is_event`](crate::record::RecordKind::is_event).
    pub event_count: u32,
    /// Transactions that end in it.
    pub transaction_count: u32,
    /// Bytes of the frames section.
    pub frames_len: u32,
    /// Bytes of the aux section.
    pub aux_len: u32,
    /// Commit LSN of the first transaction that has records in it, `0/0` if there is none. A logical message that
    /// stands alone counts as a transaction at its own LSN here.
    pub first_commit_lsn: Lsn,
    /// The same of the last one.
    pub last_commit_lsn: Lsn,
    /// The log's position behind the block: end of the last whole transaction, or progress, in or before it.
    pub end_lsn: Lsn,
    /// Ordinal of the first event, if the block starts inside a transaction; else 0.
    pub first_ordinal: u64,
    /// Commit time of the first transaction.
    pub first_commit_time: PgTimestamp,
    /// The highest commit time, as a rule that of the last transaction. They are taken before commit records
    /// are written, so they are not in order to the microsecond.
    pub last_commit_time: PgTimestamp,
    /// The file was durable up to this offset when the block was written; 0 in sealed files.
    pub synced_offset: u64,
    /// [`Self::encode`]d checksum of the header before this one; of the segment header for the first block.
    pub chain: u32,
    /// Checksum of the stored body.
    pub body_crc: u32,
}

/// A block header can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The bytes end inside the header or its relation set.
    #[error("{need} bytes needed, {have} are there")]
    Truncated {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// It does not begin as a block does.
    #[error("magic {found:02x?}, expected {MAGIC:02x?}")]
    Magic {
        /// The first bytes.
        found: [u8; 4],
    },
    /// A length that can't be right.
    #[error("{field} is {found}, allowed are {min} to {max}")]
    Length {
        /// The field.
        field: &'static str,
        /// Its value.
        found: usize,
        /// Lowest value.
        min: usize,
        /// Highest value.
        max: usize,
    },
    /// The checksum is wrong.
    #[error("checksum {found:08x}, computed {computed:08x}")]
    Checksum {
        /// The stored checksum.
        found: u32,
        /// The right one for these bytes.
        computed: u32,
    },
    /// A kind, codec or flag that this version does not know.
    #[error("{field} is {found}, which format version 1 does not know")]
    Unknown {
        /// The field.
        field: &'static str,
        /// Its value.
        found: u32,
    },
    /// Bytes that are reserved for later are not zero.
    #[error("reserved bytes are not zero")]
    Reserved,
}

/// A decoded header with what it needs to go on.
#[derive(Clone, Copy, Debug)]
pub struct DecodedHeader<'a> {
    /// The header.
    pub header: BlockHeader,
    /// The relation set, 4 bytes each, little-endian.
    pub relations: &'a [u8],
    /// Bytes of header and relation set: the body's offset from the block's start.
    pub prefix_len: usize,
    /// The header's own checksum, which the next block's `chain` repeats.
    pub crc: u32,
}

impl DecodedHeader<'_> {
    /// Bytes of the whole block.
    #[must_use]
    pub const fn block_len(&self) -> u64 {
        offset(self.prefix_len) + self.header.stored_len as u64
    }
}

impl BlockHeader {
    /// A header of `kind` without content.
    #[must_use]
    pub const fn empty(kind: BlockKind) -> Self {
        Self {
            kind,
            codec: Codec::Raw,
            flags: BlockFlags::NONE,
            relation_count: 0,
            stored_len: 0,
            entry_count: 0,
            event_count: 0,
            transaction_count: 0,
            frames_len: 0,
            aux_len: 0,
            first_commit_lsn: Lsn::INVALID,
            last_commit_lsn: Lsn::INVALID,
            end_lsn: Lsn::INVALID,
            first_ordinal: 0,
            first_commit_time: PgTimestamp(0),
            last_commit_time: PgTimestamp(0),
            synced_offset: 0,
            chain: 0,
            body_crc: 0,
        }
    }

    /// Bytes of the body before compression.
    #[must_use]
    pub const fn raw_len(&self) -> usize {
        index(self.entry_count) * ENTRY_LEN + index(self.frames_len) + index(self.aux_len)
    }

    /// Appends header and relation set to `out`; returns the header's checksum.
    pub fn encode(&self, relations: &[Oid], out: &mut Vec<u8>) -> u32 {
        let start = out.len();
        self.put_fields(out);
        for relation in relations {
            out.extend_from_slice(&relation.0.to_le_bytes());
        }
        self.seal(start, out)
    }

    /// [`Self::encode`] with a relation set that is encoded already.
    pub(crate) fn encode_with(&self, relations: &[u8], out: &mut Vec<u8>) -> u32 {
        let start = out.len();
        self.put_fields(out);
        out.extend_from_slice(relations);
        self.seal(start, out)
    }

    /// Puts the checksum into the header that begins at `start` and ends with `out`.
    fn seal(&self, start: usize, out: &mut [u8]) -> u32 {
        let relations_len = index(self.relation_count) * 4;
        debug_assert_eq!(out.len() - start, BLOCK_HEADER_LEN + relations_len);
        let crc = prefix_crc(out.get(start..).unwrap_or_default(), BLOCK_HEADER_LEN);
        if let Some(place) = out.get_mut(start + CRC_OFFSET..start + BLOCK_HEADER_LEN) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
        crc
    }

    fn put_fields(&self, out: &mut Vec<u8>) {
        const HEADER_LEN: u16 = 128;
        const _: () = assert!(HEADER_LEN as usize == BLOCK_HEADER_LEN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&HEADER_LEN.to_le_bytes());
        out.extend_from_slice(&[self.kind.id(), self.codec.id()]);
        for field in [
            self.flags.bits(),
            self.relation_count,
            self.stored_len,
            self.entry_count,
            self.event_count,
            self.transaction_count,
            self.frames_len,
            self.aux_len,
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        for field in [
            self.first_commit_lsn.0,
            self.last_commit_lsn.0,
            self.end_lsn.0,
            self.first_ordinal,
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.first_commit_time.0.to_le_bytes());
        out.extend_from_slice(&self.last_commit_time.0.to_le_bytes());
        out.extend_from_slice(&self.synced_offset.to_le_bytes());
        out.extend_from_slice(&self.chain.to_le_bytes());
        out.extend_from_slice(&self.body_crc.to_le_bytes());
        out.extend_from_slice(&[0; RESERVED_LEN + 4]); // the checksum comes last
    }

    /// Bytes of header and relation set, from the first [`BLOCK_HEADER_LEN`] bytes. What is found here is not
    /// checked against the checksum yet; it is within limits, so that it can be read.
    pub fn prefix_len(bytes: &[u8]) -> Result<usize, HeaderError> {
        require(bytes, BLOCK_HEADER_LEN)?;
        let mut fields = Fields::new(bytes);
        let magic = fields.array();
        if magic != MAGIC {
            return Err(HeaderError::Magic { found: magic });
        }
        let header_len = usize::from(fields.u16());
        within(
            "header length",
            header_len,
            BLOCK_HEADER_LEN,
            HEADER_LEN_MAX,
        )?;
        let _kind_codec_flags: [u8; 6] = fields.array();
        let relations = index(fields.u32());
        within("relation count", relations, 0, RELATIONS_MAX)?;
        Ok(header_len + relations * 4)
    }

    /// Decodes and checks header and relation set at the start of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<DecodedHeader<'_>, HeaderError> {
        let prefix_len = Self::prefix_len(bytes)?;
        let have = bytes.len();
        let need = prefix_len;
        let prefix = bytes
            .get(..prefix_len)
            .ok_or(HeaderError::Truncated { need, have })?;
        let header_len = header_len(prefix);
        let crc = check_crc(prefix, header_len)?;
        let header = Self::take_fields(prefix)?;
        let raw_len = header.raw_len();
        within("body length", raw_len, 0, RAW_LEN_MAX)?;
        if header.codec == Codec::Raw {
            within("stored length", index(header.stored_len), raw_len, raw_len)?;
        }
        let relations = prefix.get(header_len..).unwrap_or_default();
        Ok(DecodedHeader {
            header,
            relations,
            prefix_len,
            crc,
        })
    }

    fn take_fields(prefix: &[u8]) -> Result<Self, HeaderError> {
        let unknown = |field, found| HeaderError::Unknown { field, found };
        let mut fields = Fields::new(prefix);
        let _magic_and_length: [u8; 6] = fields.array();
        let (kind, codec, flags) = (fields.u8(), fields.u8(), fields.u32());
        let header = Self {
            kind: BlockKind::from_id(kind).ok_or_else(|| unknown("kind", kind.into()))?,
            codec: Codec::from_id(codec).ok_or_else(|| unknown("codec", codec.into()))?,
            flags: BlockFlags::from_bits(flags).ok_or_else(|| unknown("flags", flags))?,
            relation_count: fields.u32(),
            stored_len: fields.u32(),
            entry_count: fields.u32(),
            event_count: fields.u32(),
            transaction_count: fields.u32(),
            frames_len: fields.u32(),
            aux_len: fields.u32(),
            first_commit_lsn: Lsn(fields.u64()),
            last_commit_lsn: Lsn(fields.u64()),
            end_lsn: Lsn(fields.u64()),
            first_ordinal: fields.u64(),
            first_commit_time: PgTimestamp(fields.i64()),
            last_commit_time: PgTimestamp(fields.i64()),
            synced_offset: fields.u64(),
            chain: fields.u32(),
            body_crc: fields.u32(),
        };
        if fields.array::<RESERVED_LEN>() == [0; RESERVED_LEN] {
            Ok(header)
        } else {
            Err(HeaderError::Reserved)
        }
    }
}

fn header_len(prefix: &[u8]) -> usize {
    let mut fields = Fields::new(prefix.get(MAGIC.len()..).unwrap_or_default());
    usize::from(fields.u16())
}

/// The checksum covers the header up to its own field, and what follows it: fields of later versions, and
/// the relation set.
fn prefix_crc(prefix: &[u8], header_len: usize) -> u32 {
    debug_assert!(prefix.len() >= header_len);
    let before = prefix.get(..CRC_OFFSET).unwrap_or_default();
    let behind = prefix.get(BLOCK_HEADER_LEN..).unwrap_or_default();
    crc32(&[before, behind])
}

fn check_crc(prefix: &[u8], header_len: usize) -> Result<u32, HeaderError> {
    let mut field = Fields::new(prefix.get(CRC_OFFSET..).unwrap_or_default());
    let found = field.u32();
    let computed = prefix_crc(prefix, header_len);
    if found == computed {
        Ok(computed)
    } else {
        Err(HeaderError::Checksum { found, computed })
    }
}

const fn require(bytes: &[u8], need: usize) -> Result<(), HeaderError> {
    let have = bytes.len();
    if have < need {
        return Err(HeaderError::Truncated { need, have });
    }
    Ok(())
}

const fn within(
    field: &'static str,
    found: usize,
    min: usize,
    max: usize,
) -> Result<(), HeaderError> {
    if found < min || found > max {
        return Err(HeaderError::Length {
            field,
            found,
            min,
            max,
        });
    }
    Ok(())
}
