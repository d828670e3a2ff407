//! A file system that fails when it is told to, and that can lose what was not synced. Nothing is really synced: that
//! is noted only, and the tests are fast.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use storage_format::fs::{Fs, FsFile, RealFs};

/// What can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Write,
    Allocate,
    Sync,
    Rename,
    Create,
    Remove,
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    NoSpace,
    Io,
    /// Half of what is asked is written, then an I/O error.
    Short,
    /// Half of what is asked is written; the caller goes on.
    Partial,
    /// From here on nothing works, as if the process were gone.
    Crash,
}

impl Fault {
    fn error(self) -> io::Error {
        const ENOSPC: i32 = 28;
        const EIO: i32 = 5;
        io::Error::from_raw_os_error(match self {
            Self::NoSpace => ENOSPC,
            _ => EIO,
        })
    }
}

#[derive(Debug, Default)]
struct State {
    /// Fails the operation of this kind (any kind if none is given) that comes after so many others.
    rule: Option<(Option<Operation>, usize, Fault)>,
    /// Whether the rule stays in force once it was met.
    lasting: bool,
    crashed: bool,
    operations: usize,
    /// How often a directory was listed.
    listings: usize,
    /// Overwritten bytes of what is not synced, in the order of writing.
    unsynced: Vec<Unsynced>,
}

#[derive(Debug)]
struct Unsynced {
    path: PathBuf,
    offset: u64,
    before: Vec<u8>,
}

/// Passes everything on to the real file system, but for what it is told to let fail.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultyFs {
    state: Arc<Mutex<State>>,
}

impl FaultyFs {
    /// The `after`-th operation of the kind from now on fails; once, or from then on.
    pub(crate) fn fail(&self, kind: Operation, after: usize, fault: Fault, lasting: bool) {
        let mut state = self.state.lock();
        state.rule = Some((Some(kind), after, fault));
        state.lasting = lasting;
    }

    /// After so many operations the process is gone.
    pub(crate) fn crash_after(&self, operations: usize) {
        self.state.lock().rule = Some((None, operations, Fault::Crash));
    }

    pub(crate) fn heal(&self) {
        self.state.lock().rule = None;
    }

    pub(crate) fn operations(&self) -> usize {
        self.state.lock().operations
    }

    pub(crate) fn listings(&self) -> usize {
        self.state.lock().listings
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.state.lock().crashed
    }

    /// The machine lost power: of what was not synced, some sectors never reached the disk. `lost` says which.
    pub(crate) fn lose_unsynced(&self, mut lost: impl FnMut() -> bool) {
        const SECTOR: usize = 512;
        for write in self.state.lock().unsynced.drain(..).rev() {
            let Ok(file) = RealFs.open(&write.path) else {
                continue;
            };
            for (sector, before) in write.before.chunks(SECTOR).enumerate() {
                if lost() {
                    let offset = write.offset + (sector * SECTOR) as u64;
                    file.write_vectored_at(&[IoSlice::new(before)], offset)
                        .unwrap();
                }
            }
        }
    }

    fn meet(&self, kind: Operation) -> Option<Fault> {
        let mut state = self.state.lock();
        state.operations += 1;
        if state.crashed {
            return Some(Fault::Crash);
        }
        let (wanted, after, fault) = state.rule?;
        if wanted.is_some_and(|wanted| wanted != kind) {
            return None;
        }
        if after > 0 {
            state.rule = Some((wanted, after - 1, fault));
            return None;
        }
        state.crashed = fault == Fault::Crash;
        if !state.lasting {
            state.rule = None;
        }
        Some(fault)
    }

    fn check(&self, kind: Operation) -> io::Result<()> {
        self.meet(kind).map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn wrap(&self, path: &Path, inner: Box<dyn FsFile>) -> Box<dyn FsFile> {
        Box::new(FaultyFile {
            fs: self.clone(),
            path: Mutex::new(path.to_owned()),
            inner,
        })
    }
}

impl Fs for FaultyFs {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        self.check(Operation::Create)?;
        Ok(self.wrap(path, RealFs.create_new(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        Ok(self.wrap(path, RealFs.open(path)?))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        RealFs.open_to_read(path)
    }

    fn open_to_map(&self, path: &Path) -> io::Result<File> {
        RealFs.open_to_map(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Operation::Create)?;
        RealFs.link(from, to)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FsFile>>> {
        RealFs.lock(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        RealFs.create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.state.lock().listings += 1;
        RealFs.list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Operation::Rename)?;
        for write in &mut self.state.lock().unsynced {
            if write.path == from {
                write.path = to.to_owned();
            }
        }
        RealFs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::Remove)?;
        RealFs.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        self.check(Operation::Sync)
    }
}

#[derive(Debug)]
struct FaultyFile {
    fs: FaultyFs,
    path: Mutex<PathBuf>,
    inner: Box<dyn FsFile>,
}

impl FaultyFile {
    /// Where the file is now: it may have been renamed from its temporary name.
    fn current_path(&self) -> PathBuf {
        let mut path = self.path.lock();
        if !path.exists() {
            let active = path.with_extension("active");
            if active.exists() {
                *path = active;
            }
        }
        path.clone()
    }

    fn remember(&self, offset: u64, length: usize) {
        let mut before = vec![0; length];
        let _ = self.inner.read_at(&mut before, offset);
        self.fs.state.lock().unsynced.push(Unsynced {
            path: self.current_path(),
            offset,
            before,
        });
    }

    fn write_half(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
        let half = all.len().div_ceil(2);
        self.inner
            .write_vectored_at(&[IoSlice::new(&all[..half])], offset)
    }

    fn forget(&self) {
        let path = self.current_path();
        self.fs
            .state
            .lock()
            .unsynced
            .retain(|write| write.path != path);
    }
}

impl FsFile for FaultyFile {
    fn write_vectored_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let fault = self.fs.meet(Operation::Write);
        self.remember(offset, pieces.iter().map(|piece| piece.len()).sum());
        match fault {
            None => self.inner.write_vectored_at(pieces, offset),
            Some(Fault::Partial) => self.write_half(pieces, offset),
            Some(Fault::Short | Fault::Crash) => {
                self.write_half(pieces, offset)?;
                Err(Fault::Io.error())
            }
            Some(fault) => Err(fault.error()),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.fs.check(Operation::Allocate)?;
        self.inner.allocate(offset, length)
    }

    fn copy_from(
        &self,
        from: &dyn FsFile,
        from_offset: u64,
        offset: u64,
        length: u64,
    ) -> io::Result<u64> {
        self.fs.check(Operation::Write)?;
        self.remember(offset, usize::try_from(length).unwrap());
        self.inner.copy_from(from, from_offset, offset, length)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.inner.set_length(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.fs.check(Operation::Sync)?;
        self.forget();
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.fs.check(Operation::Sync)?;
        self.forget();
        Ok(())
    }
}
