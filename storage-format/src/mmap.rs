//! Memory maps: the only unsafe code of the workspace.
//!
//! Two kinds of files are mapped. Of a *segment* or an *index*, [`FileMap::settled`] hands out byte ranges that
//! nobody will ever change again: ranges of sealed files, and of an active segment only what lies below the
//! published watermark. What lies behind it may be written by the decoder at any moment, so no Rust reference
//! to it is ever made, which is why the map is kept as a raw pointer. The *watermark* is written by one process
//! while others read it, so it is only ever seen as atomics ([`WordMap`]).
//!
//! A page behind the end of a mapped file can't be touched (SIGBUS): lengths are checked before a map is made, and
//! no file of a log is ever shortened. Deleting a mapped file is harmless.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use memmap2::{MmapOptions, MmapRaw, UncheckedAdvice};

/// A read-only map of a file's first bytes. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct FileMap {
    raw: Arc<MmapRaw>,
}

impl FileMap {
    /// Maps the first `length` bytes of the file. Fails with `UnexpectedEof` if it has fewer.
    pub(crate) fn open(file: &File, length: usize) -> io::Result<Self> {
        check_length(file, length)?;
        let raw = MmapOptions::new().len(length).map_raw_read_only(file)?;
        Ok(Self { raw: Arc::new(raw) })
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

/// A shared map of a file of 64-bit words, each of which is accessed atomically.
#[derive(Debug)]
pub(crate) struct WordMap {
    raw: MmapRaw,
    words: usize,
}

impl WordMap {
    /// Maps the first `words` words for reading and writing.
    pub(crate) fn open_writable(file: &File, words: usize) -> io::Result<Self> {
        check_length(file, words * 8)?;
        let raw = MmapOptions::new().len(words * 8).map_raw(file)?;
        Ok(Self { raw, words })
    }

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
        // and so is aligned for `AtomicU64`, and lives as long as `self`; every bit pattern is a value. All
        // processes access the file through atomics only, so there are no data races. Relaxed loads of 8 bytes
        // from read-only memory are plain loads on every 64-bit target that Rust supports.
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
    fn a_short_file_is_not_mapped() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123").unwrap();
        let error = FileMap::open(&file, 5).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(WordMap::open_read_only(&file, 1).is_err());
    }

    #[test]
    fn words_are_seen_through_both_maps() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let writer = WordMap::open_writable(file.as_file(), 512).unwrap();
        let reader = WordMap::open_read_only(&file.reopen().unwrap(), 512).unwrap();
        writer.words()[511].store(7, Ordering::Relaxed);
        assert_eq!(reader.words()[511].load(Ordering::Relaxed), 7);
    }
}
