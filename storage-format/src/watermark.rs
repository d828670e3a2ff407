//! How far readers may read: a small mapped file, written by the decoder, read by everybody.
//!
//! # Format
//!
//! 512 little-endian words of 8 bytes. Words 0 and 1 are magic and version; word 2 is the heartbeat; word 3 counts
//! publications; two slots follow, each on a sector of its own. `FORMAT.md` has the table.
//!
//! # Protocol
//!
//! Publication *n* writes slot *n mod 2*, then stores *n* into the count. A reader loads the count, the slot that it
//! names, and the count again: if it is still the same, the slot was not being written, since the writer fills the
//! other one first. So a writer that dies at any point leaves a complete slot behind, and never blocks a reader.
//! Each slot carries a checksum and its own count, which also tells a page that a machine crash left half written:
//! then the older slot is the answer.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use pg_proto::{Lsn, PgTimestamp};

use crate::mmap::WordMap;

/// Name of the file in the log directory.
pub const WATERMARK_FILE: &str = "watermark";

const MAGIC: u64 = u64::from_le_bytes(*b"DCNTWMRK");
const VERSION: u64 = 1;
const FILE_WORDS: usize = 512;

const MAGIC_WORD: usize = 0;
const VERSION_WORD: usize = 1;
const HEARTBEAT_WORD: usize = 2;
const COUNT_WORD: usize = 3;
/// First word of each slot: sectors 1 and 2.
const SLOT_WORDS: [usize; 2] = [64, 128];
/// Words of a slot: count, epoch, two points of three words, checksum.
const SLOT_LEN: usize = 9;

/// A place in the log: behind a whole transaction or a progress block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPoint {
    /// The segment's sequence number.
    pub sequence: u64,
    /// Offset in the segment's active file.
    pub offset: u64,
    /// The log position there.
    pub lsn: Lsn,
}

/// What the decoder publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatermarkState {
    /// Counts the decoder's starts: grows by one with each writer.
    pub epoch: u64,
    /// End of what is in the files.
    pub written: LogPoint,
    /// End of what is fsynced, at or before [`Self::written`].
    pub durable: LogPoint,
}

/// The watermark file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum WatermarkError {
    /// It can't be opened, created or mapped.
    #[error("can't map {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its first words are not those of this format.
    #[error(
        "{} starts with magic {magic:#018x} and version {version}, expected {MAGIC:#018x} and {VERSION}: \
         it is no watermark, or one of a newer release",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The magic found.
        magic: u64,
        /// The version found.
        version: u64,
    },
    /// No decoder has published anything in it.
    #[error("{} holds no position yet: start the decoder first", path.display())]
    Unpublished {
        /// The file.
        path: PathBuf,
    },
}

/// The decoder's side.
#[derive(Debug)]
pub struct WatermarkPublisher {
    map: WordMap,
    count: u64,
}

impl WatermarkPublisher {
    /// Opens the file in a log directory, or creates it. The caller holds the directory's lock. Readers that have
    /// the file mapped go on with it: what a former writer published stands until the first publication.
    pub fn open(directory: &Path) -> Result<Self, WatermarkError> {
        let path = directory.join(WATERMARK_FILE);
        let failed = |source| WatermarkError::Io {
            path: path.clone(),
            source,
        };
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(&path).map_err(failed)?
            }
            Err(error) => return Err(failed(error)),
        };
        let map = WordMap::open_writable(&file, FILE_WORDS).map_err(failed)?;
        check_identity(&map, &path)?;
        let count = newest(&map).map_or(0, |(count, _)| count);
        Ok(Self { map, count })
    }

    /// What was published last, by this writer or a former one.
    #[must_use]
    pub fn last(&self) -> Option<WatermarkState> {
        newest(&self.map).map(|(_, state)| state)
    }

    /// Publishes a state. Only for what is in the files completely: readers go there at once.
    pub fn publish(&mut self, state: WatermarkState) {
        self.count += 1;
        let words = encode(self.count, state);
        // Readers that see any of these stores see the count of the publication before, too.
        fence(Ordering::Release);
        for (index, word) in words.into_iter().enumerate() {
            store(
                &self.map,
                slot_start(self.count) + index,
                word,
                Ordering::Relaxed,
            );
        }
        store(&self.map, COUNT_WORD, self.count, Ordering::Release);
    }

    /// Says that the decoder lives.
    pub fn heartbeat(&self, now: PgTimestamp) {
        store(
            &self.map,
            HEARTBEAT_WORD,
            now.0.cast_unsigned(),
            Ordering::Relaxed,
        );
    }
}

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

/// The newest complete publication and its number.
fn newest(map: &WordMap) -> Option<(u64, WatermarkState)> {
    loop {
        let count = load(map, COUNT_WORD);
        fence(Ordering::Acquire);
        let [named, other] = [count, count.wrapping_add(1)].map(|number| decode(map, number));
        fence(Ordering::Acquire);
        if load(map, COUNT_WORD) == count {
            // A machine crash may have kept the count and lost the slot, or the other way round: then the newest
            // slot that is whole is the answer.
            let sound = named.filter(|(stored, _)| *stored == count);
            return sound.or_else(|| {
                named
                    .into_iter()
                    .chain(other)
                    .max_by_key(|(stored, _)| *stored)
            });
        }
        // The writer published meanwhile and may have begun to overwrite what was read. It does so far less often
        // than this takes, so the next turn nearly always succeeds.
        std::hint::spin_loop();
    }
}

/// What the slot of publication `count` holds, if it is whole.
fn decode(map: &WordMap, count: u64) -> Option<(u64, WatermarkState)> {
    let start = slot_start(count);
    let mut words = [0; SLOT_LEN];
    for (index, word) in words.iter_mut().enumerate() {
        *word = load(map, start + index);
    }
    let [
        stored,
        epoch,
        written @ ..,
        d_sequence,
        d_offset,
        d_lsn,
        checksum,
    ] = words;
    if stored == 0 || checksum != checksum_of(&words) {
        return None;
    }
    let point = |[sequence, offset, lsn]: [u64; 3]| LogPoint {
        sequence,
        offset,
        lsn: Lsn(lsn),
    };
    let state = WatermarkState {
        epoch,
        written: point(written),
        durable: point([d_sequence, d_offset, d_lsn]),
    };
    Some((stored, state))
}

fn encode(count: u64, state: WatermarkState) -> [u64; SLOT_LEN] {
    let (written, durable) = (state.written, state.durable);
    let mut words = [
        count,
        state.epoch,
        written.sequence,
        written.offset,
        written.lsn.0,
        durable.sequence,
        durable.offset,
        durable.lsn.0,
        0,
    ];
    let checksum = checksum_of(&words);
    if let Some(last) = words.last_mut() {
        *last = checksum;
    }
    words
}

/// CRC-32 of a slot's words before its last.
fn checksum_of(words: &[u64; SLOT_LEN]) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    for word in words.iter().take(SLOT_LEN - 1) {
        hasher.update(&word.to_le_bytes());
    }
    u64::from(hasher.finalize())
}

const fn slot_start(count: u64) -> usize {
    if count.is_multiple_of(2) {
        SLOT_WORDS[0]
    } else {
        SLOT_WORDS[1]
    }
}

/// Makes a file without a publication, whole from the first moment that it has its name.
fn create(path: &Path) -> io::Result<File> {
    let temporary = path.with_extension("tmp");
    let mut bytes = vec![0; FILE_WORDS * 8];
    for (word, value) in bytes.chunks_exact_mut(8).zip([MAGIC, VERSION]) {
        word.copy_from_slice(&value.to_le_bytes());
    }
    std::fs::write(&temporary, bytes)?;
    let file = OpenOptions::new().read(true).write(true).open(&temporary)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    Ok(file)
}

fn check_identity(map: &WordMap, path: &Path) -> Result<(), WatermarkError> {
    let (magic, version) = (load(map, MAGIC_WORD), load(map, VERSION_WORD));
    if (magic, version) == (MAGIC, VERSION) {
        return Ok(());
    }
    Err(WatermarkError::Foreign {
        path: path.to_owned(),
        magic,
        version,
    })
}

/// A word in native order; the file is little-endian on every machine.
fn load(map: &WordMap, index: usize) -> u64 {
    word(map, index).map_or(0, |word| u64::from_le(word.load(Ordering::Relaxed)))
}

fn store(map: &WordMap, index: usize, value: u64, ordering: Ordering) {
    if let Some(word) = word(map, index) {
        word.store(value.to_le(), ordering);
    }
}

fn word(map: &WordMap, index: usize) -> Option<&AtomicU64> {
    map.words().get(index)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// A state all of whose fields follow from one number, so that a mixture is noticed.
    fn state(number: u64) -> WatermarkState {
        let point = |add: u64| LogPoint {
            sequence: number + add,
            offset: number * 3 + add,
            lsn: Lsn(number * 7 + add),
        };
        WatermarkState {
            epoch: number,
            written: point(2),
            durable: point(1),
        }
    }

    #[test]
    fn what_is_published_is_read_and_survives_a_new_writer() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(
            WatermarkReader::open(directory.path()),
            Err(WatermarkError::Io { .. })
        ));
        let mut publisher = WatermarkPublisher::open(directory.path()).unwrap();
        let reader = WatermarkReader::open(directory.path()).unwrap();
        assert!(matches!(
            reader.read(),
            Err(WatermarkError::Unpublished { .. })
        ));
        assert_eq!(reader.heartbeat(), None);
        for number in 1..5 {
            publisher.publish(state(number));
            assert_eq!(reader.read().unwrap(), state(number));
        }
        publisher.heartbeat(PgTimestamp(9));
        drop(publisher);
        let mut publisher = WatermarkPublisher::open(directory.path()).unwrap();
        assert_eq!(publisher.last(), Some(state(4)));
        assert_eq!(reader.heartbeat(), Some(PgTimestamp(9)));
        publisher.publish(state(5));
        assert_eq!(reader.read().unwrap(), state(5));
    }

    #[test]
    fn a_writer_that_died_leaves_the_publication_before() {
        let directory = tempfile::tempdir().unwrap();
        let mut publisher = WatermarkPublisher::open(directory.path()).unwrap();
        publisher.publish(state(1));
        publisher.publish(state(2));
        // Half of publication 3, without its count.
        store(&publisher.map, slot_start(3), 3, Ordering::Relaxed);
        store(&publisher.map, slot_start(3) + 1, 99, Ordering::Relaxed);
        let reader = WatermarkReader::open(directory.path()).unwrap();
        assert_eq!(reader.read().unwrap(), state(2));
        // Pages torn by a machine crash: the count arrived and the slot did not, or the other way round.
        publisher.publish(state(3));
        store(&publisher.map, slot_start(3) + 1, 99, Ordering::Relaxed);
        assert_eq!(reader.read().unwrap(), state(2));
        store(&publisher.map, COUNT_WORD, 0, Ordering::Relaxed);
        assert_eq!(reader.read().unwrap(), state(2));
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(WATERMARK_FILE);
        std::fs::write(&path, vec![1; FILE_WORDS * 8]).unwrap();
        assert!(matches!(
            WatermarkReader::open(directory.path()),
            Err(WatermarkError::Foreign { .. })
        ));
        std::fs::write(&path, b"short").unwrap();
        assert!(matches!(
            WatermarkPublisher::open(directory.path()),
            Err(WatermarkError::Io { .. })
        ));
    }

    #[test]
    fn no_reader_sees_a_mixture_of_two_publications() {
        let directory = tempfile::tempdir().unwrap();
        let mut publisher = WatermarkPublisher::open(directory.path()).unwrap();
        publisher.publish(state(1));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let reader = WatermarkReader::open(directory.path()).unwrap();
                    let mut last = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let seen = reader.read().unwrap();
                        assert_eq!(seen, state(seen.epoch));
                        assert!(seen.epoch >= last, "went back");
                        last = seen.epoch;
                    }
                });
            }
            for number in 2..200_000 {
                publisher.publish(state(number));
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
