//! Writing a sealed file.

use std::io::IoSlice;
use std::path::{Path, PathBuf};

use pg_proto::{Lsn, Oid};

use super::SealOptions;
use super::body::BodyStore;
use crate::block::{Block, BlockBuilder, BlockFlags, BlockHeader, BlockKind, Placement, Sections};
use crate::checksum::crc32;
use crate::codec::stored_u32;
use crate::error::{Damage, FormatError};
use crate::fs::{Fs, FsFile, write_all_at};
use crate::index::IndexBuilder;
use crate::segment::{Footer, SEGMENT_HEADER_LEN, SegmentHeader};

/// Merges blocks and appends them to a sealed file.
pub(crate) struct SealedOutput<'a> {
    file: Box<dyn FsFile>,
    path: PathBuf,
    header: SegmentHeader,
    options: &'a SealOptions,
    builder: BlockBuilder,
    /// Kind and flags of what is in the builder.
    kind: BlockKind,
    extra_flags: BlockFlags,
    end_lsn: Lsn,
    chain: u32,
    footer: Footer,
    bodies: crc32fast::Hasher,
    index: IndexBuilder,
    body: BodyStore,
    prefix: Vec<u8>,
}

/// A sealed file that is complete and durable, under its temporary name.
pub(crate) struct Finished {
    pub(crate) file: Box<dyn FsFile>,
    pub(crate) header: SegmentHeader,
    pub(crate) footer: Footer,
    pub(crate) length: u64,
    pub(crate) index: Vec<u8>,
}

impl<'a> SealedOutput<'a> {
    pub(crate) fn create(
        fs: &dyn Fs,
        path: &Path,
        active: &SegmentHeader,
        options: &'a SealOptions,
    ) -> Result<Self, FormatError> {
        let header = SegmentHeader {
            sealed: true,
            ..active.clone()
        };
        let (bytes, chain) = header.encode()?;
        let file = fs
            .create_new(path)
            .map_err(FormatError::io("create", path))?;
        write_all_at(&*file, &mut [IoSlice::new(&bytes)], 0)
            .map_err(FormatError::io("write", path))?;
        let body =
            BodyStore::new(options.zstd_level).map_err(FormatError::io("compress for", path))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            options,
            builder: BlockBuilder::new(),
            kind: BlockKind::Data,
            extra_flags: BlockFlags::NONE,
            end_lsn: header.name.first_lsn,
            chain,
            footer: Footer {
                offset: SEGMENT_HEADER_LEN as u64,
                last_commit_lsn: header.last_commit_lsn,
                end_lsn: header.name.first_lsn,
                ..Footer::default()
            },
            bodies: crc32fast::Hasher::new(),
            index: IndexBuilder::new(header.name),
            body,
            prefix: Vec::new(),
            header,
        })
    }

    /// Writes what was merged so far if the next block would make it too large.
    pub(crate) fn make_room(&mut self, next: &BlockHeader) -> Result<(), FormatError> {
        let merged = self.builder.raw_len() + next.raw_len();
        let prepared = |flags: BlockFlags| flags.contains(BlockFlags::PREPARED);
        // What is for some subscribers only stays in blocks that the others pass over.
        let mixed =
            !self.builder.is_empty() && prepared(self.builder.flags()) != prepared(next.flags);
        if merged > self.options.block_bytes || next.kind != self.kind || mixed {
            self.flush()?;
        }
        Ok(())
    }

    /// Adds the records of a block.
    pub(crate) fn absorb(
        &mut self,
        header: &BlockHeader,
        relations: &[Oid],
        sections: Sections<'_>,
    ) -> Result<(), Damage> {
        self.kind = header.kind;
        if header.kind != BlockKind::Data {
            // Of other kinds every block stays one of its own.
            self.extra_flags = header.flags;
        }
        self.builder.absorb(header, relations, sections)?;
        self.end_lsn = header.end_lsn;
        Ok(())
    }

    /// The log moved on. A block that follows says so too, so it is only noted here.
    pub(crate) fn progress(&mut self, lsn: Lsn) -> Result<(), FormatError> {
        debug_assert!(self.builder.open_transaction().is_none());
        self.end_lsn = self.end_lsn.max(lsn);
        self.builder.raise_end(self.end_lsn);
        Ok(())
    }

    /// Writes what was merged as one block.
    pub(crate) fn flush(&mut self) -> Result<(), FormatError> {
        let has_content = !self.builder.is_empty() || self.kind != BlockKind::Data;
        if has_content {
            let mut header = self.builder.header(self.kind, &self.placement());
            header.flags |= self.extra_flags;
            self.write(header)?;
        }
        self.builder.start(None);
        self.kind = BlockKind::Data;
        self.extra_flags = BlockFlags::NONE;
        Ok(())
    }

    fn write(&mut self, mut header: BlockHeader) -> Result<(), FormatError> {
        let (codec, stored) = self
            .body
            .store(self.builder.sections())
            .map_err(FormatError::io("compress for", &self.path))?;
        header.codec = codec;
        header.stored_len = stored_u32(stored.len());
        header.body_crc = crc32(&[stored]);
        let (mut pieces, crc) = self.builder.prefixed(&header, &mut self.prefix, stored);
        let length: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        write_all_at(&*self.file, &mut pieces, self.footer.offset)
            .map_err(FormatError::io("write", &self.path))?;
        self.wrote(&header, crc, length);
        Ok(())
    }

    fn wrote(&mut self, header: &BlockHeader, crc: u32, length: u64) {
        self.index.push(self.footer.offset, header);
        self.chain = crc;
        self.footer.offset += length;
        self.bodies.update(&header.body_crc.to_le_bytes());
        tally(&mut self.footer, header);
    }

    /// Writes what was merged, and that the log moved on behind it.
    fn settle(&mut self) -> Result<(), FormatError> {
        self.flush()?;
        if self.end_lsn <= self.footer.end_lsn {
            return Ok(());
        }
        self.write(BlockHeader {
            end_lsn: self.end_lsn,
            chain: self.chain,
            ..BlockHeader::empty(BlockKind::Progress)
        })
    }

    /// Says that what lies between the position here and `to` is missing.
    pub(crate) fn gap(&mut self, to: Lsn) -> Result<(), FormatError> {
        self.settle()?;
        self.end_lsn = to;
        self.write(BlockHeader {
            end_lsn: to,
            chain: self.chain,
            ..BlockHeader::empty(BlockKind::Gap)
        })
    }

    /// Takes over a block as it is, `bytes` long, whose header has the checksum `crc`: it must have been written behind
    /// what is in the file.
    pub(crate) fn copy(
        &mut self,
        header: &BlockHeader,
        crc: u32,
        bytes: &[u8],
    ) -> Result<(), FormatError> {
        debug_assert!(self.builder.is_empty() && header.chain == self.chain);
        write_all_at(&*self.file, &mut [IoSlice::new(bytes)], self.footer.offset)
            .map_err(FormatError::io("write", &self.path))?;
        self.wrote(header, crc, bytes.len() as u64);
        self.end_lsn = header.end_lsn;
        Ok(())
    }

    /// Adds the first `entries` records of a block, which `header` describes.
    pub(crate) fn absorb_part(
        &mut self,
        block: &Block,
        entries: usize,
        header: &BlockHeader,
    ) -> Result<(), Damage> {
        self.builder
            .absorb(header, block.relations(), block.leading(entries))?;
        self.end_lsn = header.end_lsn;
        Ok(())
    }

    /// Checksum of the last header.
    pub(crate) const fn chain(&self) -> u32 {
        self.chain
    }

    /// Writes what is left and the footer, and makes the file durable.
    pub(crate) fn finish(mut self) -> Result<Finished, FormatError> {
        self.settle()?;
        self.footer.bodies_crc = self.bodies.finalize();
        let bytes = self.footer.encode(self.chain);
        write_all_at(&*self.file, &mut [IoSlice::new(&bytes)], self.footer.offset)
            .and_then(|()| self.file.sync_all())
            .map_err(FormatError::io("write", &self.path))?;
        let length = self.footer.offset + bytes.len() as u64;
        Ok(Finished {
            file: self.file,
            header: self.header,
            footer: self.footer,
            length,
            index: self.index.finish(length),
        })
    }

    const fn placement(&self) -> Placement {
        Placement {
            end_lsn: self.end_lsn,
            chain: self.chain,
            synced_offset: 0,
        }
    }
}

/// Counts a block into the totals.
pub(crate) fn tally(footer: &mut Footer, header: &BlockHeader) {
    footer.block_count += 1;
    footer.transaction_count += u64::from(header.transaction_count);
    footer.entry_count += u64::from(header.entry_count);
    footer.event_count += u64::from(header.event_count);
    footer.raw_bytes += header.raw_len() as u64;
    footer.end_lsn = header.end_lsn;
    if header.kind == BlockKind::Data && header.first_commit_lsn.is_valid() {
        if !footer.first_commit_lsn.is_valid() {
            footer.first_commit_lsn = header.first_commit_lsn;
            footer.first_commit_time = header.first_commit_time;
            footer.last_commit_time = header.last_commit_time;
        }
        footer.last_commit_lsn = header.last_commit_lsn;
        footer.last_commit_time = footer.last_commit_time.max(header.last_commit_time);
    }
}
