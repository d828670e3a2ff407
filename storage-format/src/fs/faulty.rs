//! The operating system's files, with the faults that a test asks for: see [`crate::faults`].

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use super::{Fs, FsFile, RealFs};
use crate::faults::{Fault, find};

/// [`RealFs`] that fails when it is told to.
#[derive(Clone, Copy, Debug)]
pub(super) struct FaultyFs;

/// A file and the name under which it was opened.
#[derive(Debug)]
struct FaultyFile {
    path: PathBuf,
    inner: Box<dyn FsFile>,
}

fn wrap(path: &Path, opened: io::Result<Box<dyn FsFile>>) -> io::Result<Box<dyn FsFile>> {
    Ok(Box::new(FaultyFile {
        path: path.to_owned(),
        inner: opened?,
    }))
}

fn check(operation: &str, path: &Path) -> io::Result<()> {
    find(operation, path).map(drop)
}

impl Fs for FaultyFs {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        check("create", path)?;
        // A new segment keeps its file when it gets its name.
        let named = path.with_extension("active");
        wrap(&named, RealFs.create_new(path))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        check("open", path)?;
        wrap(path, RealFs.open(path))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        check("open", path)?;
        wrap(path, RealFs.open_to_read(path))
    }

    fn open_to_map(&self, path: &Path) -> io::Result<File> {
        check("open", path)?;
        RealFs.open_to_map(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        check("create", to)?;
        RealFs.link(from, to)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FsFile>>> {
        RealFs.lock(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        RealFs.create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        RealFs.list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        check("rename", to)?;
        RealFs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        check("remove", path)?;
        RealFs.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        check("fsync", path)?;
        RealFs.sync_dir(path)
    }
}

impl FaultyFile {
    fn check(&self, operation: &str) -> io::Result<()> {
        check(operation, &self.path)
    }
}

impl FsFile for FaultyFile {
    fn write_vectored_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        if find("write", &self.path)? != Some(Fault::Short) {
            return self.inner.write_vectored_at(pieces, offset);
        }
        let first = pieces.iter().find(|piece| !piece.is_empty());
        let bytes = first.map_or(&[][..], |piece| piece);
        let half = bytes.get(..bytes.len().div_ceil(2)).unwrap_or_default();
        self.inner.write_vectored_at(&[IoSlice::new(half)], offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check("read")?;
        self.inner.read_at(buffer, offset)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check("allocate")?;
        self.inner.allocate(offset, length)
    }

    fn copy_from(
        &self,
        from: &dyn FsFile,
        from_offset: u64,
        offset: u64,
        length: u64,
    ) -> io::Result<u64> {
        let short = find("write", &self.path)? == Some(Fault::Short);
        let length = if short { length.div_ceil(2) } else { length };
        self.inner.copy_from(from, from_offset, offset, length)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.check("write")?;
        self.inner.set_length(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check("fsync")?;
        self.inner.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.check("fsync")?;
        self.inner.sync_all()
    }
}
