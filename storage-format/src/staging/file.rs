//! The file of one staged transaction.

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::FormatError;
use crate::failpoint::hit;
use crate::fs::{Fs, FsFile, write_all_at};

/// Made when the first block is written, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct StagedFile {
    fs: Arc<dyn Fs>,
    pub(crate) path: PathBuf,
    pub(crate) file: Option<Box<dyn FsFile>>,
    pub(crate) length: u64,
    /// It stays when this is dropped.
    kept: AtomicBool,
}

impl StagedFile {
    pub(super) const fn new(fs: Arc<dyn Fs>, path: PathBuf) -> Self {
        Self {
            fs,
            path,
            file: None,
            length: 0,
            kept: AtomicBool::new(false),
        }
    }

    /// One that is there, with blocks up to `length`.
    pub(super) fn existing(
        fs: Arc<dyn Fs>,
        path: PathBuf,
        file: Box<dyn FsFile>,
        length: u64,
    ) -> Self {
        Self {
            fs,
            path,
            file: Some(file),
            length,
            kept: AtomicBool::new(true),
        }
    }

    /// Whether it stays when this is dropped.
    pub(super) fn set_kept(&self, kept: bool) {
        self.kept.store(kept, Ordering::Relaxed);
    }

    /// The file, made if there is none.
    pub(super) fn create(&mut self) -> Result<&dyn FsFile, FormatError> {
        let file = match &mut self.file {
            Some(file) => file,
            empty => {
                let created = self
                    .fs
                    .create_new(&self.path)
                    .map_err(FormatError::io("create", &self.path))?;
                empty.insert(created)
            }
        };
        Ok(&**file)
    }

    /// Writes a block at the end. After an error the file is as long as before for all who read it.
    pub(super) fn append(&mut self, pieces: &mut [IoSlice<'_>]) -> Result<(), FormatError> {
        self.create()?;
        let length: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        hit("staging.write.before");
        if let Some(file) = &self.file {
            write_all_at(&**file, pieces, self.length)
                .map_err(FormatError::io("write", &self.path))?;
        }
        hit("staging.write.after");
        self.length += length;
        Ok(())
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if self.file.is_some() && !self.kept.load(Ordering::Relaxed) {
            hit("staging.remove.before");
            // What stays behind is removed at the next start.
            let _ = self.fs.remove(&self.path);
        }
    }
}
