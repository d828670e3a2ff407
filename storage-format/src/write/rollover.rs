//! From a full segment to the next one.

use super::active::ActiveFile;
use super::create::SegmentFolder;
use super::log_writer::LogWriter;
use crate::block::{BlockHeader, BlockKind};
use crate::error::FormatError;
use crate::failpoint::hit;
use crate::segment::{SegmentHeader, add_name};

impl LogWriter {
    /// Ends the active segment and begins the next one. Between two transactions only. The next file is complete
    /// before anything changes in this one, so a full disk leaves the log as it is.
    pub(super) fn roll_over(&mut self) -> Result<(), FormatError> {
        debug_assert!(self.state.open.is_none());
        let next = self.prepare_next();
        let mut next = self.checked(next)?;
        let ended = self.end_segment();
        self.checked(ended)?;
        hit("segment.ended");
        let published = self.folder().publish(&mut next);
        self.checked_fatal(published)?;
        // Before the watermark moves into it, for readers who look there then.
        add_name(&*self.fs, &self.directory, next.name);
        let finished = std::mem::replace(&mut self.active, next);
        self.finished.push(finished.name);
        self.complete = self.active.tip;
        self.made_durable();
        Ok(())
    }

    fn prepare_next(&self) -> Result<ActiveFile, FormatError> {
        let header = SegmentHeader {
            identity: self.identity.clone(),
            name: self.active.name.next(self.state.end_lsn),
            sealed: false,
            last_commit_lsn: self.state.last_commit_lsn,
        };
        self.folder().prepare(&header, &self.state.catalog)
    }

    fn end_segment(&mut self) -> Result<(), FormatError> {
        self.active.write_mark(&BlockHeader {
            end_lsn: self.state.end_lsn,
            ..BlockHeader::empty(BlockKind::SegmentEnd)
        })?;
        self.active.sync()
    }

    pub(super) fn folder(&self) -> SegmentFolder<'_> {
        SegmentFolder {
            fs: &*self.fs,
            log: &self.directory,
            segment_bytes: self.options.segment_bytes,
        }
    }
}
