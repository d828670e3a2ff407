//! The words of the file, and the way to read a slot that may be written meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use pg_proto::Lsn;

use super::{Cut, LogPoint, WatermarkError, WatermarkState};
use crate::mmap::WordMap;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"DCNTWMRK");
pub(super) const VERSION: u64 = 1;
pub(super) const FILE_WORDS: usize = 512;

pub(super) const HEARTBEAT_WORD: usize = 2;
pub(super) const COUNT_WORD: usize = 3;
/// Nothing at or behind this position is served; 0 for no such position.
pub(super) const FENCE_WORD: usize = 4;
/// Where the log was cut off last, and the writer epoch from which on that holds; 0 if never.
pub(super) const CUT_LSN_WORD: usize = 5;
pub(super) const CUT_EPOCH_WORD: usize = 6;
/// Commit LSN of the first transaction that was taken off then; 0 if there was none.
pub(super) const CUT_FIRST_WORD: usize = 7;
const MAGIC_WORD: usize = 0;
const VERSION_WORD: usize = 1;
/// First word of each slot: sectors 1 and 2.
const SLOT_WORDS: [usize; 2] = [64, 128];
/// Words of a slot: count, epoch, two points of three words, checksum.
const SLOT_LEN: usize = 9;

/// The newest complete publication and its number.
pub(super) fn newest(map: &WordMap) -> Option<(u64, WatermarkState)> {
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

/// Where the log was cut off last.
pub(super) fn cut(map: &WordMap) -> Option<Cut> {
    let epoch = load(map, CUT_EPOCH_WORD);
    let first = load(map, CUT_FIRST_WORD);
    (epoch != 0).then(|| Cut {
        lsn: Lsn(load(map, CUT_LSN_WORD)),
        epoch,
        first_commit_lsn: (first != 0).then_some(Lsn(first)),
    })
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

pub(super) fn encode(count: u64, state: WatermarkState) -> [u64; SLOT_LEN] {
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

pub(super) const fn slot_start(count: u64) -> usize {
    if count.is_multiple_of(2) {
        SLOT_WORDS[0]
    } else {
        SLOT_WORDS[1]
    }
}

pub(super) fn check_identity(map: &WordMap, path: &Path) -> Result<(), WatermarkError> {
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
pub(super) fn load(map: &WordMap, index: usize) -> u64 {
    word(map, index).map_or(0, |word| u64::from_le(word.load(Ordering::Relaxed)))
}

fn word(map: &WordMap, index: usize) -> Option<&AtomicU64> {
    map.words().get(index)
}
