//! The index file: its header, and reading it.

use std::io;
use std::path::Path;

use bytes::Bytes;
use pg_proto::Lsn;

use super::{Entries, INDEX_ENTRY_LEN, IndexBuilder, IndexEntry};
use crate::block::{BlockHeader, BlockKind};
use crate::checksum::crc32;
use crate::codec::{Fields, stored_u32};
use crate::error::FormatError;
use crate::fs::{Fs, RealFs};
use crate::mmap::FileMap;
use crate::segment::{
    FileWindow, SEGMENT_HEADER_LEN, SegmentExtension, SegmentHeader, SegmentName,
};

/// Bytes of an index header; the entries follow.
pub const INDEX_HEADER_LEN: usize = 64;

const MAGIC: [u8; 8] = *b"DECANTIX";
const VERSION: u16 = 1;
const CRC_OFFSET: usize = INDEX_HEADER_LEN - 4;
const RESERVED_LEN: usize = 8;

/// An index can't be used. It is made again then.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// It can't be read.
    #[error("it can't be read")]
    Io(#[from] io::Error),
    /// It is not what an index of this segment looks like.
    #[error("{field} is {found}, expected {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
}

/// The index of a sealed segment.
#[derive(Clone, Debug)]
pub struct Index {
    end_lsn: Lsn,
    entries: Bytes,
}

impl Index {
    /// Maps the index of a segment whose file has `segment_len` bytes, and checks it.
    pub fn open(
        fs: &dyn Fs,
        log: &Path,
        name: SegmentName,
        segment_len: u64,
    ) -> Result<Self, IndexError> {
        let file = fs.open_to_map(&name.path(log, SegmentExtension::Index))?;
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let map = FileMap::open(&file, length)?;
        map.fetch(0..length)?;
        let bytes = map.settled(0..length).unwrap_or_default();
        Self::decode(bytes, name, segment_len)
    }

    /// Checks the content of an index file.
    pub fn decode(bytes: Bytes, name: SegmentName, segment_len: u64) -> Result<Self, IndexError> {
        let header = bytes
            .first_chunk::<INDEX_HEADER_LEN>()
            .ok_or_else(|| field("length", INDEX_HEADER_LEN, bytes.len()))?;
        let (covered, crc) = header.split_at(CRC_OFFSET);
        let mut fields = Fields::new(covered);
        expect(
            "magic",
            format!("{MAGIC:02x?}"),
            format!("{:02x?}", fields.array::<8>()),
        )?;
        expect("version", VERSION, fields.u16())?;
        expect("entry length", INDEX_ENTRY_LEN, usize::from(fields.u16()))?;
        expect("header checksum", crc32(&[covered]), Fields::new(crc).u32())?;
        let count = fields.u32();
        expect("sequence", name.sequence, fields.u64())?;
        expect("first LSN", name.first_lsn, Lsn(fields.u64()))?;
        let end_lsn = Lsn(fields.u64());
        expect("segment length", segment_len, fields.u64())?;
        let entries = bytes.slice(INDEX_HEADER_LEN..);
        let (list, rest) = entries.as_chunks::<INDEX_ENTRY_LEN>();
        expect("entry count", u64::from(count), list.len() as u64)?;
        expect("bytes behind the entries", 0, rest.len())?;
        expect("checksum of the entries", crc32(&[&entries]), fields.u32())?;
        if let Some(bad) = list
            .iter()
            .position(|bytes| IndexEntry::decode(bytes).is_none())
        {
            return Err(field("flags of entry", "known", bad));
        }
        Ok(Self { end_lsn, entries })
    }

    /// The log's position behind the segment.
    #[must_use]
    pub const fn end_lsn(&self) -> Lsn {
        self.end_lsn
    }

    /// The entries in order.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = IndexEntry> {
        let (entries, _) = self.entries.as_chunks();
        entries.iter().filter_map(IndexEntry::decode)
    }
}

impl Entries for Index {
    fn count(&self) -> usize {
        self.entries.len() / INDEX_ENTRY_LEN
    }

    fn get(&self, place: usize) -> Option<IndexEntry> {
        let (entries, _) = self.entries.as_chunks();
        entries.get(place).and_then(IndexEntry::decode)
    }
}

/// Makes the content of a sealed segment's index from its block headers.
pub fn rebuild(log: &Path, name: SegmentName) -> Result<Vec<u8>, FormatError> {
    let path = name.path(log, SegmentExtension::Sealed);
    let file = RealFs
        .open_to_read(&path)
        .map_err(FormatError::io("open", &path))?;
    let mut window = FileWindow::new(&*file, &path)?;
    SegmentHeader::decode_file(window.bytes(0, SEGMENT_HEADER_LEN)?, &path, name, true)?;
    build(name, window.file_len(), |offset| {
        let found = window.header(offset)?;
        let found = found.map_err(|damage| damage.at(&path, offset))?;
        Ok((found.header, found.end))
    })
}

/// The same from what `header_at` says of the block at an offset: its header, and the offset behind it.
pub(crate) fn build(
    name: SegmentName,
    segment_len: u64,
    mut header_at: impl FnMut(u64) -> Result<(BlockHeader, u64), FormatError>,
) -> Result<Vec<u8>, FormatError> {
    let mut builder = IndexBuilder::new(name);
    let mut offset = SEGMENT_HEADER_LEN as u64;
    loop {
        let (header, end) = header_at(offset)?;
        builder.push(offset, &header);
        if header.kind == BlockKind::Footer {
            return Ok(builder.finish(segment_len));
        }
        offset = end;
    }
}

/// An index header for these entries.
pub(super) fn encode_header(
    name: SegmentName,
    end_lsn: Lsn,
    segment_len: u64,
    entries: &[u8],
) -> Vec<u8> {
    let count = stored_u32(entries.len() / INDEX_ENTRY_LEN);
    let entry_len = u16::try_from(INDEX_ENTRY_LEN).unwrap_or_default();
    let mut out = Vec::with_capacity(INDEX_HEADER_LEN + entries.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&entry_len.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    for field in [name.sequence, name.first_lsn.0, end_lsn.0, segment_len] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&crc32(&[entries]).to_le_bytes());
    out.extend_from_slice(&[0; RESERVED_LEN]);
    debug_assert_eq!(out.len(), CRC_OFFSET);
    let crc = crc32(&[&out]);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn expect<T: PartialEq + ToString>(
    name: &'static str,
    expected: T,
    found: T,
) -> Result<(), IndexError> {
    if expected == found {
        Ok(())
    } else {
        Err(field(name, expected, found))
    }
}

fn field(name: &'static str, expected: impl ToString, found: impl ToString) -> IndexError {
    IndexError::Field {
        field: name,
        expected: expected.to_string(),
        found: found.to_string(),
    }
}
