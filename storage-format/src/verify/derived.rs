//! What is derived from the segments: indexes. And what is of no use to anybody.

use std::io;
use std::path::{Path, PathBuf};

use super::report::{Finding, Remedy};
use super::walk::{Checked, Walk};
use crate::error::{Damage, FormatError};
use crate::fs::{Fs, read_full_at};
use crate::seal::publish_index;
use crate::segment::{SegmentExtension, SegmentName};
use crate::watermark::{WATERMARK_FILE, WatermarkError, WatermarkReader};
use crate::write::{lock_existing, remove_leftovers};

/// What [`repair`] did.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// Indexes that were made anew.
    pub indexes: Vec<PathBuf>,
    /// Files that were removed.
    pub leftovers: Vec<PathBuf>,
    /// Whether the watermark was removed; the decoder's next start makes it anew.
    pub watermark: bool,
}

/// Holds a sealed segment's index against the segment.
pub(super) fn check_index(
    fs: &dyn Fs,
    log: &Path,
    segment: &Checked,
    findings: &mut Vec<Finding>,
) -> Result<(), FormatError> {
    if let Some(expected) = &segment.index
        && let Some((offset, damage)) = difference(fs, log, segment.name, expected)?
    {
        findings.push(Finding {
            path: segment.name.path(log, SegmentExtension::Index),
            offset,
            damage,
            remedy: Remedy::Repair,
        });
    }
    Ok(())
}

/// The first place where an index file is not what it must be.
fn difference(
    fs: &dyn Fs,
    log: &Path,
    name: SegmentName,
    expected: &[u8],
) -> Result<Option<(u64, Damage)>, FormatError> {
    let path = name.path(log, SegmentExtension::Index);
    let file = match fs.open_to_read(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let damage = Damage::Content("the index is missing, expected one".to_owned());
            return Ok(Some((0, damage)));
        }
        Err(error) => return Err(FormatError::io("open", &path)(error)),
    };
    let length = file.length().map_err(FormatError::io("measure", &path))?;
    // One byte more than expected: enough to see that there is more.
    let mut found = vec![0; expected.len() + 1];
    let read = read_full_at(&*file, &mut found, 0).map_err(FormatError::io("read", &path))?;
    found.truncate(read);
    let differs = expected.iter().zip(&found).position(|(a, b)| a != b);
    Ok(match differs {
        Some(at) => {
            let byte = |bytes: &[u8]| bytes.get(at).map_or(0, |byte| *byte);
            let (expected, found) = (byte(expected), byte(&found));
            Some((
                at as u64,
                Damage::mismatch(
                    "index byte",
                    format_args!("{expected:02x}"),
                    format_args!("{found:02x}"),
                ),
            ))
        }
        None if found.len() != expected.len() => {
            Some((0, Damage::mismatch("index length", expected.len(), length)))
        }
        None => None,
    })
}

/// Makes anew what is derived and removes leftovers. No decoder may be at work: the log is locked meanwhile.
pub fn repair(fs: &dyn Fs, log: &Path) -> Result<Repaired, FormatError> {
    let _lock = lock_existing(fs, log)?;
    let mut repaired = Repaired {
        leftovers: remove_leftovers(fs, log)?,
        watermark: remove_foreign_watermark(fs, log)?,
        ..Repaired::default()
    };
    let mut walk = Walk::new(fs, log, None, false)?;
    while let Some(segment) = walk.next(&mut |_| {})? {
        if let Some(expected) = &segment.index
            && difference(fs, log, segment.name, expected)?.is_some()
        {
            publish_index(fs, log, segment.name, expected)?;
            repaired
                .indexes
                .push(segment.name.path(log, SegmentExtension::Index));
        }
    }
    Ok(repaired)
}

/// A watermark that can't be understood keeps the decoder from starting, and says nothing.
fn remove_foreign_watermark(fs: &dyn Fs, log: &Path) -> Result<bool, FormatError> {
    let foreign = match WatermarkReader::open_on(fs, log) {
        Err(WatermarkError::Foreign { .. }) => true,
        Ok(reader) => reader
            .read()
            .is_ok_and(|state| state.durable.lsn > state.written.lsn),
        Err(_) => false,
    };
    if foreign {
        let path = log.join(WATERMARK_FILE);
        fs.remove(&path).map_err(FormatError::io("remove", &path))?;
    }
    Ok(foreign)
}
