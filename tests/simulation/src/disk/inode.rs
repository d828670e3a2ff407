//! A file: what the page cache has of it, and what the disk has.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::MemfdFlags;

use crate::random::Random;

/// What a disk writes whole or not at all.
pub(super) const SECTOR: u64 = SECTOR_LEN as u64;
const SECTOR_LEN: usize = 512;

/// A file's two contents.
#[derive(Debug)]
pub(super) struct Inode {
    /// The page cache: memory that can be mapped like a file.
    pub(super) cached: Arc<File>,
    /// The disk.
    durable: Vec<u8>,
    /// Sectors that the page cache has to write yet.
    dirty: BTreeSet<u64>,
    pub(super) name: Arc<str>,
}

impl Inode {
    pub(super) fn new(name: Arc<str>) -> io::Result<Self> {
        Ok(Self {
            cached: Arc::new(memory()?),
            durable: Vec::new(),
            dirty: BTreeSet::new(),
            name,
        })
    }

    /// Notes that a range was written.
    pub(super) fn touch(&mut self, offset: u64, length: u64) {
        if length > 0 {
            let last = (offset + length - 1) / SECTOR;
            self.dirty.extend(offset / SECTOR..=last);
        }
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.cached.metadata()?.len())
    }

    /// One sector goes to the disk.
    fn write_back(&mut self, sector: u64) -> io::Result<()> {
        let start = usize::try_from(sector * SECTOR).unwrap_or(usize::MAX);
        let mut bytes = [0; SECTOR_LEN];
        let read = self.cached.read_at(&mut bytes, sector * SECTOR)?;
        let end = start + read;
        if self.durable.len() < end {
            self.durable.resize(end, 0);
        }
        if let (Some(to), Some(from)) = (self.durable.get_mut(start..end), bytes.get(..read)) {
            to.copy_from_slice(from);
        }
        Ok(())
    }

    /// Everything goes to the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        for sector in std::mem::take(&mut self.dirty) {
            self.write_back(sector)?;
        }
        let length = usize::try_from(self.length()?).unwrap_or(usize::MAX);
        self.durable.resize(length, 0);
        Ok(())
    }

    /// Some of it goes to the disk; the rest stays dirty, or is forgotten, as Linux forgets after an error.
    pub(super) fn write_some(
        &mut self,
        random: &mut Random,
        percent: u64,
        forget: bool,
    ) -> io::Result<()> {
        for sector in std::mem::take(&mut self.dirty) {
            if random.chance(percent) {
                self.write_back(sector)?;
            } else if !forget {
                self.dirty.insert(sector);
            }
        }
        Ok(())
    }

    /// The power is lost: what is left is what the disk has.
    pub(super) fn lose_power(&mut self, random: &mut Random, percent: u64) -> io::Result<()> {
        self.write_some(random, percent, true)?;
        let length = usize::try_from(self.length()?).unwrap_or(usize::MAX);
        // The new length may have come to the disk without the content.
        if length != self.durable.len() && random.chance(50) {
            self.durable.resize(length, 0);
        }
        let fresh = memory()?;
        fresh.write_all_at(&self.durable, 0)?;
        self.cached = Arc::new(fresh);
        Ok(())
    }
}

fn memory() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("simulated", MemfdFlags::CLOEXEC)?.into())
}
