//! An open segment file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use super::sparse::SparseIndex;
use crate::block::{BLOCK_HEADER_LEN, Block, BlockHeader, DecodedHeader};
use crate::cache::{BlockCache, BlockKey};
use crate::error::{Damage, FormatError};
use crate::fs::Fs;
use crate::identity::Identity;
use crate::index::{Entries, Index, build};
use crate::mmap::FileMap;
use crate::segment::{SEGMENT_HEADER_LEN, SegmentExtension, SegmentHeader, SegmentName};

/// A segment file that readers have open, mapped as far as they need it.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) name: SegmentName,
    pub(super) sealed: bool,
    /// The last cut of the log when it was opened: after another one a file of this name may be another file.
    pub(super) cut: u64,
    pub(super) identity: Identity,
    /// Checksum of the segment header, with which the chain of blocks begins.
    pub(super) header_crc: u32,
    fs: Arc<dyn Fs>,
    log: PathBuf,
    path: PathBuf,
    file: File,
    map: RwLock<FileMap>,
    /// Bytes that became resident since pages were last released.
    unreleased: AtomicUsize,
    index: SegmentIndex,
    cache: Arc<BlockCache>,
}

/// Pages of a map count as this process's memory as long as it lives, and a segment with a large transaction can be
/// large. So after that many bytes they are released.
const RELEASE_BYTES: usize = 16 << 20;

#[derive(Debug)]
enum SegmentIndex {
    Sealed(OnceLock<Index>),
    Active(Mutex<SparseIndex>),
}

impl Segment {
    /// Opens a segment's sealed or active file; `None` if there is none.
    pub(super) fn open(
        fs: Arc<dyn Fs>,
        log: &Path,
        name: SegmentName,
        sealed: bool,
        cut: u64,
        cache: Arc<BlockCache>,
    ) -> Result<Option<Self>, FormatError> {
        let extension = if sealed {
            SegmentExtension::Sealed
        } else {
            SegmentExtension::Active
        };
        let path = name.path(log, extension);
        let file = match fs.open_to_map(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FormatError::io("open", &path)(error)),
        };
        let map = map_whole(&file).map_err(FormatError::io("map", &path))?;
        let have = map.len().min(SEGMENT_HEADER_LEN);
        let resident = map.fetch(0..have).map_err(FormatError::io("read", &path))?;
        let head = map.look(0..have).unwrap_or_default();
        let (header, header_crc) = SegmentHeader::decode_file(head, &path, name, sealed)?;
        let index = if sealed {
            SegmentIndex::Sealed(OnceLock::new())
        } else {
            SegmentIndex::Active(Mutex::new(SparseIndex::new(name)))
        };
        Ok(Some(Self {
            name,
            sealed,
            cut,
            identity: header.identity,
            header_crc,
            fs,
            log: log.to_owned(),
            path,
            file,
            map: RwLock::new(map),
            unreleased: AtomicUsize::new(resident),
            index,
            cache,
        }))
    }

    pub(super) const fn key(&self, offset: u64) -> BlockKey {
        BlockKey {
            sequence: self.name.sequence,
            sealed: self.sealed,
            cut: self.cut,
            offset,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// This damage at its place in this file.
    pub(super) fn damage(&self, damage: impl Into<Damage>, offset: u64) -> FormatError {
        damage.into().at(&self.path, offset)
    }

    /// Hands the checked header at `offset` to `use_it`. Nothing at or behind `limit` is looked at.
    pub(super) fn with_header<T>(
        &self,
        offset: u64,
        limit: u64,
        use_it: impl FnOnce(&DecodedHeader<'_>) -> T,
    ) -> Result<T, FormatError> {
        let (map, start) = self.mapped("block header", offset, BLOCK_HEADER_LEN, limit)?;
        let fixed = map.look(start..start + BLOCK_HEADER_LEN);
        let prefix_len = BlockHeader::prefix_len(fixed.unwrap_or_default())
            .map_err(|error| self.damage(error, offset))?;
        // As a rule the map covers the relation set, too.
        let covered = start + prefix_len <= map.len() && offset + prefix_len as u64 <= limit;
        let map = if covered {
            map
        } else {
            self.mapped("block header", offset, prefix_len, limit)?.0
        };
        let prefix = map.look(start..start + prefix_len).unwrap_or_default();
        let decoded = BlockHeader::decode(prefix).map_err(|error| self.damage(error, offset))?;
        Ok(use_it(&decoded))
    }

    /// The block at `offset`, decoded by this reader or another one before it.
    pub(super) fn block(&self, offset: u64, limit: u64) -> Result<Arc<Block>, FormatError> {
        let key = self.key(offset);
        self.cache
            .get_or_load(key, || self.load_block(offset, limit))
    }

    /// Decodes the block at `offset`.
    pub(super) fn load_block(&self, offset: u64, limit: u64) -> Result<Block, FormatError> {
        self.with_header(offset, limit, |decoded| {
            let length = decoded.header.stored_len as usize;
            let body_at = offset + decoded.prefix_len as u64;
            let (map, start) = self.mapped("block body", body_at, length, limit)?;
            let stored = map.settled(start..start + length).unwrap_or_default();
            Block::decode(decoded, stored).map_err(|damage| self.damage(damage, offset))
        })?
    }

    /// Has a range of a map read, and lets go of what was read before it when that has become much.
    fn fetch(&self, map: &FileMap, range: Range<usize>) -> Result<(), FormatError> {
        let failed = |error| FormatError::io("read", &self.path)(error);
        let resident = map.fetch(range.clone()).map_err(failed)?;
        if resident == 0 {
            return Ok(());
        }
        let before = self.unreleased.fetch_add(resident, Ordering::Relaxed);
        if before + resident < RELEASE_BYTES {
            return Ok(());
        }
        // Advice: without it everything works, and takes more memory.
        let _ = map.release();
        let resident = map.fetch(range).map_err(failed)?;
        self.unreleased.store(resident, Ordering::Relaxed);
        Ok(())
    }

    /// Hands the segment's index to `use_it`: that of a sealed one, or of an active one up to `limit`.
    pub(super) fn with_index<T>(
        &self,
        limit: u64,
        use_it: impl FnOnce(&dyn Entries) -> T,
    ) -> Result<T, FormatError> {
        match &self.index {
            SegmentIndex::Sealed(index) => Ok(use_it(self.sealed_index(index)?)),
            SegmentIndex::Active(index) => {
                let mut index = index.lock();
                self.extend(&mut index, limit)?;
                Ok(use_it(&index.entries))
            }
        }
    }

    fn sealed_index<'a>(&self, index: &'a OnceLock<Index>) -> Result<&'a Index, FormatError> {
        if let Some(index) = index.get() {
            return Ok(index);
        }
        let length = self.map.read().len() as u64;
        let opened = match Index::open(&*self.fs, &self.log, self.name, length) {
            Ok(index) => index,
            // Absent or damaged: it is derived, so it is made again, for this process.
            Err(_) => self.rebuilt_index(length)?,
        };
        Ok(index.get_or_init(|| opened))
    }

    fn rebuilt_index(&self, length: u64) -> Result<Index, FormatError> {
        let content = build(self.name, length, |offset| {
            self.with_header(offset, length, |decoded| {
                (decoded.header, offset + decoded.block_len())
            })
        })?;
        Index::decode(content.into(), self.name, length)
            .map_err(|error| self.damage(Damage::Content(error.to_string()), 0))
    }

    fn extend(&self, index: &mut SparseIndex, limit: u64) -> Result<(), FormatError> {
        while index.scanned < limit && !index.ended {
            let scanned = index.scanned;
            self.with_header(scanned, limit, |decoded| {
                index.push(&decoded.header, decoded.block_len());
            })?;
        }
        Ok(())
    }

    /// A map that covers `length` bytes at `offset`, and the offset as an index into it.
    fn mapped(
        &self,
        what: &'static str,
        offset: u64,
        length: usize,
        limit: u64,
    ) -> Result<(FileMap, usize), FormatError> {
        let end = offset.saturating_add(length as u64);
        let short = |have| Damage::TooShort {
            what,
            need: end,
            have,
        };
        if end > limit {
            return Err(self.damage(short(limit), offset));
        }
        let mut map = self.map.read().clone();
        if (map.len() as u64) < end {
            // The decoder has made the file longer since it was mapped.
            map = map_whole(&self.file).map_err(FormatError::io("map", &self.path))?;
            *self.map.write() = map.clone();
        }
        if (map.len() as u64) < end {
            return Err(self.damage(short(map.len() as u64), offset));
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        self.fetch(&map, start..start + length)?;
        Ok((map, start))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if !self.sealed {
            // Its blocks are slices of the map, which would keep the disk space of a file that was sealed.
            self.cache.forget_file(self.name.sequence, false);
        }
    }
}

fn map_whole(file: &File) -> io::Result<FileMap> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    FileMap::open(file, length)
}
