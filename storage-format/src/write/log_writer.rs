//! Appending.

use std::path::PathBuf;
use std::sync::Arc;

use pg_proto::{Lsn, PgTimestamp};

use super::active::{ActiveFile, Tip};
use super::options::WriterOptions;
use super::state::{LogState, apply_catalog};
use crate::block::{
    BLOCK_HEADER_LEN, BlockBuilder, BlockFlags, BlockHeader, BlockKind, CommitAt, OpenTransaction,
    Placement, Sections,
};
use crate::catalog::Catalog;
use crate::error::FormatError;
use crate::fs::{Fs, FsFile};
use crate::identity::Identity;
use crate::segment::SegmentName;
use crate::watermark::{LogPoint, WatermarkPublisher, WatermarkState};

/// The writer of a log directory. See the [module](crate::write).
#[derive(Debug)]
pub struct LogWriter {
    pub(super) directory: PathBuf,
    pub(super) fs: Arc<dyn Fs>,
    pub(super) options: WriterOptions,
    pub(super) identity: Identity,
    pub(super) active: ActiveFile,
    pub(super) state: LogState,
    /// The transaction that is open behind the last block.
    pub(super) open: Option<OpenTransaction>,
    /// Behind the last whole transaction.
    pub(super) complete: Tip,
    pub(super) durable: LogPoint,
    pub(super) watermark: WatermarkPublisher,
    /// The watermark does not say yet what it should.
    pub(super) unpublished: bool,
    pub(super) finished: Vec<SegmentName>,
    pub(super) poisoned: Option<Arc<str>>,
    /// Buffers that are kept.
    pub(super) prefix: Vec<u8>,
    pub(super) rest: BlockBuilder,
    /// Held as long as the writer lives.
    pub(super) _lock: Box<dyn FsFile>,
}

impl LogWriter {
    /// Appends the builder's records, as one block, or two if a transaction is open behind whole ones. The builder
    /// must continue what was appended before. After [`FormatError::NoSpace`] the same builder may be appended
    /// again: it holds what is not in the log yet.
    pub fn append(&mut self, builder: &mut BlockBuilder) -> Result<(), FormatError> {
        self.usable()?;
        if builder.is_empty() {
            return Ok(());
        }
        self.check_continuation(builder)?;
        self.roll_over_if_full(block_len_max(builder))?;
        let reserved = self.active.reserve(block_len_max(builder));
        self.checked(reserved)?;
        let mut rest = std::mem::take(&mut self.rest);
        let result = self.append_parts(builder, &mut rest);
        self.rest = rest;
        result
    }

    fn append_parts(
        &mut self,
        builder: &mut BlockBuilder,
        rest: &mut BlockBuilder,
    ) -> Result<(), FormatError> {
        if builder.split_open(rest) {
            let whole = self.append_block(builder);
            if whole.is_err() {
                let joined = builder.join(rest, &self.placement());
                debug_assert_eq!(joined, Ok(()));
                return whole;
            }
            std::mem::swap(builder, rest);
        }
        self.append_block(builder)
    }

    pub(super) fn append_block(&mut self, builder: &BlockBuilder) -> Result<(), FormatError> {
        let mut header = builder.header(BlockKind::Data, &self.placement());
        self.state.check(&header)?;
        let catalog = self.next_catalog(&header, builder)?;
        if let Some(lowest) = builder.lowest() {
            header.flags |= LogState::older(&catalog, lowest);
        }
        let mut prefix = std::mem::take(&mut self.prefix);
        let (mut pieces, crc) = builder.pieces(&header, &mut prefix);
        let written = self.active.write_block(&mut pieces, crc);
        self.prefix = prefix;
        self.checked(written)?;
        self.state.advance(&header, catalog);
        self.open = builder.open_transaction();
        self.after_block();
        Ok(())
    }

    /// What the block's records make of the catalog. Found out before anything is written, so that a record that
    /// can't be understood never gets into the log.
    fn next_catalog(
        &self,
        header: &BlockHeader,
        builder: &BlockBuilder,
    ) -> Result<Arc<Catalog>, FormatError> {
        let mut catalog = self.state.working_catalog();
        if header.flags.contains(BlockFlags::HAS_CATALOG) {
            let unusable = |damage| FormatError::Unstorable {
                what: "a catalog record",
                problem: format!("{damage}"),
            };
            let sections = Sections::of_parts(builder.sections());
            let commit = CommitAt::start(header);
            apply_catalog(&mut catalog, header.flags, commit, sections).map_err(unusable)?;
        }
        Ok(catalog)
    }

    /// Says that the source moved on to `lsn` without changes. Nothing happens if the log is there already.
    pub fn progress(&mut self, lsn: Lsn) -> Result<(), FormatError> {
        self.mark(BlockKind::Progress, "progress", lsn)
    }

    fn mark(&mut self, kind: BlockKind, call: &'static str, lsn: Lsn) -> Result<(), FormatError> {
        self.usable()?;
        if self.open.is_some() {
            return Err(FormatError::State {
                call,
                problem: "a transaction is open",
            });
        }
        if lsn <= self.state.end_lsn {
            return Ok(());
        }
        self.roll_over_if_full(BLOCK_HEADER_LEN as u64)?;
        let reserved = self.active.reserve(BLOCK_HEADER_LEN as u64);
        self.checked(reserved)?;
        let written = self.active.write_mark(&BlockHeader {
            end_lsn: lsn,
            ..BlockHeader::empty(kind)
        });
        self.checked(written)?;
        self.state.end_lsn = lsn;
        self.after_block();
        Ok(())
    }

    /// Says that what lies between the log's end and `lsn` is missing and will never come: readers that get there end
    /// with an error. Nothing happens if the log is there already.
    pub fn gap(&mut self, lsn: Lsn) -> Result<(), FormatError> {
        self.mark(BlockKind::Gap, "gap", lsn)
    }

    /// Forgets the transaction that has begun and not ended, as after a lost connection: the source sends it again.
    pub fn abandon_open_transaction(&mut self) -> Result<(), FormatError> {
        self.usable()?;
        self.rewind();
        Ok(())
    }

    pub(super) fn rewind(&mut self) {
        self.active.tip = self.complete;
        self.state.open = None;
        self.open = None;
    }

    /// Makes durable what was appended and publishes it; returns the durable position. Nothing is done if nothing
    /// was appended.
    pub fn sync(&mut self) -> Result<Lsn, FormatError> {
        self.usable()?;
        if self.durable != self.written() {
            let synced = self.active.sync();
            self.checked_fatal(synced)?;
            self.made_durable();
            self.usable()?;
        }
        Ok(self.durable.lsn)
    }

    /// Ends the active segment and begins the next one, whatever its size, so that all before can be sealed.
    pub fn finish_segment(&mut self) -> Result<(), FormatError> {
        self.usable()?;
        if self.open.is_some() {
            return Err(FormatError::State {
                call: "finish_segment",
                problem: "a transaction is open",
            });
        }
        self.roll_over()
    }

    /// The source is on another timeline from here on: a new segment begins, which says so. Nothing happens if it is
    /// on that one already.
    pub fn begin_timeline(&mut self, timeline: u32) -> Result<(), FormatError> {
        let before = self.identity.timeline;
        if timeline == before {
            return Ok(());
        }
        self.identity.timeline = timeline;
        self.finish_segment()
            .inspect_err(|_| self.identity.timeline = before)
    }

    /// End of the last whole transaction or progress that was appended.
    #[must_use]
    pub const fn written_lsn(&self) -> Lsn {
        self.state.end_lsn
    }

    /// The same for what is durable.
    #[must_use]
    pub const fn durable_lsn(&self) -> Lsn {
        self.durable.lsn
    }

    /// Commit LSN of the last whole transaction.
    #[must_use]
    pub const fn last_commit_lsn(&self) -> Lsn {
        self.state.last_commit_lsn
    }

    /// The catalog after the last whole transaction.
    #[must_use]
    pub const fn catalog(&self) -> &Arc<Catalog> {
        &self.state.catalog
    }

    /// The transaction that has begun and not ended.
    #[must_use]
    pub const fn open_transaction(&self) -> Option<OpenTransaction> {
        self.open
    }

    /// The log's identity with this writer's epoch.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The segment that is being appended to.
    #[must_use]
    pub const fn active_segment(&self) -> SegmentName {
        self.active.name
    }

    /// Segments that were finished since the last call: they can be sealed.
    pub fn take_finished(&mut self) -> Vec<SegmentName> {
        std::mem::take(&mut self.finished)
    }

    /// Publishes that the writer lives, and what could not be published for want of space. Fails if the writer is
    /// poisoned, also by this.
    pub fn heartbeat(&mut self, now: PgTimestamp) -> Result<(), FormatError> {
        if self.unpublished {
            self.publish();
        }
        self.usable()?;
        match self.watermark.heartbeat(now).map_err(FormatError::from) {
            // Then readers see an old heartbeat, which is true enough.
            Err(error) if error.is_retryable() => Ok(()),
            beaten => self.checked_fatal(beaten),
        }
    }

    pub(super) const fn placement(&self) -> Placement {
        Placement {
            end_lsn: self.state.end_lsn,
            chain: self.active.tip.chain,
            synced_offset: self.active.synced_offset,
        }
    }

    /// A segment that has reached its size ends here if no transaction is open.
    pub(super) fn roll_over_if_full(&mut self, block_len: u64) -> Result<(), FormatError> {
        let end = self.active.tip.offset + block_len + BLOCK_HEADER_LEN as u64;
        if self.open.is_some() || end <= self.options.segment_bytes {
            return Ok(());
        }
        // Nothing but the snapshot is in it: the next one would be as full.
        if self.state.end_lsn == self.active.name.first_lsn {
            return Ok(());
        }
        self.roll_over()
    }

    fn check_continuation(&self, builder: &BlockBuilder) -> Result<(), FormatError> {
        if builder.continued_transaction() == self.open {
            return Ok(());
        }
        Err(FormatError::State {
            call: "append",
            problem: "the block does not continue the transaction that is open, or that none is open",
        })
    }

    pub(super) fn after_block(&mut self) {
        if self.state.open.is_none() {
            self.complete = self.active.tip;
            self.publish();
        }
    }

    const fn written(&self) -> LogPoint {
        LogPoint {
            sequence: self.active.name.sequence,
            offset: self.complete.offset,
            lsn: self.state.end_lsn,
        }
    }

    /// All up to `complete` is durable.
    pub(super) fn made_durable(&mut self) {
        self.durable = self.written();
        self.active.synced_offset = self.complete.offset;
        self.publish();
    }

    /// What is in the log is in the log: that readers can't be told so is for the next call to deal with. A full disk (of a
    /// file system that needs room to overwrite) is waited for, other failures poison the writer.
    pub(super) fn publish(&mut self) {
        let written = self.written();
        debug_assert!(self.durable.lsn <= written.lsn);
        let published = self.watermark.publish(WatermarkState {
            epoch: self.identity.writer_epoch,
            written,
            durable: self.durable,
        });
        let published = published.map_err(FormatError::from);
        self.unpublished = published.is_err();
        // The error is told by whatever is called next.
        let _ = self.checked(published);
    }

    pub(super) fn usable(&self) -> Result<(), FormatError> {
        match &self.poisoned {
            None => Ok(()),
            Some(cause) => Err(FormatError::Poisoned {
                cause: Arc::clone(cause),
            }),
        }
    }

    /// A failure other than a full disk poisons the writer.
    pub(super) fn checked<T>(&mut self, result: Result<T, FormatError>) -> Result<T, FormatError> {
        match result {
            Err(error) if error.is_retryable() => Err(error),
            other => self.checked_fatal(other),
        }
    }

    /// Any failure poisons the writer.
    pub(super) fn checked_fatal<T>(
        &mut self,
        result: Result<T, FormatError>,
    ) -> Result<T, FormatError> {
        result.inspect_err(|error| {
            let cause = match std::error::Error::source(error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            };
            self.poisoned = Some(cause.into());
        })
    }
}

/// Upper bound of what a builder needs in the file, split or not.
fn block_len_max(builder: &BlockBuilder) -> u64 {
    let prefix = BLOCK_HEADER_LEN + 4 * builder.relation_count();
    (builder.raw_len() + 2 * prefix) as u64
}
