//! The file of one staged transaction.

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::FormatError;
use crate::fs::{Fs, FsFile, write_all_at};

/// Made when the first block is written, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct StagedFile {
    fs: Arc<dyn Fs>,
    pub(crate) path: PathBuf,
    pub(crate) file: Option<Box<dyn FsFile>>,
    pub(crate) length: u64,
}

impl StagedFile {
    pub(super) const fn new(fs: Arc<dyn Fs>, path: PathBuf) -> Self {
        Self {
            fs,
            path,
            file: None,
            length: 0,
        }
    }

    /// Writes a block at the end. After an error the file is as long as before for all who read it.
    pub(super) fn append(&mut self, pieces: &mut [IoSlice<'_>]) -> Result<(), FormatError> {
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
        let length: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        write_all_at(&**file, pieces, self.length).map_err(FormatError::io("write", &self.path))?;
        self.length += length;
        Ok(())
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            // What stays behind is removed at the next start.
            let _ = self.fs.remove(&self.path);
        }
    }
}
