//! The disk as a process sees it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use storage_format::fs::{Fs, FsFile};

use super::file::OpenFile;
use super::inode::Inode;
use super::{Disk, Fate, State, failed, full, short_name};
use crate::plan::Plant;

/// One process's way to the disk.
#[derive(Debug)]
pub struct Handle {
    disk: Arc<Disk>,
    fails: bool,
}

impl Handle {
    pub(super) const fn new(disk: Arc<Disk>, fails: bool) -> Self {
        Self { disk, fails }
    }

    /// Runs an operation on names, if fate lets it. One that dies in the middle may be done or not.
    fn operate<T>(
        &self,
        what: &'static str,
        path: &Path,
        operation: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.disk.state();
        if !self.fails {
            return operation(&mut state);
        }
        let was_gone = state.crashed;
        match self.disk.fate(&mut state, what, &short_name(path), 0) {
            Fate::Done | Fate::Short(_) => operation(&mut state),
            Fate::Full => Err(full()),
            Fate::Fails => Err(failed()),
            Fate::Crash => {
                if !was_gone && self.disk.random(|random| random.chance(50)) {
                    let _ = operation(&mut state);
                }
                Err(failed())
            }
        }
    }

    fn opened(&self, state: &State, number: u64) -> io::Result<Box<dyn FsFile>> {
        let inode = state.inodes.get(&number).ok_or_else(failed)?;
        Ok(Box::new(OpenFile {
            disk: Arc::clone(&self.disk),
            fails: self.fails,
            number,
            cached: Arc::clone(&inode.cached),
            name: Arc::clone(&inode.name),
        }))
    }

    fn create(&self, state: &mut State, path: &Path) -> io::Result<u64> {
        let number = state
            .inodes
            .last_key_value()
            .map_or(1, |(last, _)| last + 1);
        state.names.add(path, number)?;
        let inode = Inode::new(short_name(path))?;
        state.inodes.insert(number, inode);
        Ok(number)
    }
}

impl Fs for Handle {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        self.operate("create", path, |state| {
            let number = self.create(state, path)?;
            self.opened(state, number)
        })
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        self.operate("open", path, |state| {
            let number = state.names.file(path)?;
            self.opened(state, number)
        })
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        self.open(path)
    }

    fn open_to_map(&self, path: &Path) -> io::Result<File> {
        self.operate("map", path, |state| {
            let number = state.names.file(path)?;
            let inode = state.inodes.get(&number).ok_or_else(failed)?;
            inode.cached.try_clone()
        })
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operate("link", to, |state| {
            let number = state.names.file(from)?;
            state.names.add(to, number)
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FsFile>>> {
        self.operate("lock", path, |state| {
            if std::mem::replace(&mut state.locked, true) {
                return Ok(None);
            }
            let number = match state.names.file(path) {
                Ok(number) => number,
                Err(_) => self.create(state, path)?,
            };
            self.opened(state, number).map(Some)
        })
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.operate("create folder", path, |state| {
            state.names.make_folders(path);
            Ok(())
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.operate("list", path, |state| state.names.list(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operate("rename", to, |state| {
            state.names.rename(from, to)?;
            let number = state.names.file(to)?;
            if let Some(inode) = state.inodes.get_mut(&number) {
                inode.name = short_name(to);
            }
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.operate("remove", path, |state| state.names.remove(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.operate("sync folder", path, |state| {
            if !state.names.is_folder(path) {
                return Err(io::ErrorKind::NotFound.into());
            }
            if self.disk.plan.plant != Plant::FolderNotSynced {
                state.names.sync(path);
                let State { names, inodes, .. } = state;
                inodes.retain(|number, _| names.has(*number));
            }
            Ok(())
        })
    }
}
