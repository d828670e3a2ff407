//! Moving damage aside, with a gap in its place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pg_proto::Lsn;

use super::replacement::{Keep, Replacement, header_like};
use super::walk::{Carried, Checked, Walk};
use crate::catalog::Catalog;
use crate::error::{Damage, FormatError};
use crate::fs::Fs;
use crate::identity::Identity;
use crate::segment::{SegmentExtension, SegmentName, read_identity};
use crate::watermark::{WatermarkReader, WatermarkState};
use crate::write::lock_existing;

/// What [`quarantine`] did about one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// The segment.
    pub name: SegmentName,
    /// Where its old file is now; `None` if the file was missing.
    pub moved_to: Option<PathBuf>,
    /// Where the gap begins: what was before it in the segment is kept.
    pub from: Lsn,
    /// Where the log goes on.
    pub to: Lsn,
}

/// Puts a gap in the place of what is damaged or missing, from the end of the last whole transaction before it to the
/// segment's end. The old files are kept aside. No decoder may be at work: the log is locked meanwhile.
pub fn quarantine(fs: &dyn Fs, log: &Path) -> Result<Vec<Quarantined>, FormatError> {
    let _lock = lock_existing(fs, log)?;
    let watermark = WatermarkReader::open_on(fs, log)
        .and_then(|reader| reader.read())
        .ok();
    let mut work = Work {
        fs,
        log,
        watermark,
        identity: any_identity(fs, log)?,
        done: Vec::new(),
    };
    let mut walk = Walk::new(fs, log, watermark, false)?;
    let mut before = walk.carried.clone();
    let mut previous: Option<Checked> = None;
    while let Some(segment) = walk.next(&mut |_| {})? {
        if let Some(previous) = &previous {
            work.fill_hole(previous, &before, segment.name)?;
        }
        if segment.damaged {
            work.replace(&segment, &before, walk.following())?;
        }
        before = walk.carried.clone();
        previous = Some(segment);
    }
    if let Some(last) = &previous
        && !last.damaged
        && walk.lost(watermark).is_some()
        && let Some(state) = watermark
    {
        work.extend(last, state.durable.lsn)?;
    }
    Ok(work.done)
}

struct Work<'a> {
    fs: &'a dyn Fs,
    log: &'a Path,
    watermark: Option<WatermarkState>,
    identity: Identity,
    done: Vec<Quarantined>,
}

impl Work<'_> {
    /// A segment with damage: what is whole before it is kept.
    fn replace(
        &mut self,
        segment: &Checked,
        before: &Carried,
        following: Option<SegmentName>,
    ) -> Result<(), FormatError> {
        let to = match following {
            Some(next) => next.first_lsn,
            None => self.end_of_last(segment),
        };
        let header = segment
            .header
            .clone()
            .unwrap_or_else(|| header_like(&self.identity, segment.name, before.last_commit_lsn));
        // Nothing but the snapshot, or not even that: then what the segments before say of the catalog is better.
        let keep = (segment.snapshot_whole && segment.header.is_some()).then(|| Keep {
            path: segment.path.clone(),
            sealed: segment.sealed,
            end: segment.complete.offset,
        });
        let from = if keep.is_some() {
            segment.complete_lsn
        } else {
            segment.name.first_lsn
        };
        self.put(header, keep, before.catalog.clone(), from, to)
    }

    /// Segments are missing between two that are there.
    fn fill_hole(
        &mut self,
        previous: &Checked,
        before: &Carried,
        found: SegmentName,
    ) -> Result<(), FormatError> {
        let expected = previous.name.next(before.end_lsn);
        if !before.sound || found == expected {
            return Ok(());
        }
        if found.sequence < expected.sequence || found.first_lsn < expected.first_lsn {
            let path = found.path(self.log, SegmentExtension::Sealed);
            return Err(Damage::mismatch("name of the segment", expected, found).at(&path, 0));
        }
        if found.sequence == expected.sequence {
            return self.extend(previous, found.first_lsn);
        }
        let mut name = expected;
        while name.sequence < found.sequence {
            let header = header_like(&self.identity, name, before.last_commit_lsn);
            let (from, to) = (name.first_lsn, found.first_lsn);
            self.put(header, None, before.catalog.clone(), from, to)?;
            name = name.next(to);
        }
        Ok(())
    }

    /// A sound segment that ends too early: a gap is added.
    fn extend(&mut self, segment: &Checked, to: Lsn) -> Result<(), FormatError> {
        let Some(header) = segment.header.clone() else {
            return Ok(());
        };
        let keep = Keep {
            path: segment.path.clone(),
            sealed: segment.sealed,
            end: if segment.sealed {
                segment.totals.offset
            } else {
                segment.complete.offset
            },
        };
        let from = segment.complete_lsn;
        self.put(header, Some(keep), None, from, to)
    }

    fn put(
        &mut self,
        header: crate::segment::SegmentHeader,
        keep: Option<Keep>,
        catalog: Option<Arc<Catalog>>,
        from: Lsn,
        to: Lsn,
    ) -> Result<(), FormatError> {
        let name = header.name;
        let replacement = Replacement {
            fs: self.fs,
            log: self.log,
            header,
            keep,
            catalog: catalog.unwrap_or_default(),
        };
        let moved_to = replacement.put(|output| if to > from { output.gap(to) } else { Ok(()) })?;
        self.done.push(Quarantined {
            name,
            moved_to,
            from,
            to,
        });
        Ok(())
    }

    /// Where the log's last segment ended, as far as anything says so.
    fn end_of_last(&self, segment: &Checked) -> Lsn {
        let durable = self
            .watermark
            .map_or(Lsn::INVALID, |state| state.durable.lsn);
        segment
            .state
            .end_lsn
            .max(durable)
            .max(segment.complete_lsn)
            .max(super::footer_end(self.fs, &segment.path))
    }
}

/// Whose log it is, as any segment says that can be read.
fn any_identity(fs: &dyn Fs, log: &Path) -> Result<Identity, FormatError> {
    let mut walk = Walk::new(fs, log, None, false)?;
    while let Some(segment) = walk.next(&mut |_| {})? {
        if let Some(header) = segment.header {
            return Ok(header.identity);
        }
    }
    // The error says what is wrong with the newest.
    match read_identity(fs, log)? {
        Some(identity) => Ok(identity),
        None => Err(FormatError::State {
            call: "quarantine",
            problem: "has nothing to work on: the log has no segments",
        }),
    }
}
