//! What the log needs of a file system, behind a small trait, so that tests can make it fail and the simulation can
//! be one.
//!
//! What subscribers read they read from memory maps; only where the mapped file comes from is asked here.

#[cfg(debug_assertions)]
mod faulty;
mod real;

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use real::RealFs;

use crate::error::FormatError;

/// The file system of the programs: the operating system's, in tests with the [faults](crate::faults) that they ask for.
#[must_use]
pub fn system() -> Arc<dyn Fs> {
    #[cfg(debug_assertions)]
    if crate::faults::is_armed() {
        return Arc::new(faulty::FaultyFs);
    }
    Arc::new(RealFs)
}

/// Files and directories.
pub trait Fs: fmt::Debug + Send + Sync {
    /// Creates a file for reading and writing; fails if it exists.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn FsFile>>;

    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>>;

    /// Opens an existing file for reading only.
    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn FsFile>>;

    /// Opens an existing file to be mapped for reading.
    fn open_to_map(&self, path: &Path) -> io::Result<File>;

    /// Gives a file a second name; fails if that is taken.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Opens or creates `path` and locks it for this process until the file is dropped; `None` if another
    /// one holds it, whose number the file has where there are processes.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FsFile>>>;

    /// Creates a directory and those above it, as far as they are missing.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Hands `each` the names in a directory that are UTF-8. For a directory of tens of thousands: nothing need be kept.
    fn each_name(&self, path: &Path, each: &mut dyn FnMut(&str)) -> io::Result<()> {
        let paths = self.list(path)?;
        let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
        names.for_each(each);
        Ok(())
    }

    /// Renames a file, replacing what is there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// An open file. All offsets are explicit; there is no position.
pub trait FsFile: fmt::Debug + Send + Sync {
    /// Writes at `offset`; may write less than asked, never 0 bytes of a non-empty request without an error.
    fn write_vectored_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;

    /// Reads at `offset`; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Makes sure that the file has room from `offset` on, growing it with zeros.
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Copies `length` bytes at `from_offset` of `from` to `offset`, without passing them through this process
    /// where the file system can; returns how many were copied, 0 at the end of `from`.
    fn copy_from(
        &self,
        from: &dyn FsFile,
        from_offset: u64,
        offset: u64,
        length: u64,
    ) -> io::Result<u64>;

    /// The descriptor, for [`Self::copy_from`]; `None` if there is no real file.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Cuts the file off. Never on a file that a reader may have mapped.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Makes the content durable, and of the metadata what is needed to read it.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes content and metadata durable.
    fn sync_all(&self) -> io::Result<()>;
}

/// Writes all of `pieces` at `offset`, however many calls that takes.
pub(crate) fn write_all_at(
    file: &dyn FsFile,
    pieces: &mut [IoSlice<'_>],
    mut offset: u64,
) -> io::Result<()> {
    let mut rest = pieces;
    IoSlice::advance_slices(&mut rest, 0); // drops leading empty pieces
    while !rest.is_empty() {
        let written = match file.write_vectored_at(rest, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        offset += written as u64;
        IoSlice::advance_slices(&mut rest, written);
    }
    Ok(())
}

/// Fills as much of `buffer` as the file has from `offset` on; returns how much.
pub(crate) fn read_full_at(file: &dyn FsFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Removes a file that may be there.
pub(crate) fn remove_if_there(fs: &dyn Fs, path: &Path) -> Result<(), FormatError> {
    match fs.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FormatError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}
