//! Reading one segment from its header to its end, block by block.

use std::sync::Arc;

use bytes::Bytes;
use pg_proto::Lsn;

use super::content::{check_catalog, check_records};
use super::report::{Finding, Gap, Remedy};
use super::walk::{Carried, Checked};
use crate::block::{Block, BlockFlags, BlockHeader, BlockKind};
use crate::catalog::Catalog;
use crate::error::{Damage, FormatError};
use crate::fs::FsFile;
use crate::index::IndexBuilder;
use crate::seal::tally;
use crate::segment::{
    FileWindow, Footer, FoundBlock, SEGMENT_HEADER_LEN, SegmentHeader, SegmentInfo, SegmentState,
};
use crate::write::{LogState, Tip, durable_behind, is_blank};

/// How far a segment is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Nothing at or behind this offset: a decoder is writing there.
    pub(super) limit: Option<u64>,
    /// Known to have been durable up to here.
    pub(super) durable_offset: u64,
    /// Whether the segment may end without a mark: it is the last one.
    pub(super) is_last: bool,
}

pub(super) struct Scan<'a> {
    window: FileWindow<'a>,
    sealed: bool,
    extent: Extent,
    before: &'a Carried,
    bodies: crc32fast::Hasher,
    index: IndexBuilder,
    snapshot_seen: bool,
    checked: Checked,
}

/// Reads a segment. What is wrong with it is in the result; an error means that it can't be read.
pub(super) fn scan(
    file: &dyn FsFile,
    info: &SegmentInfo,
    extent: Extent,
    before: &Carried,
) -> Result<Checked, FormatError> {
    let mut window = FileWindow::new(file, &info.path)?;
    let sealed = info.state == SegmentState::Sealed;
    let mut checked = Checked::new(info, window.file_len(), before);
    let start = window.bytes(0, SEGMENT_HEADER_LEN)?;
    match SegmentHeader::decode_file(start, &info.path, info.name, sealed) {
        Ok((header, crc)) => {
            checked.tip.chain = crc;
            checked.complete = checked.tip;
            checked.state.last_commit_lsn = header.last_commit_lsn;
            checked.totals.last_commit_lsn = header.last_commit_lsn;
            before.check(&header, &mut checked);
            checked.header = Some(header);
        }
        Err(error) => {
            checked.find(0, header_damage(error));
            return Ok(checked);
        }
    }
    let mut scan = Scan {
        window,
        sealed,
        extent,
        before,
        bodies: crc32fast::Hasher::new(),
        index: IndexBuilder::new(info.name),
        snapshot_seen: false,
        checked,
    };
    scan.run()?;
    Ok(scan.finish())
}

/// What is wrong with a header, without its place.
fn header_damage(error: FormatError) -> Damage {
    match error {
        FormatError::Damaged { damage, .. } => damage,
        other => Damage::Content(other.to_string()),
    }
}

impl Scan<'_> {
    fn run(&mut self) -> Result<(), FormatError> {
        while !self.checked.ended && self.checked.intact {
            let tip = self.checked.tip;
            if self.extent.limit.is_some_and(|limit| tip.offset >= limit) {
                return Ok(());
            }
            match self.window.header(tip.offset)? {
                Ok(block) if block.header.chain == tip.chain => self.take(&block)?,
                Ok(block) => {
                    let expected = format!("{:08x}", tip.chain);
                    let found = format!("{:08x}", block.header.chain);
                    self.stop(Damage::mismatch("chain", expected, found))?;
                }
                Err(damage) => self.stop(damage)?,
            }
            if self.checked.at_tail {
                return Ok(());
            }
        }
        Ok(())
    }

    fn take(&mut self, block: &FoundBlock) -> Result<(), FormatError> {
        let header = block.header;
        self.extent.durable_offset = self.extent.durable_offset.max(header.synced_offset);
        let position = self.checked.state.end_lsn;
        if let Err(disorder) = self.checked.state.check(&header) {
            self.checked.find(block.offset, disorder.into());
            self.checked.intact = false;
            return Ok(());
        }
        let mut catalog = self.checked.state.working_catalog();
        if let Err(damage) = self.body(block, position, &mut catalog)? {
            if self.is_torn(block.offset)? {
                self.checked.at_tail = true;
                return Ok(());
            }
            // The header is sound: what follows can be looked at all the same.
            self.checked.find(block.offset, damage);
            self.checked.catalog_known &= !header.flags.contains(BlockFlags::HAS_CATALOG);
        }
        if header.kind == BlockKind::Footer {
            self.footer(block)?;
        }
        self.go_behind(block, position, catalog);
        Ok(())
    }

    /// Decodes the body and applies its catalog records.
    fn body(
        &mut self,
        block: &FoundBlock,
        position: Lsn,
        catalog: &mut Arc<Catalog>,
    ) -> Result<Result<(), Damage>, FormatError> {
        let stored = Bytes::copy_from_slice(self.window.stored_body(block)?);
        let prefix = self.window.bytes(block.offset, block.prefix_len)?;
        let decoded = match BlockHeader::decode(prefix) {
            Ok(decoded) => Block::decode(&decoded, stored),
            Err(error) => Err(error.into()),
        };
        if block.header.kind == BlockKind::Footer {
            return Ok(Ok(()));
        }
        Ok(decoded.and_then(|decoded| {
            check_records(&decoded, position)?;
            check_catalog(&decoded, catalog)
        }))
    }

    fn go_behind(&mut self, block: &FoundBlock, position: Lsn, catalog: Arc<Catalog>) {
        let header = &block.header;
        if header.kind != BlockKind::Snapshot && !self.snapshot_seen {
            self.snapshot_seen = true;
            self.checked.snapshot_whole = !self.checked.damaged;
            self.check_snapshot();
        }
        let checked = &mut self.checked;
        checked.state.advance(header, catalog);
        checked.tip = Tip {
            offset: block.end,
            chain: block.crc,
        };
        self.index.push(block.offset, header);
        if header.kind == BlockKind::Gap {
            checked.gaps.push(Gap {
                path: checked.path.clone(),
                offset: block.offset,
                from: position,
                to: header.end_lsn,
            });
            // What the lost part made of the catalog is not known.
            checked.catalog_known = false;
        }
        if header.kind != BlockKind::Footer {
            self.bodies.update(&header.body_crc.to_le_bytes());
            tally(&mut checked.totals, header);
            checked.totals.offset = block.end;
        }
        if checked.state.open.is_none() && !checked.damaged {
            checked.complete = checked.tip;
            checked.complete_lsn = checked.state.end_lsn;
        }
        checked.ended = matches!(header.kind, BlockKind::SegmentEnd | BlockKind::Footer);
    }

    /// The snapshot is whole: it must be what the records of the segments before have made of the catalog.
    fn check_snapshot(&mut self) {
        let Some(expected) = &self.before.catalog else {
            return;
        };
        let found = &self.checked.state.catalog;
        if self.checked.catalog_known && **found != **expected {
            let damage = Damage::Content(format!(
                "the catalog snapshot ({} relations, {} types, {} publications) is not what the records before the \
                 segment make of the catalog, expected {} relations, {} types, {} publications with the same content",
                found.relations().len(),
                found.types().len(),
                found.publications().len(),
                expected.relations().len(),
                expected.types().len(),
                expected.publications().len(),
            ));
            self.checked
                .find_for(Remedy::Operator, SEGMENT_HEADER_LEN as u64, damage);
        }
    }

    fn footer(&mut self, block: &FoundBlock) -> Result<(), FormatError> {
        let offset = block.offset;
        let length = usize::try_from(block.end - offset).unwrap_or(usize::MAX);
        let found = Footer::decode(self.window.bytes(offset, length)?, offset);
        let mut expected = self.checked.totals;
        expected.bodies_crc = self.bodies.clone().finalize();
        expected.offset = offset;
        match found {
            Err(damage) => self.checked.find(offset, damage),
            // With damage before it the totals can't agree, and nothing new is known.
            Ok((footer, _)) if footer != expected && !self.checked.damaged => {
                let (expected, footer) = (format!("{expected:?}"), format!("{footer:?}"));
                let damage = Damage::mismatch("footer", expected, footer);
                self.checked.find(offset, damage);
            }
            Ok(_) => {}
        }
        if block.end != self.window.file_len() {
            let damage = Damage::mismatch("file length", block.end, self.window.file_len());
            self.checked.find(block.end, damage);
        }
        Ok(())
    }

    /// The chain ends here.
    fn stop(&mut self, damage: Damage) -> Result<(), FormatError> {
        let end = self.checked.tip.offset;
        if self.is_torn(end)? {
            self.checked.at_tail = true;
            self.checked.torn = !is_blank(&mut self.window, end)?;
        } else {
            self.checked.find(end, damage);
            self.checked.intact = false;
        }
        Ok(())
    }

    /// Whether what is at `offset` is the end of what was written last, and was never reported as durable.
    fn is_torn(&mut self, offset: u64) -> Result<bool, FormatError> {
        if self.sealed || !self.extent.is_last || offset < self.extent.durable_offset {
            return Ok(false);
        }
        Ok(durable_behind(&mut self.window, offset)?.is_none())
    }

    fn finish(self) -> Checked {
        let mut checked = self.checked;
        if checked.at_tail || self.extent.limit.is_some() {
            checked.state.open = None;
        }
        if self.sealed && checked.ended && !checked.damaged {
            checked.index = Some(self.index.finish(checked.file_len));
        }
        checked
    }
}

impl Checked {
    /// Bytes are not what was written.
    pub(super) fn find(&mut self, offset: u64, damage: Damage) {
        self.damaged = true;
        self.find_for(Remedy::Quarantine, offset, damage);
    }

    pub(super) fn find_for(&mut self, remedy: Remedy, offset: u64, damage: Damage) {
        self.findings.push(Finding {
            path: self.path.clone(),
            offset,
            damage,
            remedy,
        });
    }

    pub(super) fn new(info: &SegmentInfo, file_len: u64, before: &Carried) -> Self {
        let catalog = Arc::new(Catalog::default());
        let last_commit_lsn = before.last_commit_lsn;
        let tip = Tip {
            offset: SEGMENT_HEADER_LEN as u64,
            chain: 0,
        };
        Self {
            name: info.name,
            path: info.path.clone(),
            sealed: info.state == SegmentState::Sealed,
            file_len,
            header: None,
            state: LogState::new(info.name.first_lsn, last_commit_lsn, catalog),
            tip,
            complete: tip,
            complete_lsn: info.name.first_lsn,
            totals: Footer {
                offset: SEGMENT_HEADER_LEN as u64,
                end_lsn: info.name.first_lsn,
                ..Footer::default()
            },
            ended: false,
            intact: true,
            at_tail: false,
            torn: false,
            catalog_known: true,
            deleted: false,
            damaged: false,
            snapshot_whole: false,
            gaps: Vec::new(),
            findings: Vec::new(),
            index: None,
        }
    }
}
