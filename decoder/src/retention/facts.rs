//! Finds out what is known of the segments.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::SystemTime;

use storage_format::FormatError;
use storage_format::fs::Fs;
use storage_format::segment::{
    FOOTER_TRAILER_LEN, Footer, SegmentInfo, SegmentState, list_segments,
};

use super::collector::Usage;
use super::decide::SegmentFacts;

/// A footer is a few hundred bytes; one that claims to be longer is not read.
const FOOTER_LEN_MAX: u64 = 64 << 10;

/// The segments of a log directory, oldest first.
pub(super) fn segments(fs: &dyn Fs, log: &Path) -> Result<Vec<SegmentFacts>, FormatError> {
    let infos = list_segments(fs, log)?;
    let ends = infos.iter().skip(1).map(|next| Some(next.name.first_lsn));
    let ends: Vec<_> = ends.chain([None]).collect();
    Ok(infos
        .iter()
        .zip(ends)
        .map(|(info, end_lsn)| {
            let (bytes, modified_at) = file_facts(&info.path);
            SegmentFacts {
                name: info.name,
                sealed: info.state == SegmentState::Sealed,
                end_lsn,
                bytes,
                raw_bytes: raw_bytes(info, bytes),
                modified_at,
            }
        })
        .collect())
}

/// How much there is.
pub(super) fn usage(fs: &dyn Fs, log: &Path) -> Result<Usage, FormatError> {
    let infos = list_segments(fs, log)?;
    Ok(Usage {
        oldest: infos.first().map(|info| info.name.first_lsn),
        segments: infos.len() as u64,
        bytes: infos.iter().map(|info| file_facts(&info.path).0).sum(),
    })
}

/// A segment can be sealed, and its active file go, between listing and looking: then it has no size for once, and
/// counts as just written.
fn file_facts(path: &Path) -> (u64, SystemTime) {
    let metadata = std::fs::metadata(path);
    metadata.map_or_else(
        |_| (0, SystemTime::now()),
        |metadata| {
            let modified_at = metadata.modified().unwrap_or_else(|_| SystemTime::now());
            (metadata.len(), modified_at)
        },
    )
}

/// From the footer; for information only, so that whatever is wrong with it is left to who reads the segment.
fn raw_bytes(info: &SegmentInfo, file_len: u64) -> Option<u64> {
    if info.state != SegmentState::Sealed {
        return None;
    }
    read_footer(&info.path, file_len).ok().flatten()
}

fn read_footer(path: &Path, file_len: u64) -> io::Result<Option<u64>> {
    let file = File::open(path)?;
    let mut trailer = [0; FOOTER_TRAILER_LEN];
    let Some(at) = file_len.checked_sub(FOOTER_TRAILER_LEN as u64) else {
        return Ok(None);
    };
    file.read_exact_at(&mut trailer, at)?;
    let Ok(offset) = Footer::locate(&trailer, file_len) else {
        return Ok(None);
    };
    let length = file_len.saturating_sub(offset);
    if length > FOOTER_LEN_MAX {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(Footer::decode(&bytes, offset)
        .ok()
        .map(|(footer, _)| footer.raw_bytes))
}
