//! A reader's side.

use std::fs::File;
use std::path::{Path, PathBuf};

use pg_proto::PgTimestamp;

use super::layout::{FILE_WORDS, HEARTBEAT_WORD, check_identity, load, newest};
use super::{WATERMARK_FILE, WatermarkError, WatermarkState};
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
        let path = directory.join(WATERMARK_FILE);
        let failed = |source| WatermarkError::Io {
            path: path.clone(),
            source,
        };
        let file = File::open(&path).map_err(failed)?;
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

    /// When the decoder last said that it lives; `None` if it never did.
    #[must_use]
    pub fn heartbeat(&self) -> Option<PgTimestamp> {
        let micros = load(&self.map, HEARTBEAT_WORD).cast_signed();
        (micros != 0).then_some(PgTimestamp(micros))
    }
}
