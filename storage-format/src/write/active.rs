//! The file that is being appended to.

use std::io::{self, IoSlice};
use std::path::PathBuf;

use crate::block::{BLOCK_HEADER_LEN, BlockHeader, BlockKind};
use crate::error::FormatError;
use crate::failpoint::{self, hit};
use crate::fs::{FsFile, write_all_at};
use crate::segment::SegmentName;

/// A file grows by at least this much when a transaction outgrows it.
const GROW_LEN_MAX: u64 = 16 << 20;

/// An offset between two blocks, and what the next block's header needs to know of what is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tip {
    pub(crate) offset: u64,
    pub(crate) chain: u32,
}

/// A segment file with its end. Nothing here decides what a failure means.
#[derive(Debug)]
pub(super) struct ActiveFile {
    pub(super) file: Box<dyn FsFile>,
    pub(super) path: PathBuf,
    pub(super) name: SegmentName,
    pub(super) tip: Tip,
    /// Bytes that the file has room for.
    pub(super) allocated: u64,
    /// Durable up to here; a rewind never goes below.
    pub(super) synced_offset: u64,
}

impl ActiveFile {
    /// Makes room for `length` bytes at the end, and for the segment-end block behind them, so that ending the
    /// segment never needs space.
    pub(super) fn reserve(&mut self, length: u64) -> Result<(), FormatError> {
        let need = self.tip.offset + length + BLOCK_HEADER_LEN as u64;
        if need <= self.allocated {
            return Ok(());
        }
        let generous = need + (need / 4).min(GROW_LEN_MAX);
        self.grow(generous).or_else(|_| self.grow(need))
    }

    fn grow(&mut self, end: u64) -> Result<(), FormatError> {
        self.file
            .allocate(self.allocated, end - self.allocated)
            .map_err(FormatError::io("grow", &self.path))?;
        self.allocated = end;
        Ok(())
    }

    /// Writes a block that was encoded into `pieces` (prefix first); its header's checksum is `crc`.
    pub(super) fn write_block(
        &mut self,
        pieces: &mut [IoSlice<'_>],
        crc: u32,
    ) -> Result<(), FormatError> {
        let length: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        hit("append.before");
        if failpoint::is_due("append.torn") {
            self.tear(pieces);
        }
        write_all_at(&*self.file, pieces, self.tip.offset)
            .map_err(FormatError::io("write", &self.path))?;
        hit("append.after");
        self.tip = Tip {
            offset: self.tip.offset + length,
            chain: crc,
        };
        Ok(())
    }

    /// For tests: a part of a block, and the end.
    fn tear(&self, pieces: &[IoSlice<'_>]) {
        let all: Vec<u8> = pieces
            .iter()
            .flat_map(|piece| piece.iter().copied())
            .collect();
        let half = all.get(..all.len() / 2).unwrap_or_default();
        // Whether it can be written or not, nothing follows.
        let _ = write_all_at(&*self.file, &mut [IoSlice::new(half)], self.tip.offset);
        failpoint::die();
    }

    /// Writes a block whose body is `length` bytes at `body_at` of another file.
    pub(super) fn write_block_from(
        &mut self,
        prefix: &[u8],
        crc: u32,
        from: &dyn FsFile,
        body_at: u64,
        length: u64,
    ) -> Result<(), FormatError> {
        let start = self.tip.offset;
        let body_start = start + prefix.len() as u64;
        write_all_at(&*self.file, &mut [IoSlice::new(prefix)], start)
            .inspect(|()| hit("append_staged.header"))
            .and_then(|()| copy_all(&*self.file, body_start, from, body_at, length))
            .map_err(FormatError::io("copy to", &self.path))?;
        hit("append_staged.after");
        self.tip = Tip {
            offset: body_start + length,
            chain: crc,
        };
        Ok(())
    }

    /// Writes a block that has no body.
    pub(super) fn write_mark(&mut self, header: &BlockHeader) -> Result<(), FormatError> {
        debug_assert!(matches!(
            header.kind,
            BlockKind::Progress | BlockKind::SegmentEnd | BlockKind::Gap
        ));
        let mut bytes = Vec::with_capacity(BLOCK_HEADER_LEN);
        let header = BlockHeader {
            chain: self.tip.chain,
            synced_offset: self.synced_offset,
            ..*header
        };
        let crc = header.encode(&[], &mut bytes);
        self.write_block(&mut [IoSlice::new(&bytes)], crc)
    }

    pub(super) fn sync(&self) -> Result<(), FormatError> {
        hit("fsync.before");
        self.file
            .sync_data()
            .map_err(FormatError::sync(&self.path))?;
        hit("fsync.after");
        Ok(())
    }
}

fn copy_all(
    to: &dyn FsFile,
    to_offset: u64,
    from: &dyn FsFile,
    from_offset: u64,
    length: u64,
) -> io::Result<()> {
    let mut done = 0;
    while done < length {
        match to.copy_from(from, from_offset + done, to_offset + done, length - done) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(copied) => done += copied,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
