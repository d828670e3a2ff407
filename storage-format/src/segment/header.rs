//! The header of a segment file.

use std::path::Path;

use pg_proto::Lsn;

use super::SegmentName;
use crate::checksum::crc32;
use crate::codec::Fields;
use crate::error::{Damage, FormatError};
use crate::identity::{Identity, NAME_LEN_MAX};
use crate::version::FORMAT_VERSION;

/// Bytes of a segment header; the first block follows.
pub const SEGMENT_HEADER_LEN: usize = 256;

const MAGIC: [u8; 8] = *b"DECANTSG";
const NAME_FIELD_LEN: usize = NAME_LEN_MAX + 1;
const RESERVED_LEN: usize = 60;
const CRC_OFFSET: usize = SEGMENT_HEADER_LEN - 4;
const SEALED: u32 = 1;

/// Whose segment it is and where it begins. The layout is in `FORMAT.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The origin of the content.
    pub identity: Identity,
    /// Sequence and first LSN, as the file's name has them.
    pub name: SegmentName,
    /// Whether the file is sealed.
    pub sealed: bool,
    /// Commit LSN of the last transaction before this segment, `0/0` if there is none.
    pub last_commit_lsn: Lsn,
}

/// A segment header can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentHeaderError {
    /// The file ends inside the header.
    #[error("{SEGMENT_HEADER_LEN} bytes needed, {have} are there")]
    Truncated {
        /// Bytes there.
        have: usize,
    },
    /// It does not begin as a segment does.
    #[error("magic {found:02x?}, expected {MAGIC:02x?}")]
    Magic {
        /// The first bytes.
        found: [u8; 8],
    },
    /// Another version wrote it.
    #[error("format version {found}, this build reads version {FORMAT_VERSION}")]
    Version {
        /// The version.
        found: u16,
    },
    /// The checksum is wrong.
    #[error("checksum {found:08x}, computed {computed:08x}")]
    Checksum {
        /// The stored checksum.
        found: u32,
        /// The right one for these bytes.
        computed: u32,
    },
    /// A field has a value that this version does not allow.
    #[error("{field} is not what version {FORMAT_VERSION} allows")]
    Field {
        /// The field.
        field: &'static str,
    },
}

impl SegmentHeader {
    /// The stored bytes and their checksum, which the first block's `chain` repeats.
    pub fn encode(&self) -> Result<(Vec<u8>, u32), FormatError> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_LEN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0, 1]); // header length 256, little-endian
        out.extend_from_slice(&u32::from(self.sealed).to_le_bytes());
        out.extend_from_slice(&self.identity.system_identifier.to_le_bytes());
        out.extend_from_slice(&self.identity.timeline.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for field in [
            self.identity.writer_epoch,
            self.name.sequence,
            self.name.first_lsn.0,
            self.last_commit_lsn.0,
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        put_name(&mut out, "database name", &self.identity.database)?;
        put_name(&mut out, "slot name", &self.identity.slot)?;
        out.extend_from_slice(&[0; RESERVED_LEN]);
        debug_assert_eq!(out.len(), CRC_OFFSET);
        let crc = crc32(&[&out]);
        out.extend_from_slice(&crc.to_le_bytes());
        Ok((out, crc))
    }

    /// Decodes and checks the first [`SEGMENT_HEADER_LEN`] bytes of a segment; also returns their checksum.
    pub fn decode(bytes: &[u8]) -> Result<(Self, u32), SegmentHeaderError> {
        let have = bytes.len();
        let bytes = bytes
            .first_chunk::<SEGMENT_HEADER_LEN>()
            .ok_or(SegmentHeaderError::Truncated { have })?;
        let mut fields = Fields::new(bytes);
        let magic = fields.array();
        if magic != MAGIC {
            return Err(SegmentHeaderError::Magic { found: magic });
        }
        let version = fields.u16();
        if version != FORMAT_VERSION {
            return Err(SegmentHeaderError::Version { found: version });
        }
        let crc = check_crc(bytes)?;
        expect(fields.array() == [0, 1], "header length")?;
        let flags = fields.u32();
        expect(flags & !SEALED == 0, "flags")?;
        let header = Self::take_fields(&mut fields, flags == SEALED)?;
        expect(fields.array() == [0; RESERVED_LEN], "reserved bytes")?;
        Ok((header, crc))
    }

    fn take_fields(fields: &mut Fields<'_>, sealed: bool) -> Result<Self, SegmentHeaderError> {
        let (system_identifier, timeline) = (fields.u64(), fields.u32());
        expect(fields.array() == [0; 4], "reserved bytes")?;
        let writer_epoch = fields.u64();
        let name = SegmentName {
            sequence: fields.u64(),
            first_lsn: Lsn(fields.u64()),
        };
        let last_commit_lsn = Lsn(fields.u64());
        let identity = Identity {
            system_identifier,
            timeline,
            database: take_name(fields, "database name")?,
            slot: take_name(fields, "slot name")?,
            writer_epoch,
        };
        Ok(Self {
            identity,
            name,
            sealed,
            last_commit_lsn,
        })
    }

    /// [`Self::decode`] for the file at `path`, whose name must say the same as its header.
    pub fn decode_file(
        bytes: &[u8],
        path: &Path,
        name: SegmentName,
        sealed: bool,
    ) -> Result<(Self, u32), FormatError> {
        let (header, crc) = Self::decode(bytes).map_err(|error| match error {
            SegmentHeaderError::Version { found } => FormatError::Version {
                path: path.to_owned(),
                found,
                supported: FORMAT_VERSION,
            },
            other => Damage::from(other).at(path, 0),
        })?;
        if header.name != name {
            return Err(Damage::mismatch("segment", name, header.name).at(path, 0));
        }
        if header.sealed != sealed {
            return Err(Damage::mismatch("sealed", sealed, header.sealed).at(path, 0));
        }
        Ok((header, crc))
    }
}

fn check_crc(bytes: &[u8; SEGMENT_HEADER_LEN]) -> Result<u32, SegmentHeaderError> {
    let (covered, field) = bytes.split_at(CRC_OFFSET);
    let found = Fields::new(field).u32();
    let computed = crc32(&[covered]);
    if found == computed {
        Ok(computed)
    } else {
        Err(SegmentHeaderError::Checksum { found, computed })
    }
}

const fn expect(right: bool, field: &'static str) -> Result<(), SegmentHeaderError> {
    if right {
        Ok(())
    } else {
        Err(SegmentHeaderError::Field { field })
    }
}

/// Names are filled up with zeros; PostgreSQL's have none inside.
fn put_name(out: &mut Vec<u8>, what: &'static str, name: &str) -> Result<(), FormatError> {
    if name.len() > NAME_LEN_MAX || name.bytes().any(|byte| byte == 0) {
        return Err(FormatError::Unstorable {
            what,
            problem: format!("\"{name}\" is longer than {NAME_LEN_MAX} bytes or has a zero byte"),
        });
    }
    let end = out.len() + NAME_FIELD_LEN;
    out.extend_from_slice(name.as_bytes());
    out.resize(end, 0);
    Ok(())
}

fn take_name(fields: &mut Fields<'_>, field: &'static str) -> Result<String, SegmentHeaderError> {
    let bytes = fields.array::<NAME_FIELD_LEN>();
    let length = bytes.iter().position(|&byte| byte == 0);
    let (name, padding) = bytes.split_at(length.unwrap_or(0));
    expect(
        length.is_some() && padding.iter().all(|&byte| byte == 0),
        field,
    )?;
    String::from_utf8(name.to_vec()).map_err(|_| SegmentHeaderError::Field { field })
}
