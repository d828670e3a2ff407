//! Reading a segment file from front to back without mapping it.

use std::path::{Path, PathBuf};

use crate::block::{BLOCK_HEADER_LEN, BlockHeader, DecodedHeader};
use crate::checksum::crc32;
use crate::error::{Damage, FormatError};
use crate::fs::{FsFile, read_full_at};

/// Bytes read at once.
const WINDOW_LEN: usize = 1 << 20;

/// A part of a file in memory, which moves forward.
#[derive(Debug)]
pub(crate) struct FileWindow<'a> {
    file: &'a dyn FsFile,
    path: PathBuf,
    file_len: u64,
    window_len: usize,
    start: u64,
    buffer: Vec<u8>,
}

/// A block that was found sound: header, chain and body checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundBlock {
    pub(crate) header: BlockHeader,
    pub(crate) crc: u32,
    pub(crate) offset: u64,
    pub(crate) prefix_len: usize,
    /// Offset behind it.
    pub(crate) end: u64,
}

impl<'a> FileWindow<'a> {
    pub(crate) fn new(file: &'a dyn FsFile, path: &Path) -> Result<Self, FormatError> {
        Self::with_window(file, path, WINDOW_LEN)
    }

    /// One that reads `window_len` bytes at once.
    pub(crate) fn with_window(
        file: &'a dyn FsFile,
        path: &Path,
        window_len: usize,
    ) -> Result<Self, FormatError> {
        let file_len = file.length().map_err(FormatError::io("measure", path))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            file_len,
            window_len,
            start: 0,
            buffer: Vec::new(),
        })
    }

    pub(crate) const fn file_len(&self) -> u64 {
        self.file_len
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// `need` bytes at `offset`, or as many as the file has there.
    pub(crate) fn bytes(&mut self, offset: u64, need: usize) -> Result<&[u8], FormatError> {
        let left = usize::try_from(self.file_len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let need = need.min(left);
        let held = self.start..self.start + self.buffer.len() as u64;
        if !(held.start <= offset && offset + need as u64 <= held.end) {
            self.fill(offset, need.max(self.window_len).min(left))?;
        }
        let from = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        let rest = self.buffer.get(from..).unwrap_or_default();
        Ok(rest.get(..need).unwrap_or(rest))
    }

    fn fill(&mut self, offset: u64, length: usize) -> Result<(), FormatError> {
        self.start = offset;
        self.buffer.resize(length, 0);
        let read = read_full_at(self.file, &mut self.buffer, offset)
            .map_err(FormatError::io("read", &self.path))?;
        self.buffer.truncate(read);
        Ok(())
    }

    /// The block at `offset`, whose header must follow the one with checksum `chain`. The outer error is one of
    /// reading; the inner one says what is wrong with what was read.
    pub(crate) fn block(
        &mut self,
        offset: u64,
        chain: u32,
    ) -> Result<Result<FoundBlock, Damage>, FormatError> {
        let found = match self.header(offset)? {
            Ok(found) => found,
            Err(damage) => return Ok(Err(damage)),
        };
        if found.header.chain != chain {
            return Ok(Err(Damage::mismatch(
                "checksum of the header before",
                format_args!("{chain:08x}"),
                format_args!("{:08x}", found.header.chain),
            )));
        }
        let expected = found.header.body_crc;
        let computed = crc32(&[self.stored_body(&found)?]);
        if computed != expected {
            return Ok(Err(Damage::mismatch(
                "body checksum",
                format_args!("{expected:08x}"),
                format_args!("{computed:08x}"),
            )));
        }
        Ok(Ok(found))
    }

    /// The header at `offset`, with a body that fits into the file.
    pub(crate) fn header(
        &mut self,
        offset: u64,
    ) -> Result<Result<FoundBlock, Damage>, FormatError> {
        let prefix_len = match BlockHeader::prefix_len(self.bytes(offset, BLOCK_HEADER_LEN)?) {
            Ok(prefix_len) => prefix_len,
            Err(error) => return Ok(Err(error.into())),
        };
        let file_len = self.file_len;
        Ok(match BlockHeader::decode(self.bytes(offset, prefix_len)?) {
            Ok(decoded) => found(&decoded, offset, file_len),
            Err(error) => Err(error.into()),
        })
    }

    /// The body as it is stored.
    pub(crate) fn stored_body(&mut self, block: &FoundBlock) -> Result<&[u8], FormatError> {
        let start = block.offset + block.prefix_len as u64;
        self.bytes(start, block.header.stored_len as usize)
    }

    /// The relation set, 4 bytes each.
    pub(crate) fn relations(&mut self, block: &FoundBlock) -> Result<&[u8], FormatError> {
        let length = block.header.relation_count as usize * 4;
        let start = block.offset + (block.prefix_len - length) as u64;
        self.bytes(start, length)
    }
}

fn found(decoded: &DecodedHeader<'_>, offset: u64, have: u64) -> Result<FoundBlock, Damage> {
    let end = offset + decoded.block_len();
    if end > have {
        return Err(Damage::TooShort {
            what: "the block",
            need: end,
            have,
        });
    }
    Ok(FoundBlock {
        header: decoded.header,
        crc: decoded.crc,
        offset,
        prefix_len: decoded.prefix_len,
        end,
    })
}
