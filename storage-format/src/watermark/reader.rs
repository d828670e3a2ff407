//! A reader's side.

use std::path::{Path, PathBuf};

use pg_proto::{Lsn, PgTimestamp};

use super::layout::{FENCE_WORD, FILE_WORDS, HEARTBEAT_WORD, check_identity, cut, load, newest};
use super::{Cut, WATERMARK_FILE, WatermarkError, WatermarkState};
use crate::fs::{Fs, RealFs};
use crate::mmap::WordMap;

/// A reader's side.
#[derive(Debug)]
pub struct WatermarkReader {
    map: WordMap,
    path: PathBuf,
}

impl WatermarkReader {
    /// Opens the file in a log directory.
    pub fn open(directory: &Path) -> Result<Self, WatermarkError> {
        Self::open_on(&RealFs, directory)
    }

    /// The same on another file system.
    pub fn open_on(fs: &dyn Fs, directory: &Path) -> Result<Self, WatermarkError> {
        let path = directory.join(WATERMARK_FILE);
        let failed = |source| WatermarkError::Io {
            path: path.clone(),
            source,
        };
        let file = fs.open_to_map(&path).map_err(failed)?;
        let map = WordMap::open_read_only(&file, FILE_WORDS).map_err(failed)?;
        check_identity(&map, &path)?;
        Ok(Self { map, path })
    }

    /// What was published last.
    pub fn read(&self) -> Result<WatermarkState, WatermarkError> {
        newest(&self.map)
            .map(|(_, state)| state)
            .ok_or_else(|| WatermarkError::Unpublished {
                path: self.path.clone(),
            })
    }

    /// Nothing that ends behind this position may be served; `None` if there is no such position.
    #[must_use]
    pub fn fence(&self) -> Option<Lsn> {
        let word = load(&self.map, FENCE_WORD);
        (word != 0).then_some(Lsn(word))
    }

    /// Where the log was cut off last; `None` if it never was.
    #[must_use]
    pub fn cut(&self) -> Option<Cut> {
        cut(&self.map)
    }

    /// When the decoder last said that it lives; `None` if it never did.
    #[must_use]
    pub fn heartbeat(&self) -> Option<PgTimestamp> {
        let micros = load(&self.map, HEARTBEAT_WORD).cast_signed();
        (micros != 0).then_some(PgTimestamp(micros))
    }
}
