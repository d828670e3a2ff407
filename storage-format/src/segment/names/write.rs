//! Keeping the file in step with the log.
//!
//! Nothing here is synced, and what fails is not told: readers list the folder then, until it works again.

use std::io::{self, IoSlice};
use std::path::Path;

use super::NAMES_FILE;
use super::layout::{Header, OLDEST_OFFSET, encode_entry, encode_oldest};
use super::read::{SegmentNames, is_there};
use crate::error::FormatError;
use crate::fs::{Fs, remove_if_there, write_all_at};
use crate::segment::{SegmentName, list_segments};

const TEMPORARY: &str = "names.tmp";

/// Makes the file anew. `names` are all segments, in order; if one is missing between others, there is no file.
pub(crate) fn write_names(fs: &dyn Fs, log: &Path, names: &[SegmentName]) {
    let written = encode(names).is_some_and(|bytes| replace(fs, log, &bytes).is_ok());
    if !written {
        // Another one may be there, of which nobody knows what it says.
        let _ = fs.remove(&log.join(TEMPORARY));
        let _ = fs.remove(&log.join(NAMES_FILE));
    }
}

/// The names of the segments that are there.
pub(crate) fn names_of(fs: &dyn Fs, log: &Path) -> Result<Vec<SegmentName>, FormatError> {
    let segments = list_segments(fs, log)?;
    Ok(segments.into_iter().map(|segment| segment.name).collect())
}

/// Adds the segment that was begun. A file that lacks others before it is made anew.
pub(crate) fn add_name(fs: &dyn Fs, log: &Path, name: SegmentName) {
    if append(fs, log, name).is_none()
        && let Ok(names) = names_of(fs, log)
    {
        write_names(fs, log, &names);
    }
}

/// Notes that segments were deleted, the oldest first: all that are gone from the one on that was the oldest.
pub(crate) fn pass_deleted(fs: &dyn Fs, log: &Path) {
    // Without it the next deletion finds the same.
    let _ = move_oldest(fs, log);
}

fn encode(names: &[SegmentName]) -> Option<Vec<u8>> {
    let first = names.first()?.sequence;
    let mut out = Vec::new();
    let header = Header {
        first,
        oldest: first,
    };
    out.extend_from_slice(&header.encode());
    for (sequence, name) in (first..=u64::MAX).zip(names) {
        if name.sequence != sequence {
            return None;
        }
        out.extend_from_slice(&encode_entry(*name));
    }
    Some(out)
}

fn replace(fs: &dyn Fs, log: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = log.join(TEMPORARY);
    remove_if_there(fs, &temporary).map_err(io::Error::other)?;
    let file = fs.create_new(&temporary)?;
    write_all_at(&*file, &mut [IoSlice::new(bytes)], 0)?;
    fs.rename(&temporary, &log.join(NAMES_FILE))
}

fn open(fs: &dyn Fs, log: &Path) -> Option<SegmentNames> {
    SegmentNames::of(fs.open(&log.join(NAMES_FILE)).ok()?)
}

fn append(fs: &dyn Fs, log: &Path, name: SegmentName) -> Option<()> {
    let names = open(fs, log)?;
    let place = names.header.place(name.sequence)?;
    let follows = names.last()?.sequence.checked_add(1)? == name.sequence;
    let entry = encode_entry(name);
    let write = || write_all_at(&*names.file, &mut [IoSlice::new(&entry)], place).ok();
    follows.then(write)?
}

fn move_oldest(fs: &dyn Fs, log: &Path) -> Option<()> {
    let names = open(fs, log)?;
    let mut oldest = names.header.oldest;
    while let Some(name) = names.get(oldest)
        && !is_there(fs, log, name).ok()?
    {
        oldest = oldest.checked_add(1)?;
    }
    if oldest == names.header.oldest {
        return Some(());
    }
    let bytes = encode_oldest(oldest);
    write_all_at(&*names.file, &mut [IoSlice::new(&bytes)], OLDEST_OFFSET).ok()
}
