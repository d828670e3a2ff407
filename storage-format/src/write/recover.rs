//! Reading a segment back to its end: position, catalog, and where the next block goes.
//!
//! # Rules
//!
//! Blocks are followed by their chain. Where it ends there is either nothing (preallocated zeros, remains of an
//! abandoned transaction) or a write that was not complete, which is cut off. It is damage instead, and an
//! error, if it is known that the file was durable beyond: the watermark says so, or a block that was written
//! later, whose header says how far the file was durable then. What was never durable may be missing in part after
//! a crash of the machine, since pages reach the disk in any order; so a sound block behind a hole alone is no
//! proof.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::active::Tip;
use super::options::CutReason;
use super::state::{LogState, apply_catalog};
use crate::block::{BLOCK_HEADER_LEN, BlockFlags, BlockKind, CommitAt, Sections, raw_body};
use crate::catalog::Catalog;
use crate::error::{Damage, FormatError};
use crate::fs::FsFile;
use crate::segment::{
    FileWindow, FoundBlock, SEGMENT_HEADER_LEN, SegmentHeader, SegmentInfo, SegmentState,
};

/// A segment as it was found.
#[derive(Debug)]
pub(super) struct ScannedSegment {
    pub(super) header: SegmentHeader,
    pub(super) state: LogState,
    /// Behind the last whole transaction.
    pub(super) complete: Tip,
    /// Behind the last sound block.
    pub(super) tip: Tip,
    /// Whether it ends with a segment-end block or a footer.
    pub(super) ended: bool,
    /// Why what is behind `complete` is not part of the log, if there is anything.
    pub(super) cut: Option<CutReason>,
    pub(super) file_len: u64,
}

/// Reads the whole segment. `durable_offset` is what is known from elsewhere.
pub(super) fn scan_segment(
    file: &dyn FsFile,
    segment: &SegmentInfo,
    durable_offset: u64,
) -> Result<ScannedSegment, FormatError> {
    let mut window = FileWindow::new(file, &segment.path)?;
    let sealed = segment.state == SegmentState::Sealed;
    let (header, crc) = SegmentHeader::decode_file(
        window.bytes(0, SEGMENT_HEADER_LEN)?,
        &segment.path,
        segment.name,
        sealed,
    )?;
    let tip = Tip {
        offset: SEGMENT_HEADER_LEN as u64,
        chain: crc,
    };
    let catalog = Arc::new(Catalog::default());
    let state = LogState::new(segment.name.first_lsn, header.last_commit_lsn, catalog);
    let mut scan = Scan {
        durable_offset,
        buffer: Bytes::new(),
        found: ScannedSegment {
            header,
            state,
            complete: tip,
            tip,
            ended: false,
            cut: None,
            file_len: window.file_len(),
        },
    };
    scan.run(&mut window)?;
    Ok(scan.found)
}

struct Scan {
    durable_offset: u64,
    buffer: Bytes,
    found: ScannedSegment,
}

impl Scan {
    fn run(&mut self, window: &mut FileWindow<'_>) -> Result<(), FormatError> {
        while !self.found.ended {
            let tip = self.found.tip;
            match window.block(tip.offset, tip.chain)? {
                Ok(block) => self.take(window, &block)?,
                Err(damage) => return self.stop(window, damage),
            }
        }
        Ok(())
    }

    fn take(&mut self, window: &mut FileWindow<'_>, block: &FoundBlock) -> Result<(), FormatError> {
        let place = |damage: Damage, path: &Path| damage.at(path, block.offset);
        self.durable_offset = self.durable_offset.max(block.header.synced_offset);
        self.found
            .state
            .check(&block.header)
            .map_err(|disorder| place(disorder.into(), window.path()))?;
        let mut catalog = self.found.state.working_catalog();
        if block.header.flags.contains(BlockFlags::HAS_CATALOG) {
            let path = window.path().to_owned();
            let stored = window.stored_body(block)?;
            let body = raw_body(&block.header, stored, &mut self.buffer);
            body.and_then(|body| Sections::split(&block.header, body))
                .and_then(|sections| {
                    let commit = CommitAt::start(&block.header);
                    apply_catalog(&mut catalog, block.header.flags, commit, sections)
                })
                .map_err(|damage| place(damage, &path))?;
        }
        self.found.state.advance(&block.header, catalog);
        self.found.tip = Tip {
            offset: block.end,
            chain: block.crc,
        };
        if self.found.state.open.is_none() {
            self.found.complete = self.found.tip;
        }
        self.found.ended = matches!(block.header.kind, BlockKind::SegmentEnd | BlockKind::Footer);
        Ok(())
    }

    /// The chain ends here. Decides between a torn tail and damage.
    fn stop(&mut self, window: &mut FileWindow<'_>, damage: Damage) -> Result<(), FormatError> {
        let end = self.found.tip.offset;
        if self.found.header.sealed || end < self.durable_offset {
            return Err(damage.at(window.path(), end));
        }
        if durable_behind(window, end)?.is_some() {
            return Err(damage.at(window.path(), end));
        }
        self.found.cut = if self.found.state.open.is_some() {
            Some(CutReason::OpenTransaction)
        } else {
            (!is_blank(window, end)?).then_some(CutReason::Torn(damage))
        };
        self.found.state.open = None;
        Ok(())
    }
}

/// The offset of a block behind `end` that was written when the file was durable beyond `end`.
pub(crate) fn durable_behind(
    window: &mut FileWindow<'_>,
    end: u64,
) -> Result<Option<u64>, FormatError> {
    const STEP: usize = 64 << 10;
    let mut offset = end + 1;
    while offset < window.file_len() {
        let chunk = window.bytes(offset, STEP + BLOCK_HEADER_LEN)?;
        if let Some(at) = chunk.windows(4).position(|bytes| bytes == b"DBLK") {
            let found = offset + at as u64;
            if let Ok(block) = window.header(found)?
                && block.header.synced_offset > end
            {
                return Ok(Some(found));
            }
            offset = found + 1;
        } else {
            offset += STEP as u64;
        }
    }
    Ok(None)
}

/// Whether nothing was ever written at `offset`.
pub(crate) fn is_blank(window: &mut FileWindow<'_>, offset: u64) -> Result<bool, FormatError> {
    let bytes = window.bytes(offset, BLOCK_HEADER_LEN)?;
    Ok(bytes.iter().all(|&byte| byte == 0))
}
