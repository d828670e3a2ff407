//! Whether the files of a log are what they were written as, and what can be done if not.
//!
//! [`verify`] reads everything and changes nothing; it may run beside a decoder, and then looks no further than what is
//! durable. [`repair`] makes anew what is derived. [`quarantine`] moves what is damaged aside and puts a gap block in
//! its place, so that every reader that comes there gets an error and never a silent hole.

mod content;
mod cut;
mod derived;
mod quarantine;
mod replacement;
mod report;
mod segment;
mod undone;
mod walk;

pub use cut::{CutOff, cut_off};
pub use derived::{Repaired, repair};
pub use quarantine::{Quarantined, quarantine};
pub use report::{Finding, Gap, Progress, Remedy, Report};
pub use undone::{Undone, undo_decisions};

use std::path::Path;

use pg_proto::{Lsn, PgTimestamp};

use crate::catalog::read_own_versions;
use crate::error::{Damage, FormatError};
use crate::fs::Fs;
use crate::segment::{FOOTER_TRAILER_LEN, FileWindow, Footer};
use crate::watermark::{WATERMARK_FILE, WatermarkError, WatermarkReader, WatermarkState};
use walk::Walk;

/// A decoder that has given a sign of life within this time is taken to be at work.
const ALIVE_MICROS: i64 = 10_000_000;

/// Reads the whole log and reports what is wrong. An error means that it can't be read at all.
pub fn verify(
    fs: &dyn Fs,
    log: &Path,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Report, FormatError> {
    let mut report = Report::default();
    let durable = watermark(fs, log, &mut report);
    report.live = durable.is_some_and(|(_, alive)| alive);
    let state = durable.map(|(state, _)| state);
    let mut walk = Walk::new(fs, log, state, report.live)?;
    while let Some(segment) = walk.next(progress)? {
        report.count(&segment);
        let found = report.findings.len();
        derived::check_index(fs, log, &segment, &mut report.findings)?;
        // It may have been deleted after it was read.
        if report.findings.len() > found && walk.was_deleted(segment.name)? {
            report.findings.truncate(found);
        }
        report.findings.extend(segment.findings);
    }
    if let Some(finding) = walk.lost(state) {
        report.findings.push(finding);
    }
    check_own_versions(fs, log, &mut report)?;
    if !report.live {
        report.leftovers = crate::write::leftovers(fs, log)?;
    }
    Ok(report)
}

/// What the watermark says, and whether a decoder is at work.
fn watermark(fs: &dyn Fs, log: &Path, report: &mut Report) -> Option<(WatermarkState, bool)> {
    let opened = WatermarkReader::open_on(fs, log);
    let read = opened.and_then(|reader| Ok((reader.read()?, reader.heartbeat())));
    match read {
        Ok((state, heartbeat)) => {
            let now = PgTimestamp::now();
            let alive = heartbeat.is_some_and(|at| (now.0 - at.0).abs() < ALIVE_MICROS);
            if state.durable.lsn > state.written.lsn {
                let damage = Damage::mismatch(
                    "durable position",
                    format_args!("at most {}", state.written.lsn),
                    state.durable.lsn,
                );
                report.findings.push(foreign_watermark(log, damage));
            }
            Some((state, alive))
        }
        // Nothing was ever published, or the file is gone: the log's own bytes are enough.
        Err(WatermarkError::Unpublished { .. }) => None,
        Err(WatermarkError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            None
        }
        Err(error) => {
            let damage = Damage::Content(error.to_string());
            report.findings.push(foreign_watermark(log, damage));
            None
        }
    }
}

/// Nothing else has what this file says: the operator makes the publications' versions again.
fn check_own_versions(fs: &dyn Fs, log: &Path, report: &mut Report) -> Result<(), FormatError> {
    match read_own_versions(fs, log) {
        Ok(_) => Ok(()),
        Err(FormatError::Damaged {
            path,
            offset,
            damage,
        }) => {
            report.findings.push(Finding {
                path,
                offset,
                damage,
                remedy: Remedy::Operator,
            });
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn foreign_watermark(log: &Path, damage: Damage) -> Finding {
    Finding {
        path: log.join(WATERMARK_FILE),
        offset: 0,
        damage,
        remedy: Remedy::Repair,
    }
}

/// Where a sealed file's footer says that the segment ends; `0/0` if it says nothing.
fn footer_end(fs: &dyn Fs, path: &Path) -> Lsn {
    let read = || -> Option<Lsn> {
        let file = fs.open_to_read(path).ok()?;
        let mut window = FileWindow::new(&*file, path).ok()?;
        let length = window.file_len();
        let trailer_at = length.checked_sub(FOOTER_TRAILER_LEN as u64)?;
        let trailer = window.bytes(trailer_at, FOOTER_TRAILER_LEN).ok()?;
        let offset = Footer::locate(trailer, length).ok()?;
        let bytes = window
            .bytes(offset, usize::try_from(length - offset).ok()?)
            .ok()?;
        let (footer, _) = Footer::decode(bytes, offset).ok()?;
        Some(footer.end_lsn)
    };
    read().unwrap_or(Lsn::INVALID)
}
