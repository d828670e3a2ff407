//! Folders: which name is which file, now and on the disk.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::parent;
use crate::random::Random;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Folder,
    File(u64),
}

#[derive(Clone, Debug)]
enum Change {
    Set(PathBuf, Entry),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, Entry),
}

impl Change {
    /// The folder that has to be synced for it.
    fn folder(&self) -> PathBuf {
        match self {
            Self::Set(path, _) | Self::Remove(path) | Self::Rename(_, path, _) => parent(path),
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, Entry>) {
        match self {
            Self::Set(path, entry) => {
                names.insert(path.clone(), *entry);
            }
            Self::Remove(path) => {
                names.remove(path);
            }
            Self::Rename(from, to, entry) => {
                if names.get(from) == Some(entry) {
                    names.remove(from);
                }
                names.insert(to.clone(), *entry);
            }
        }
    }
}

/// All names.
#[derive(Debug, Default)]
pub(super) struct Names {
    now: BTreeMap<PathBuf, Entry>,
    durable: BTreeMap<PathBuf, Entry>,
    /// What is between the two, in order.
    pending: Vec<Change>,
}

impl Names {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    /// The file with this name.
    pub(super) fn file(&self, path: &Path) -> io::Result<u64> {
        match self.now.get(path) {
            Some(Entry::File(number)) => Ok(*number),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Whether a file has a name, now or on the disk.
    pub(super) fn has(&self, number: u64) -> bool {
        let names = self.now.values().chain(self.durable.values());
        let pending = self.pending.iter().filter_map(|change| match change {
            Change::Set(_, entry) | Change::Rename(_, _, entry) => Some(entry),
            Change::Remove(_) => None,
        });
        names
            .chain(pending)
            .any(|entry| *entry == Entry::File(number))
    }

    pub(super) fn add(&mut self, path: &Path, number: u64) -> io::Result<()> {
        if self.now.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !self.is_folder(&parent(path)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.change(Change::Set(path.to_owned(), Entry::File(number)));
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let entry = Entry::File(self.file(from)?);
        self.change(Change::Rename(from.to_owned(), to.to_owned(), entry));
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        self.change(Change::Remove(path.to_owned()));
        Ok(())
    }

    /// The machine's root is always there.
    pub(super) fn is_folder(&self, path: &Path) -> bool {
        path.parent().is_none() || self.now.get(path) == Some(&Entry::Folder)
    }

    pub(super) fn make_folders(&mut self, path: &Path) {
        let mut missing: Vec<&Path> = path
            .ancestors()
            .filter(|folder| !self.is_folder(folder))
            .collect();
        missing.reverse();
        for folder in missing {
            self.change(Change::Set(folder.to_owned(), Entry::Folder));
        }
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        if !self.is_folder(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let within = self.now.keys().filter(|name| name.parent() == Some(path));
        Ok(within.cloned().collect())
    }

    /// The names in a folder are durable.
    pub(super) fn sync(&mut self, path: &Path) {
        let mut left = Vec::new();
        for change in std::mem::take(&mut self.pending) {
            if change.folder() == path {
                change.apply(&mut self.durable);
            } else {
                left.push(change);
            }
        }
        self.pending = left;
    }

    /// What was not synced may be gone: with a journal the last of it, without one any.
    pub(super) fn lose_power(&mut self, random: &mut Random, journal: bool) {
        let pending = std::mem::take(&mut self.pending);
        let kept = random.place(pending.len() + 1);
        for (number, change) in pending.iter().enumerate() {
            let survives = if journal {
                number < kept
            } else {
                random.chance(50)
            };
            if survives {
                change.apply(&mut self.durable);
            }
        }
        // What is in a folder that is gone is gone.
        let all = self.durable.clone();
        self.durable.retain(|path, _| {
            path.ancestors()
                .skip(1)
                .all(|folder| folder.parent().is_none() || all.get(folder) == Some(&Entry::Folder))
        });
        self.now = self.durable.clone();
    }
}
