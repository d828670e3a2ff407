//! Looking segments up.

use std::io;
use std::path::Path;

use pg_proto::Lsn;

use super::NAMES_FILE;
use super::layout::{ENTRY_LEN, HEADER_LEN, Header, decode_entry};
use crate::fs::{Fs, FsFile, read_full_at};
use crate::segment::{SegmentExtension, SegmentName};

/// How many segments are looked for before the folder is listed instead. One that was deleted is noted at once, so that as a
/// rule the first one is there, or while one is being deleted the second.
const LOOKS: usize = 4;

/// The file of a log directory, opened. What it can't tell it does not tell; the folder does.
#[derive(Debug)]
pub(crate) struct SegmentNames {
    pub(super) file: Box<dyn FsFile>,
    pub(super) header: Header,
}

impl SegmentNames {
    /// Opens it for one look; `None` if there is none that can be used. The writer may put another in its place.
    pub(crate) fn open(fs: &dyn Fs, log: &Path) -> Option<Self> {
        Self::of(fs.open_to_read(&log.join(NAMES_FILE)).ok()?)
    }

    pub(super) fn of(file: Box<dyn FsFile>) -> Option<Self> {
        let mut bytes = [0; HEADER_LEN];
        let read = read_full_at(&*file, &mut bytes, 0).ok()?;
        let header = Header::decode(&bytes).filter(|_| read == HEADER_LEN)?;
        Some(Self { file, header })
    }

    /// What it says of a segment.
    pub(super) fn get(&self, sequence: u64) -> Option<SegmentName> {
        let mut bytes = [0; ENTRY_LEN];
        let place = self.header.place(sequence)?;
        let read = read_full_at(&*self.file, &mut bytes, place).ok()?;
        decode_entry(sequence, &bytes).filter(|_| read == ENTRY_LEN)
    }

    /// The last one that it has.
    pub(crate) fn last(&self) -> Option<SegmentName> {
        let entries = self.file.length().ok()?.checked_sub(HEADER_LEN as u64)?;
        let before = (entries / ENTRY_LEN as u64).checked_sub(1)?;
        self.get(self.header.first.checked_add(before)?)
    }

    /// The last segment up to the one at the head that begins at or before `lsn`. Only from a file that has the head's:
    /// another is older than the log. The one behind it must be there, so that it is known where that begins.
    pub(crate) fn find(&self, fs: &dyn Fs, log: &Path, lsn: Lsn, head: u64) -> Option<SegmentName> {
        let mut behind = self.get(head)?;
        if behind.first_lsn <= lsn {
            return Some(behind);
        }
        let mut found = None;
        let (mut low, mut high) = (self.header.first, head);
        while low < high {
            let middle = low + (high - low) / 2;
            let name = self.get(middle)?;
            if name.first_lsn <= lsn {
                found = Some(name);
                low = middle + 1;
            } else {
                behind = name;
                high = middle;
            }
        }
        found.filter(|_| is_there(fs, log, behind).is_ok_and(|there| there))
    }

    /// The oldest segment that is there.
    pub(crate) fn oldest(&self, fs: &dyn Fs, log: &Path) -> Option<SegmentName> {
        let oldest = self.header.oldest;
        if oldest > self.header.first && is_there(fs, log, self.get(oldest - 1)?).ok()? {
            return None;
        }
        for sequence in (oldest..=u64::MAX).take(LOOKS) {
            let name = self.get(sequence)?;
            if is_there(fs, log, name).ok()? {
                return Some(name);
            }
        }
        None
    }
}

/// Whether a segment has a file.
pub(super) fn is_there(fs: &dyn Fs, log: &Path, name: SegmentName) -> io::Result<bool> {
    // In this order: the sealed file gets its name before the raw one loses its own.
    for extension in [SegmentExtension::Active, SegmentExtension::Sealed] {
        match fs.open_to_read(&name.path(log, extension)) {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
