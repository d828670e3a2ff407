//! An open file.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use storage_format::fs::FsFile;

use super::inode::Inode;
use super::{Disk, Fate, failed, full};
use crate::plan::Plant;

#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) disk: Arc<Disk>,
    pub(super) fails: bool,
    pub(super) number: u64,
    pub(super) cached: Arc<File>,
    pub(super) name: Arc<str>,
}

impl OpenFile {
    /// What becomes of an operation. The file may be renamed meanwhile, so its name now is the inode's.
    fn fate(&self, what: &'static str, length: u64) -> Fate {
        if !self.fails {
            return Fate::Done;
        }
        let mut state = self.disk.state();
        let name = state
            .inodes
            .get(&self.number)
            .map_or_else(|| Arc::clone(&self.name), |inode| Arc::clone(&inode.name));
        self.disk.fate(&mut state, what, &name, length)
    }

    /// An operation that is done or fails.
    fn check(&self, what: &'static str, length: u64) -> io::Result<()> {
        match self.fate(what, length) {
            Fate::Done | Fate::Short(_) => Ok(()),
            Fate::Full => Err(full()),
            Fate::Fails | Fate::Crash => Err(failed()),
        }
    }

    /// Nothing happens if the file has no name left, so that nobody will ever find it again.
    fn with_inode<T: Default>(
        &self,
        change: impl FnOnce(&mut Inode) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.disk.state();
        let inode = state.inodes.get_mut(&self.number);
        inode.map_or_else(|| Ok(T::default()), change)
    }

    /// Writes the first `length` of the bytes.
    fn put(&self, bytes: &[u8], length: u64, offset: u64) -> io::Result<usize> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let bytes = bytes.get(..length.min(bytes.len())).unwrap_or_default();
        self.cached.write_all_at(bytes, offset)?;
        self.with_inode(|inode| {
            inode.touch(offset, bytes.len() as u64);
            Ok(())
        })?;
        Ok(bytes.len())
    }

    fn write(&self, what: &'static str, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let length = bytes.len() as u64;
        let was_gone = self.fails && self.disk.has_crashed();
        match self.fate(what, length) {
            Fate::Done => self.put(bytes, length, offset),
            Fate::Short(length) => self.put(bytes, length, offset),
            Fate::Full => Err(full()),
            Fate::Fails | Fate::Crash => {
                if !was_gone {
                    let part = self.disk.random(|random| random.below(length + 1));
                    self.put(bytes, part, offset)?;
                }
                Err(failed())
            }
        }
    }

    fn sync(&self, what: &'static str) -> io::Result<()> {
        match self.fate(what, 0) {
            Fate::Done | Fate::Short(_) => {
                let left_out = self.with_inode(|inode| Ok(self.disk.is_left_out(&inode.name)))?;
                if left_out {
                    return Ok(());
                }
                self.with_inode(Inode::sync)
            }
            Fate::Full => Err(full()),
            Fate::Fails => {
                // The kernel forgets what it could not write, and takes it for clean.
                self.disk
                    .random(|random| self.with_inode(|inode| inode.write_some(random, 50, true)))?;
                if self.disk.plan.plant == Plant::SyncFailureIgnored {
                    return Ok(());
                }
                // A disk that is full only when it comes to writing says so here.
                let full_at_last = self.disk.random(|random| random.chance(30));
                Err(if full_at_last { full() } else { failed() })
            }
            Fate::Crash => Err(failed()),
        }
    }
}

impl FsFile for OpenFile {
    fn write_vectored_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let bytes: Vec<u8> = pieces
            .iter()
            .flat_map(|piece| piece.iter().copied())
            .collect();
        self.write("write", &bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.fails && self.disk.has_crashed() {
            return Err(failed());
        }
        self.cached.read_at(buffer, offset)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check("allocate", length)?;
        let end = offset + length;
        if self.cached.metadata()?.len() < end {
            self.cached.set_len(end)?;
        }
        Ok(())
    }

    fn copy_from(
        &self,
        from: &dyn FsFile,
        from_offset: u64,
        offset: u64,
        length: u64,
    ) -> io::Result<u64> {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let read = from.read_at(&mut bytes, from_offset)?;
        bytes.truncate(read);
        Ok(self.write("copy", &bytes, offset)? as u64)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.cached.metadata()?.len())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.check("set length", length)?;
        self.cached.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync("sync data")
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync("sync")
    }
}
