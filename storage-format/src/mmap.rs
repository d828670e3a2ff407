//! Memory maps: the only unsafe code of the workspace.
//!
//! Two kinds of files are mapped. Of a *segment* or an *index*, [`FileMap::settled`] hands out byte ranges that
//! nobody will ever change again: ranges of sealed files, and of an active segment only what lies below the
//! published watermark. What lies behind it may be written by the decoder at any moment, so no Rust reference
//! to it is ever made, which is why the map is kept as a raw pointer. The *watermark* is written by one process
//! while others read it, so it is only ever seen as atomics ([`WordMap`]). Nothing is written through a map.
//!
//! A page behind the end of a mapped file can't be touched (SIGBUS): lengths are checked before a map is made, and
//! no file of a log is ever shortened. Deleting a mapped file is harmless. Nor can a page be touched that the disk does
//! not deliver: [`FileMap::fetch`] has it read before, so that it is an error for who wants it and not the end of the
//! process. What stays is a page that was read, had to leave the memory, and can't be read again.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::io::Errno;

/// A read-only map of a file's first bytes. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct FileMap {
    raw: Arc<MmapRaw>,
    /// A bit for each chunk that was read since pages were last released.
    fetched: Arc<[AtomicU64]>,
}

/// What the bits of [`FileMap`] stand for, and what is read at least: Linux maps so much around a page that is touched
/// (`fault_around_bytes`).
const CHUNK_LEN: usize = 64 << 10;
const WORD_CHUNKS: usize = u64::BITS as usize;
/// What the words stand for. Where the page cache has the file in large folios, touching one byte makes up to 2 MB
/// resident; so a word whose first bit is set counts as a whole.
const WORD_LEN: usize = CHUNK_LEN * WORD_CHUNKS;

impl FileMap {
    /// Maps the first `length` bytes of the file. Fails with `UnexpectedEof` if it has fewer.
    pub(crate) fn open(file: &File, length: usize) -> io::Result<Self> {
        check_length(file, length)?;
        let raw = MmapOptions::new().len(length).map_raw_read_only(file)?;
        let words = length.div_ceil(WORD_LEN);
        Ok(Self {
            raw: Arc::new(raw),
            fetched: (0..words).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Has a range read, unless it was since [`Self::release`]. How many bytes of the map may have become resident by that,
    /// most of which need not be in the range. Fails if the disk does not deliver them.
    pub(crate) fn fetch(&self, range: Range<usize>) -> io::Result<usize> {
        if range.start >= range.end || self.is_fetched(&range) {
            return Ok(0);
        }
        let start = range.start - range.start % CHUNK_LEN;
        let end = range.end.next_multiple_of(CHUNK_LEN).min(self.raw.len());
        let Some(length) = end.checked_sub(start) else {
            return Ok(0);
        };
        let read = self.raw.advise_range(Advice::PopulateRead, start, length);
        let failure = read.err().and_then(|error| Errno::from_io_error(&error));
        // Touching it would raise SIGBUS, says EFAULT. Others are of a kernel that does not know this advice, or will not
        // follow it; then there is only the way without it.
        if matches!(failure, Some(Errno::FAULT | Errno::IO | Errno::HWPOISON)) {
            return Err(Errno::IO.into());
        }
        let untouched = chunks(&range).filter(|(word, bits)| {
            let word = self.fetched.get(*word);
            word.is_some_and(|word| word.fetch_or(*bits, Ordering::Relaxed) == 0)
        });
        Ok(untouched.count() * WORD_LEN)
    }

    fn is_fetched(&self, range: &Range<usize>) -> bool {
        chunks(range).all(|(word, bits)| {
            let word = self.fetched.get(word);
            word.is_some_and(|word| word.load(Ordering::Relaxed) & bits == bits)
        })
    }

    /// Number of mapped bytes.
    pub(crate) fn len(&self) -> usize {
        self.raw.len()
    }

    /// Takes the map's pages out of this process's resident memory. They stay in the page cache, and come back when
    /// they are read again.
    #[expect(
        unsafe_code,
        reason = "advice that memmap2 can't know to be harmless here"
    )]
    pub(crate) fn release(&self) -> io::Result<()> {
        for word in self.fetched.iter() {
            word.store(0, Ordering::Relaxed);
        }
        // SAFETY: what makes this advice dangerous is that pages can lose their content. Those of a shared map of a
        // file don't: they are the page cache's, nothing is written through this read-only map, and the next access
        // finds the same bytes again. Slices of the map stay valid, since the map itself stays.
        unsafe { self.raw.unchecked_advise(UncheckedAdvice::DontNeed) }
    }

    /// As [`Self::settled`], for a look that ends before the map does.
    #[expect(unsafe_code, reason = "a slice of a memory map")]
    pub(crate) fn look(&self, range: Range<usize>) -> Option<&[u8]> {
        let length = range.end.checked_sub(range.start)?;
        if range.end > self.raw.len() {
            return None;
        }
        // SAFETY: as in `Settled::as_ref`; the range was checked just now, and the slice borrows the map.
        Some(unsafe { std::slice::from_raw_parts(self.raw.as_ptr().add(range.start), length) })
    }

    /// Bytes of the map that will never change again, without copying them; `None` if the range is not within
    /// the map. The map lives as long as the longest-lived of them.
    ///
    /// The caller answers for "never change again": it passes ranges of a sealed file, or ranges that end at or
    /// below the watermark's offset.
    pub(crate) fn settled(&self, range: Range<usize>) -> Option<Bytes> {
        let length = range.end.checked_sub(range.start)?;
        if range.end > self.raw.len() {
            return None;
        }
        let map = Arc::clone(&self.raw);
        Some(Bytes::from_owner(Settled {
            map,
            start: range.start,
            length,
        }))
    }
}

/// The chunks that a range touches, as bits of words.
fn chunks(range: &Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let (first, last) = (
        range.start / CHUNK_LEN,
        range.end.saturating_sub(1) / CHUNK_LEN,
    );
    (first / WORD_CHUNKS..=last / WORD_CHUNKS).map(move |word| {
        let from = first.saturating_sub(word * WORD_CHUNKS);
        let to = (last - word * WORD_CHUNKS).min(WORD_CHUNKS - 1);
        let below = u64::MAX.unbounded_shl(u32::try_from(from).unwrap_or(u32::MAX));
        let above = u64::MAX >> (WORD_CHUNKS - 1 - to);
        (word, below & above)
    })
}

/// A range of a map, within its bounds.
struct Settled {
    map: Arc<MmapRaw>,
    start: usize,
    length: usize,
}

impl AsRef<[u8]> for Settled {
    #[expect(unsafe_code, reason = "a slice of a memory map")]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `start + length` was checked against the map's length by `FileMap::settled`, the file had that
        // length when it was mapped and is never shortened, and `self` keeps the map. Nobody writes to the range
        // while the slice exists: it belongs to a sealed file, or lies below the watermark, and the decoder never
        // changes a byte below the watermark it has published: an open transaction is rewound to it at most, and
        // recovery writes again only what it has read there.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(self.start), self.length) }
    }
}

/// A shared map of a file of 64-bit words, each of which is read atomically.
#[derive(Debug)]
pub(crate) struct WordMap {
    raw: MmapRaw,
    words: usize,
}

impl WordMap {
    /// Maps the first `words` words for reading. The words must then only be loaded, with relaxed ordering (and
    /// fences where order matters); a store would fault.
    pub(crate) fn open_read_only(file: &File, words: usize) -> io::Result<Self> {
        check_length(file, words * 8)?;
        let raw = MmapOptions::new().len(words * 8).map_raw_read_only(file)?;
        Ok(Self { raw, words })
    }

    /// The words.
    #[expect(unsafe_code, reason = "atomics in a memory map")]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the map has `words * 8` bytes, was checked against the file's length, starts at a page boundary
        // and so is aligned for `AtomicU64`, and lives as long as `self`; every bit pattern is a value. The words
        // are changed by the kernel only, for a writer's calls, and read here through atomics, so there are no data
        // races. Relaxed loads of 8 bytes from read-only memory are plain loads on every 64-bit target that Rust
        // supports.
        unsafe { std::slice::from_raw_parts(self.raw.as_ptr().cast::<AtomicU64>(), self.words) }
    }
}

fn check_length(file: &File, need: usize) -> io::Result<()> {
    let have = file.metadata()?.len();
    if usize::try_from(have).is_ok_and(|have| have < need) {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("the file has {have} bytes where {need} are to be mapped"),
        ));
    }
    Ok(())
}

const _: () = assert!(cfg!(target_pointer_width = "64"), "maps are not windowed");

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn hands_out_ranges_within_the_map_only() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let map = FileMap::open(&file, 10).unwrap();
        assert_eq!(map.settled(2..5).unwrap(), &b"234"[..]);
        assert_eq!(map.settled(10..10).unwrap().len(), 0);
        assert!(map.settled(5..11).is_none());
        #[expect(
            clippy::reversed_empty_ranges,
            reason = "what a damaged length can lead to"
        )]
        let reversed = 5..4;
        assert!(map.settled(reversed).is_none());
        let kept = map.settled(0..3).unwrap();
        drop(map);
        drop(file);
        assert_eq!(kept, &b"012"[..]);
    }

    /// Resident bytes of the maps of a file, as the kernel counts them.
    fn resident(path: &std::path::Path) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let lines = maps
            .lines()
            .skip_while(|line| !line.ends_with(path.to_str().unwrap()));
        let rss = lines.skip(1).find_map(|line| line.strip_prefix("Rss:"));
        let kilobytes: usize = rss.unwrap().trim().trim_end_matches(" kB").parse().unwrap();
        kilobytes * 1024
    }

    #[test]
    fn released_pages_are_not_resident_and_keep_their_content() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        file.write_all(&content).unwrap();
        let map = FileMap::open(file.as_file(), content.len()).unwrap();
        let bytes = map.settled(0..content.len()).unwrap();
        assert!(bytes == content);
        assert!(resident(file.path()) >= content.len());
        map.release().unwrap();
        assert_eq!(resident(file.path()), 0);
        assert!(bytes == content);
    }

    #[test]
    fn chunks_of_ranges() {
        let chunks = |range| chunks(&range).collect::<Vec<_>>();
        let long = CHUNK_LEN;
        assert_eq!(chunks(0..1), [(0, 1)]);
        assert_eq!(chunks(long - 1..long + 1), [(0, 0b11)]);
        assert_eq!(chunks(long..2 * long), [(0, 0b10)]);
        assert_eq!(chunks(63 * long..65 * long), [(0, 1 << 63), (1, 1)]);
        assert_eq!(chunks(0..129 * long), [(0, !0), (1, !0), (2, 1)]);
    }

    /// The kernel raises SIGBUS for a page behind the end of the file as for one that the disk does not deliver.
    #[test]
    fn what_can_not_be_read_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(512 << 10).unwrap();
        let map = FileMap::open(file.as_file(), 512 << 10).unwrap();
        map.fetch(70_000..200_000).unwrap();
        file.as_file().set_len(256 << 10).unwrap();
        map.fetch(70_000..200_000).unwrap();
        let error = map.fetch(200_000..300_000).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::IO));
    }

    /// What is said to become resident is at least what the kernel counts.
    #[test]
    fn what_becomes_resident_is_counted() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let content = vec![7; 5 * WORD_LEN];
        file.write_all(&content).unwrap();
        let map = FileMap::open(file.as_file(), content.len()).unwrap();
        let mut counted = 0;
        for at in [5, 70_000, 3 * WORD_LEN, 2 * WORD_LEN - 5, 70_000] {
            counted += map.fetch(at..at + 5).unwrap();
            assert_eq!(map.look(at..at + 5), Some(&[7; 5][..]));
        }
        assert_eq!(counted, 3 * WORD_LEN);
        let resident = resident(file.path());
        assert!(resident <= counted, "{resident}, {counted}");
        map.release().unwrap();
        assert_eq!(map.fetch(5..10).unwrap(), WORD_LEN);
        assert_eq!(map.fetch(0..content.len()).unwrap(), 4 * WORD_LEN);
    }

    #[test]
    fn a_short_file_is_not_mapped() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123").unwrap();
        let error = FileMap::open(&file, 5).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(WordMap::open_read_only(&file, 1).is_err());
    }

    #[test]
    fn words_that_are_written_are_seen_through_the_map() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let reader = WordMap::open_read_only(&file.reopen().unwrap(), 512).unwrap();
        file.as_file()
            .write_all_at(&7_u64.to_le_bytes(), 511 * 8)
            .unwrap();
        assert_eq!(reader.words()[511].load(Ordering::Relaxed), 7);
    }
}
