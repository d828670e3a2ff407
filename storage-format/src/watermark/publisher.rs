//! The decoder's side.
//!
//! Words are written by calls and not through a map: a store into a map that the disk can't take ends the process
//! (SIGBUS), a call that fails says why. Readers see both at once.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use pg_proto::{Lsn, PgTimestamp};

use super::layout::{
    COUNT_WORD, CUT_EPOCH_WORD, CUT_FIRST_WORD, CUT_LSN_WORD, FENCE_WORD, FILE_WORDS,
    HEARTBEAT_WORD, MAGIC, VERSION, check_identity, cut, encode, load, newest, slot_start,
};
use super::{Cut, WATERMARK_FILE, WatermarkError, WatermarkState};
use crate::failpoint::hit;
use crate::fs::{Fs, FsFile, remove_if_there, write_all_at};
use crate::mmap::WordMap;

/// The decoder's side.
#[derive(Debug)]
pub struct WatermarkPublisher {
    pub(super) map: WordMap,
    count: u64,
    file: Box<dyn FsFile>,
    path: PathBuf,
}

impl WatermarkPublisher {
    /// Opens the file in a log directory, or creates it. The caller holds the directory's lock. Readers that have
    /// the file mapped go on with it: what a former writer published stands until the first publication.
    pub fn open(fs: &dyn Fs, directory: &Path) -> Result<Self, WatermarkError> {
        let path = directory.join(WATERMARK_FILE);
        let failed = |source| WatermarkError::Io {
            path: path.clone(),
            source,
        };
        let file = match fs.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(fs, &path).map_err(failed)?
            }
            Err(error) => return Err(failed(error)),
        };
        let mapped = fs.open_to_map(&path).map_err(failed)?;
        let map = WordMap::open_read_only(&mapped, FILE_WORDS).map_err(failed)?;
        check_identity(&map, &path)?;
        let count = newest(&map).map_or(0, |(count, _)| count);
        Ok(Self {
            map,
            count,
            file,
            path,
        })
    }

    /// What was published last, by this writer or a former one.
    #[must_use]
    pub fn last(&self) -> Option<WatermarkState> {
        newest(&self.map).map(|(_, state)| state)
    }

    /// Publishes a state. Only for what is in the files completely: readers go there at once. If it fails, what was
    /// published before stands.
    pub fn publish(&mut self, state: WatermarkState) -> Result<(), WatermarkError> {
        hit("watermark.before");
        let count = self.count + 1;
        self.put(slot_start(count), &encode(count, state))?;
        hit("watermark.half");
        self.put(COUNT_WORD, &[count])?;
        self.count = count;
        hit("watermark.after");
        Ok(())
    }

    /// Says that the log is cut off: readers of an earlier epoch that are past it must stop. Durable when this returns.
    /// Whatever kept readers from the part that is gone is over.
    pub fn note_cut(&self, cut: Cut) -> Result<(), WatermarkError> {
        let first = cut.first_commit_lsn.unwrap_or_default();
        self.put(CUT_LSN_WORD, &[cut.lsn.0])?;
        self.put(CUT_FIRST_WORD, &[first.0])?;
        self.put(CUT_EPOCH_WORD, &[cut.epoch])?;
        self.put(FENCE_WORD, &[0])?;
        self.sync()
    }

    /// Keeps readers from all that ends behind `lsn`, or from nothing any more. Durable when this returns.
    pub fn set_fence(&self, lsn: Option<Lsn>) -> Result<(), WatermarkError> {
        self.put(FENCE_WORD, &[lsn.map_or(0, |lsn| lsn.0.max(1))])?;
        self.sync()
    }

    /// What readers are kept from, as [`Self::set_fence`] was told last.
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

    /// Says that the decoder lives.
    pub fn heartbeat(&self, now: PgTimestamp) -> Result<(), WatermarkError> {
        self.put(HEARTBEAT_WORD, &[now.0.cast_unsigned()])
    }

    /// Writes words, little-endian.
    pub(super) fn put<const N: usize>(
        &self,
        word: usize,
        values: &[u64; N],
    ) -> Result<(), WatermarkError> {
        let bytes = values.map(u64::to_le_bytes);
        let offset = (word * size_of::<u64>()) as u64;
        write_all_at(
            &*self.file,
            &mut [IoSlice::new(bytes.as_flattened())],
            offset,
        )
        .map_err(|source| self.failed("write", source))
    }

    fn sync(&self) -> Result<(), WatermarkError> {
        let synced = self.file.sync_all();
        synced.map_err(|source| self.failed("fsync", source))
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> WatermarkError {
        WatermarkError::Write {
            operation,
            path: self.path.clone(),
            source,
        }
    }
}

/// Makes a file without a publication, whole from the first moment that it has its name.
fn create(fs: &dyn Fs, path: &Path) -> io::Result<Box<dyn FsFile>> {
    let temporary = path.with_extension("tmp");
    let mut bytes = vec![0; FILE_WORDS * 8];
    for (word, value) in bytes.chunks_exact_mut(8).zip([MAGIC, VERSION]) {
        word.copy_from_slice(&value.to_le_bytes());
    }
    remove_if_there(fs, &temporary).map_err(io::Error::other)?;
    let file = fs.create_new(&temporary)?;
    write_all_at(&*file, &mut [IoSlice::new(&bytes)], 0)?;
    file.sync_all()?;
    fs.rename(&temporary, path)?;
    Ok(file)
}
