//! What a writer that did not end well leaves behind.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::error::FormatError;
use crate::fs::Fs;
use crate::segment::{SegmentExtension, SegmentName};

/// Removes what is of no use to anybody; returns what that was. See [`leftovers`].
pub(crate) fn remove_leftovers(fs: &dyn Fs, log: &Path) -> Result<Vec<PathBuf>, FormatError> {
    let useless = leftovers(fs, log)?;
    for path in &useless {
        fs.remove(path).map_err(FormatError::io("remove", path))?;
    }
    if !useless.is_empty() {
        let folder = SegmentName::folder(log);
        fs.sync_dir(&folder)
            .map_err(FormatError::io("fsync", &folder))?;
    }
    Ok(useless)
}

/// What a writer left that did not end well: files under temporary names, active files whose sealed ones are there,
/// indexes without their segment.
pub(crate) fn leftovers(fs: &dyn Fs, log: &Path) -> Result<Vec<PathBuf>, FormatError> {
    let folder = SegmentName::folder(log);
    let paths = fs.list(&folder).map_err(FormatError::io("list", &folder))?;
    let sealed: BTreeSet<SegmentName> = paths
        .iter()
        .filter_map(|path| named(path))
        .filter(|(_, extension)| *extension == SegmentExtension::Sealed)
        .map(|(name, _)| name)
        .collect();
    Ok(paths
        .into_iter()
        .filter(|path| is_leftover(path, &sealed))
        .collect())
}

fn is_leftover(path: &Path, sealed: &BTreeSet<SegmentName>) -> bool {
    if path.extension() == Some(OsStr::new(SegmentExtension::Temporary.as_str())) {
        return true;
    }
    named(path).is_some_and(|(name, extension)| match extension {
        SegmentExtension::Active => sealed.contains(&name),
        SegmentExtension::Index => !sealed.contains(&name),
        SegmentExtension::Sealed | SegmentExtension::Temporary => false,
    })
}

fn named(path: &Path) -> Option<(SegmentName, SegmentExtension)> {
    SegmentName::parse_file_name(path.file_name()?.to_str()?)
}
