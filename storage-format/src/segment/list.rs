//! Which segments a log directory holds.

use std::io;
use std::path::{Path, PathBuf};

use super::names::pass_deleted;
use super::{SEGMENT_HEADER_LEN, SegmentExtension, SegmentHeader, SegmentName};
use crate::error::FormatError;
use crate::failpoint::hit;
use crate::fs::{Fs, read_full_at, remove_if_there};
use crate::identity::Identity;

/// Whether a segment's file is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Raw blocks; the last one of the log is being appended to.
    Active,
    /// Immutable.
    Sealed,
}

/// A segment that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its sequence and first LSN.
    pub name: SegmentName,
    /// What its file is. A segment with both files counts as sealed: the sealed one is complete before it gets
    /// its name, and the other one is about to be removed.
    pub state: SegmentState,
    /// The file.
    pub path: PathBuf,
}

/// The segments of a log directory, in order. What is no segment's file is left alone; an empty list if the
/// directory does not exist.
pub fn list_segments(fs: &dyn Fs, log: &Path) -> Result<Vec<SegmentInfo>, FormatError> {
    let folder = SegmentName::folder(log);
    let mut segments = Vec::new();
    match fs.each_name(&folder, &mut |name| segments.extend(info(&folder, name))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(FormatError::io("list", &folder)(error));
        }
        _ => {}
    }
    // Sealed before active where both are there, so that the first of the two stays.
    segments.sort_by_key(|segment| (segment.name, segment.state == SegmentState::Active));
    segments.dedup_by_key(|segment| segment.name);
    Ok(segments)
}

/// For each file of what may be tens of thousands: nothing is allocated but what is kept.
fn info(folder: &Path, file_name: &str) -> Option<SegmentInfo> {
    let (stem, extension) = file_name.split_once('.')?;
    let state = if extension == SegmentExtension::Sealed.as_str() {
        SegmentState::Sealed
    } else if extension == SegmentExtension::Active.as_str() {
        SegmentState::Active
    } else {
        return None;
    };
    Some(SegmentInfo {
        name: stem.parse().ok()?,
        state,
        path: folder.join(file_name),
    })
}

/// Whose log a directory holds, as its newest segment says; `None` if there is no segment.
pub fn read_identity(fs: &dyn Fs, log: &Path) -> Result<Option<Identity>, FormatError> {
    let Some(last) = list_segments(fs, log)?.pop() else {
        return Ok(None);
    };
    let path = &last.path;
    let file = fs.open(path).map_err(FormatError::io("open", path))?;
    let mut start = [0; SEGMENT_HEADER_LEN];
    let read = read_full_at(&*file, &mut start, 0).map_err(FormatError::io("read", path))?;
    let sealed = last.state == SegmentState::Sealed;
    let start = start.get(..read).unwrap_or_default();
    let (header, _) = SegmentHeader::decode_file(start, path, last.name, sealed)?;
    Ok(Some(header.identity))
}

/// Removes a segment with all that belongs to it. Readers that have it open keep it. From the oldest on, if they are to find
/// the oldest without listing the folder.
pub fn delete_segment(fs: &dyn Fs, log: &Path, name: SegmentName) -> Result<(), FormatError> {
    hit("gc.begin");
    // The index last: without its segment it is nobody's, the other way round it would be rebuilt.
    for extension in [
        SegmentExtension::Active,
        SegmentExtension::Sealed,
        SegmentExtension::Index,
    ] {
        remove_if_there(fs, &name.path(log, extension))?;
        hit("gc.segment_removed");
    }
    let folder = SegmentName::folder(log);
    fs.sync_dir(&folder)
        .map_err(FormatError::io("sync", &folder))?;
    hit("gc.directory_synced");
    pass_deleted(fs, log);
    Ok(())
}
