//! The operating system's files.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, RawDir};
use rustix::io::Errno;

use super::{Fs, FsFile};

/// [`Fs`] of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFs;

/// Bytes copied at once where the kernel can't copy between two files.
const COPY_BUFFER_LEN: usize = 256 << 10;

/// Names that the kernel is asked for at once.
const LIST_BUFFER_LEN: usize = 64 << 10;

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}

impl Fs for RealFs {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        let file = options().create_new(true).open(path)?;
        Ok(Box::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        Ok(Box::new(RealFile(options().open(path)?)))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        Ok(Box::new(RealFile(File::open(path)?)))
    }

    fn open_to_map(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FsFile>>> {
        let file = options().create(true).truncate(false).open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // For who finds it locked. Without it nothing is wrong, so that it does not matter if it can't be written.
                let holder = std::process::id().to_string();
                let _ = file
                    .set_len(0)
                    .and_then(|()| file.write_all_at(holder.as_bytes(), 0));
                Ok(Some(Box::new(RealFile(file))))
            }
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        std::fs::read_dir(path)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect()
    }

    fn each_name(&self, path: &Path, each: &mut dyn FnMut(&str)) -> io::Result<()> {
        let folder = File::open(path)?;
        let mut buffer = Vec::with_capacity(LIST_BUFFER_LEN);
        let mut entries = RawDir::new(&folder, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            match entry?.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => each(name),
            }
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

#[derive(Debug)]
struct RealFile(File);

impl RealFile {
    /// For file systems that can't preallocate: grows the file, which still gives readers something to map.
    fn extend(&self, end: u64) -> io::Result<()> {
        if self.0.metadata()?.len() < end {
            self.0.set_len(end)?;
        }
        Ok(())
    }

    fn copy_through_memory(
        &self,
        from: &dyn FsFile,
        from_offset: u64,
        offset: u64,
        length: u64,
    ) -> io::Result<u64> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let mut buffer = vec![0; length.min(COPY_BUFFER_LEN)];
        let read = from.read_at(&mut buffer, from_offset)?;
        self.0
            .write_all_at(buffer.get(..read).unwrap_or_default(), offset)?;
        Ok(read as u64)
    }
}

impl FsFile for RealFile {
    fn write_vectored_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(&self.0, pieces, offset)?)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), offset, length) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.extend(offset + length),
            result => Ok(result?),
        }
    }

    fn copy_from(
        &self,
        from: &dyn FsFile,
        from_offset: u64,
        offset: u64,
        length: u64,
    ) -> io::Result<u64> {
        let Some(source) = from.descriptor() else {
            return self.copy_through_memory(from, from_offset, offset, length);
        };
        let (mut read_at, mut write_at) = (from_offset, offset);
        let ask = usize::try_from(length).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(
            source,
            Some(&mut read_at),
            &self.0,
            Some(&mut write_at),
            ask,
        ) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::XDEV | Errno::INVAL | Errno::PERM) => {
                self.copy_through_memory(from, from_offset, offset, length)
            }
            result => Ok(result? as u64),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}
