//! From segment to segment, with what each must find as it begins.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pg_proto::Lsn;

use super::report::{Finding, Gap, Progress, Remedy};
use super::segment::{Extent, scan};
use crate::catalog::Catalog;
use crate::error::{Damage, FormatError};
use crate::fs::{Fs, FsFile};
use crate::identity::Identity;
use crate::segment::{
    Footer, SegmentExtension, SegmentHeader, SegmentInfo, SegmentName, SegmentState, list_segments,
};
use crate::watermark::{WATERMARK_FILE, WatermarkState};
use crate::write::{LogState, Tip};

/// What is known behind the segments that were read.
#[derive(Clone, Debug, Default)]
pub(super) struct Carried {
    /// The last segment.
    pub(super) name: Option<SegmentName>,
    pub(super) identity: Option<Identity>,
    pub(super) end_lsn: Lsn,
    pub(super) last_commit_lsn: Lsn,
    /// The catalog; `None` if a part of what made it is missing.
    pub(super) catalog: Option<Arc<Catalog>>,
    /// Whether `last_commit_lsn` is certain: no gap is behind it.
    pub(super) commit_known: bool,
    /// Whether all was sound, so that the next segment can be held against it.
    pub(super) sound: bool,
}

/// A segment that was read.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) name: SegmentName,
    pub(super) path: PathBuf,
    pub(super) sealed: bool,
    pub(super) file_len: u64,
    pub(super) header: Option<SegmentHeader>,
    pub(super) state: LogState,
    /// Behind the last block whose header is sound.
    pub(super) tip: Tip,
    /// Behind the last whole transaction before anything that is wrong, and the log's position there.
    pub(super) complete: Tip,
    pub(super) complete_lsn: Lsn,
    pub(super) totals: Footer,
    pub(super) ended: bool,
    /// Whether the chain of headers could be followed.
    pub(super) intact: bool,
    /// Whether what follows was never reported as durable.
    pub(super) at_tail: bool,
    /// Whether there is something at the tail, which the next start cuts off.
    pub(super) torn: bool,
    pub(super) catalog_known: bool,
    pub(super) deleted: bool,
    /// Whether bytes of it are not what was written.
    pub(super) damaged: bool,
    /// Whether the snapshot at its start is sound.
    pub(super) snapshot_whole: bool,
    pub(super) gaps: Vec<Gap>,
    pub(super) findings: Vec<Finding>,
    /// What the index file must be.
    pub(super) index: Option<Vec<u8>>,
}

pub(super) struct Walk<'a> {
    fs: &'a dyn Fs,
    log: &'a Path,
    segments: Vec<SegmentInfo>,
    place: usize,
    watermark: Option<WatermarkState>,
    live: bool,
    done_bytes: u64,
    total_bytes: u64,
    pub(super) carried: Carried,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        fs: &'a dyn Fs,
        log: &'a Path,
        watermark: Option<WatermarkState>,
        live: bool,
    ) -> Result<Self, FormatError> {
        let mut segments = list_segments(fs, log)?;
        if let Some(state) = watermark.filter(|_| live) {
            segments.retain(|info| info.name.sequence <= state.durable.sequence);
        }
        let length =
            |info: &SegmentInfo| fs.open_to_read(&info.path).and_then(|file| file.length());
        let total_bytes = segments.iter().filter_map(|info| length(info).ok()).sum();
        Ok(Self {
            fs,
            log,
            segments,
            place: 0,
            watermark,
            live,
            done_bytes: 0,
            total_bytes,
            carried: Carried::default(),
        })
    }

    /// The next segment, checked; `None` behind the last one.
    pub(super) fn next(
        &mut self,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Option<Checked>, FormatError> {
        let Some(mut info) = self.segments.get(self.place).cloned() else {
            return Ok(None);
        };
        self.place += 1;
        progress(Progress {
            path: &info.path,
            done_bytes: self.done_bytes,
            total_bytes: self.total_bytes,
        });
        let Some(file) = self.open(&mut info)? else {
            let mut gone = Checked::new(&info, 0, &self.carried);
            gone.deleted = self.was_deleted(info.name)?;
            if gone.deleted {
                // The next one follows from nothing that is there.
                self.carried = Carried::default();
            } else {
                gone.find(
                    0,
                    Damage::Content("the file is gone, expected a segment".to_owned()),
                );
            }
            return Ok(Some(gone));
        };
        let extent = self.extent(&info);
        let mut checked = scan(&*file, &info, extent, &self.carried)?;
        self.check_continuity(&mut checked);
        self.check_end(&mut checked, extent);
        self.done_bytes += checked.file_len;
        self.carry(&checked);
        Ok(Some(checked))
    }

    /// Whether retention has passed a segment since the directory was listed. It deletes from the oldest on; in the middle
    /// nothing may be missing.
    pub(super) fn was_deleted(&self, name: SegmentName) -> Result<bool, FormatError> {
        if !self.live {
            return Ok(false);
        }
        let segments = list_segments(self.fs, self.log)?;
        let oldest = segments.first().map(|info| info.name.sequence);
        Ok(oldest.is_some_and(|oldest| name.sequence < oldest))
    }

    /// Opens a segment's file; sealing may have replaced it since the directory was listed.
    fn open(&self, info: &mut SegmentInfo) -> Result<Option<Box<dyn FsFile>>, FormatError> {
        match self.fs.open_to_read(&info.path) {
            Ok(file) => return Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(FormatError::io("open", &info.path)(error)),
        }
        info.state = SegmentState::Sealed;
        info.path = info.name.path(self.log, SegmentExtension::Sealed);
        match self.fs.open_to_read(&info.path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FormatError::io("open", &info.path)(error)),
        }
    }

    fn extent(&self, info: &SegmentInfo) -> Extent {
        let active = info.state == SegmentState::Active;
        let here = self
            .watermark
            .filter(|state| active && state.durable.sequence == info.name.sequence);
        Extent {
            limit: here.filter(|_| self.live).map(|state| state.durable.offset),
            durable_offset: here.map_or(0, |state| state.durable.offset),
            is_last: self.place == self.segments.len(),
        }
    }

    /// The segment's name must follow from the one before.
    fn check_continuity(&self, checked: &mut Checked) {
        let Some(before) = self.carried.name else {
            return;
        };
        let expected = before.next(self.carried.end_lsn);
        if self.carried.sound && checked.name != expected {
            let damage = Damage::mismatch("name of the segment", expected, checked.name);
            checked.find_for(Remedy::Quarantine, 0, damage);
        }
    }

    /// A segment that others follow must have an end; a live one must end where the watermark says.
    fn check_end(&self, checked: &mut Checked, extent: Extent) {
        if checked.damaged {
            return;
        }
        if !extent.is_last && !checked.ended {
            let damage =
                Damage::Content("it has no end, expected one: others follow it".to_owned());
            checked.find(checked.tip.offset, damage);
        }
        let Some(state) = self.watermark.filter(|_| extent.limit.is_some()) else {
            return;
        };
        if (checked.tip.offset, checked.state.end_lsn) != (state.durable.offset, state.durable.lsn)
        {
            let expected = format!("{} at offset {}", state.durable.lsn, state.durable.offset);
            let found = format!("{} at offset {}", checked.state.end_lsn, checked.tip.offset);
            checked.find(
                checked.tip.offset,
                Damage::mismatch("durable position", expected, found),
            );
        }
    }

    fn carry(&mut self, checked: &Checked) {
        let sound = !checked.damaged;
        let empty = checked.totals.transaction_count == 0;
        let commit_known =
            sound && checked.gaps.is_empty() && (!empty || self.carried.commit_known);
        self.carried = Carried {
            commit_known,
            name: Some(checked.name),
            identity: checked
                .header
                .as_ref()
                .map(|header| header.identity.clone())
                .or_else(|| self.carried.identity.take()),
            end_lsn: checked.state.end_lsn,
            last_commit_lsn: checked.state.last_commit_lsn,
            catalog: (sound && checked.catalog_known).then(|| Arc::clone(&checked.state.catalog)),
            sound,
        };
    }

    /// Whether the log ends before a position that was durable.
    pub(super) fn lost(&self, watermark: Option<WatermarkState>) -> Option<Finding> {
        let durable = watermark?.durable.lsn;
        let end = self.carried.end_lsn;
        let known = self.carried.sound || self.carried.name.is_none();
        (known && durable > end).then(|| Finding {
            path: self.log.join(WATERMARK_FILE),
            offset: 0,
            damage: Damage::mismatch("end of the log", format_args!("at least {durable}"), end),
            remedy: Remedy::Quarantine,
        })
    }

    /// The segment behind the one returned last.
    pub(super) fn following(&self) -> Option<SegmentName> {
        self.segments.get(self.place).map(|info| info.name)
    }
}

impl Carried {
    /// What a segment's header must agree with.
    pub(super) fn check(&self, header: &SegmentHeader, checked: &mut Checked) {
        let Some(identity) = &self.identity else {
            return;
        };
        if let Err(error) = identity.check_same_log(&header.identity, &checked.path) {
            let damage = Damage::Content(error.to_string());
            checked.find_for(Remedy::Operator, 0, damage);
        }
        let grows = [
            (
                "timeline",
                u64::from(identity.timeline),
                u64::from(header.identity.timeline),
            ),
            (
                "writer epoch",
                identity.writer_epoch,
                header.identity.writer_epoch,
            ),
        ];
        for (field, least, found) in grows {
            if found < least {
                let damage = Damage::mismatch(field, format_args!("at least {least}"), found);
                checked.find_for(Remedy::Operator, 0, damage);
            }
        }
        let follows = self
            .name
            .is_some_and(|name| name.next(self.end_lsn) == header.name);
        if follows && self.commit_known && header.last_commit_lsn != self.last_commit_lsn {
            let damage = Damage::mismatch(
                "last commit LSN",
                self.last_commit_lsn,
                header.last_commit_lsn,
            );
            checked.find_for(Remedy::Operator, 0, damage);
        }
    }
}
