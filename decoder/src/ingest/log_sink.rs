//! The sink that feeds the log: blocks that are being filled, transactions that are being staged, and the hand-over
//! of both to the appender.
//!
//! While the appender writes and syncs, the next block fills; it is handed over when the appender is idle and a
//! transaction is complete in it, or when it has its size. So a sync covers all that was committed while the one before
//! it ran, and a single commit does not wait for company.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pg_proto::pgoutput::{Begin, Commit, CommitPrepared, Prepare, RollbackPrepared, StreamCommit};
use pg_proto::{Lsn, Xid};
use storage_format::block::{BlockBuilder, BuildError};
use storage_format::catalog::{PublicationState, PublicationsRecord, ServerParameters};
use storage_format::record::{PreparedRecord, RecordKind};
use storage_format::staging::{Rollback, StagedEnd};

use super::IngestError;
use super::record::{Incoming, Record, Touched};
use super::sink::{Place, Sink};
use super::staging::StagingArea;
use crate::appender::{Returned, StagedWork, Work};
use crate::clock::Clock;
use crate::mailbox::{Received, Receiver, Sender};
use crate::state::DecoderState;

/// A block is handed over at this size. Small enough to be in the CPU's cache while it is filled and checksummed, large
/// enough that its header does not matter.
const BLOCK_BYTES: usize = 256 << 10;

/// A block that came out larger is not kept for reuse.
const KEEP_BYTES: usize = 16 * BLOCK_BYTES;

/// Builders in circulation: one fills, one is written, one waits.
const BUILDERS: usize = 3;

/// Work that may be on its way to the appender at a time.
const IN_FLIGHT_MAX: usize = BUILDERS - 1;

/// The appender as seen from here.
#[derive(Debug)]
pub(crate) struct AppenderPort {
    pub(crate) work: Sender<Work>,
    pub(crate) returned: Receiver<Returned>,
    /// In the simulation, where there are no threads: lets the appender work.
    #[cfg(feature = "simulation")]
    pub(crate) turn: Option<crate::simulation::Turn>,
}

impl AppenderPort {
    /// Waits for the appender to give something back.
    fn wait(&self) -> Received<Returned> {
        #[cfg(feature = "simulation")]
        if let Some(turn) = &self.turn {
            return turn.until(&self.returned);
        }
        self.returned.receive(None)
    }
}

/// Feeds the log.
#[derive(Debug)]
pub(crate) struct LogSink {
    builder: Box<BlockBuilder>,
    #[expect(
        clippy::vec_box,
        reason = "they travel boxed, and go back into the same boxes"
    )]
    free: Vec<Box<BlockBuilder>>,
    port: AppenderPort,
    in_flight: usize,
    /// The appender was idle when a batch ended inside a transaction that has complete ones before it.
    hand_over_at_commit: bool,
    pub(super) staging: StagingArea,
    /// Nothing more will come that commits below this.
    position: Lsn,
    /// The log has got this position, or will have it with what is in flight.
    handed_over: Lsn,
    progress_interval: Duration,
    last_progress: Option<Instant>,
    parameters: ServerParameters,
    scratch: Vec<u8>,
    changes: u64,
    clock: Arc<dyn Clock>,
    state: Arc<DecoderState>,
}

impl LogSink {
    pub(crate) fn new(
        port: AppenderPort,
        staging: StagingArea,
        end_lsn: Lsn,
        parameters: ServerParameters,
        progress_interval: Duration,
        clock: Arc<dyn Clock>,
        state: Arc<DecoderState>,
    ) -> Self {
        Self {
            builder: Box::default(),
            free: (1..BUILDERS).map(|_| Box::default()).collect(),
            port,
            in_flight: 0,
            hand_over_at_commit: false,
            staging,
            position: end_lsn,
            handed_over: end_lsn,
            progress_interval,
            last_progress: None,
            parameters,
            scratch: Vec::new(),
            changes: 0,
            clock,
            state,
        }
    }

    #[cfg(feature = "simulation")]
    pub(crate) fn set_turn(&mut self, turn: crate::simulation::Turn) {
        self.port.turn = Some(turn);
    }

    /// Stores what the source reports of itself, if that is news.
    pub(crate) fn server_parameters(
        &mut self,
        parameters: ServerParameters,
    ) -> Result<(), IngestError> {
        if parameters != self.parameters {
            self.scratch.clear();
            parameters.encode(&mut self.scratch);
            self.builder
                .push_aux(RecordKind::ServerParameters, &self.scratch)?;
            self.parameters = parameters;
        }
        Ok(())
    }

    /// The source is on this timeline from here on.
    pub(crate) fn begin_timeline(&self, timeline: u32) -> Result<(), IngestError> {
        Ok(self.port.work.send(Work::Timeline(timeline))?)
    }

    /// Called when there is nothing more to read for now: whatever is complete goes to the appender as soon as that is
    /// idle. Returns when to call again at the latest.
    pub(crate) fn settle(&mut self) -> Result<Option<Instant>, IngestError> {
        self.take_back()?;
        if self.in_flight > 0 {
            return Ok(None);
        }
        if self.is_complete() {
            if self.builder.open_transaction().is_some() {
                self.hand_over_at_commit = true;
            } else {
                self.hand_over()?;
            }
            return Ok(None);
        }
        if self.builder.is_empty()
            && self.builder.open_transaction().is_none()
            && self.position > self.handed_over
        {
            return self.progress();
        }
        Ok(None)
    }

    /// A position without changes, not more often than the interval says.
    fn progress(&mut self) -> Result<Option<Instant>, IngestError> {
        let now = self.clock.now();
        let due = self.last_progress.map(|last| last + self.progress_interval);
        if let Some(due) = due.filter(|due| *due > now) {
            return Ok(Some(due));
        }
        self.send(Work::Progress(self.position))?;
        self.handed_over = self.position;
        self.last_progress = Some(now);
        Ok(None)
    }

    /// Forgets what is incomplete and waits until the rest is durable; the log's end.
    pub(crate) fn reset(&mut self) -> Result<Lsn, IngestError> {
        if !self.builder.is_empty() {
            self.hand_over()?;
        }
        self.staging.discard_all();
        self.port.work.send(Work::Abandon)?;
        self.port.work.send(Work::Sync)?;
        let end = loop {
            match self.port.wait() {
                Received::Item(Returned::Synced(end)) => break end,
                Received::Item(returned) => self.took_back(returned),
                Received::Deadline | Received::Closed => return Err(IngestError::Stopped),
            }
        };
        self.builder.start(None);
        self.hand_over_at_commit = false;
        self.position = end;
        self.handed_over = end;
        Ok(end)
    }

    /// Whether the block holds something that is worth a sync.
    fn is_complete(&self) -> bool {
        let open = self.builder.open_transaction().is_some();
        self.builder.end_lsn().is_some() || !(open || self.builder.is_empty())
    }

    fn hand_over(&mut self) -> Result<(), IngestError> {
        let open = self.builder.open_transaction();
        let mut next = self.free_builder()?;
        next.start(open);
        let full = std::mem::replace(&mut self.builder, next);
        if let Some(end) = full.end_lsn() {
            self.handed_over = self.handed_over.max(end);
        }
        let counters = self.state.counters();
        counters.changes.add(std::mem::take(&mut self.changes));
        self.hand_over_at_commit = false;
        self.send(Work::Block(full))
    }

    /// Sends work behind what is in the block so far; the log's end is `end_lsn` then.
    fn send_behind(&mut self, work: Work, end_lsn: Lsn) -> Result<(), IngestError> {
        if !self.builder.is_empty() {
            self.hand_over()?;
        }
        self.handed_over = self.handed_over.max(end_lsn);
        self.staging.log_reaches(end_lsn);
        self.send(work)
    }

    fn send(&mut self, work: Work) -> Result<(), IngestError> {
        while self.in_flight >= IN_FLIGHT_MAX {
            self.wait_for_one()?;
        }
        self.port.work.send(work)?;
        self.in_flight += 1;
        Ok(())
    }

    /// A builder to fill next; waits for the appender if there is none.
    fn free_builder(&mut self) -> Result<Box<BlockBuilder>, IngestError> {
        loop {
            if let Some(builder) = self.free.pop() {
                return Ok(builder);
            }
            self.wait_for_one()?;
        }
    }

    fn wait_for_one(&mut self) -> Result<(), IngestError> {
        match self.port.wait() {
            Received::Item(returned) => {
                self.took_back(returned);
                Ok(())
            }
            Received::Deadline | Received::Closed => Err(IngestError::Stopped),
        }
    }

    fn take_back(&mut self) -> Result<(), IngestError> {
        while let Some(returned) = self.port.returned.try_receive() {
            self.took_back(returned);
        }
        Ok(())
    }

    fn took_back(&mut self, returned: Returned) {
        match returned {
            Returned::Block(builder) => {
                self.in_flight -= 1;
                // One that grew for a huge row would keep its memory for ever.
                let keep = builder.raw_len() <= KEEP_BYTES;
                self.free.push(if keep { builder } else { Box::default() });
            }
            Returned::Done => self.in_flight -= 1,
            Returned::Synced(_) => {}
        }
    }

    /// Runs `push` on the block; if it has no room for the record, on the next one.
    #[inline]
    fn push(
        &mut self,
        push: impl Fn(&mut BlockBuilder) -> Result<(), BuildError>,
    ) -> Result<(), IngestError> {
        match push(&mut self.builder) {
            Ok(()) => {}
            Err(BuildError::Full) if !self.builder.is_empty() => {
                self.hand_over()?;
                push(&mut self.builder)?;
            }
            Err(error) => return Err(error.into()),
        }
        if self.builder.raw_len() >= BLOCK_BYTES {
            self.hand_over()?;
        }
        Ok(())
    }

    /// No transaction that commits from here on has a change before this: the source would send all of them again from
    /// its slot's restart position, but for those that are kept here since they were prepared.
    fn horizon(&self) -> Lsn {
        let restart = Lsn(self.state.counters().slot_restart_lsn.get());
        let prepared = self.staging.oldest_prepared();
        prepared.map_or(restart, |oldest| oldest.min(restart))
    }

    fn push_record(&mut self, record: &Record<'_>) -> Result<(), IngestError> {
        let Record {
            kind,
            start,
            payload,
            ..
        } = *record;
        match record.touched {
            Touched::One(relation) => {
                self.push(|block| block.push_change(kind, relation, start, payload))
            }
            Touched::None => self.push(|block| block.push_other(kind, start, payload)),
            Touched::Many(truncate) => {
                self.push(|block| block.push_truncate(truncate.relations(), start, payload))
            }
        }
    }
}

impl Sink for LogSink {
    type Error = IngestError;

    fn begin(&mut self, begin: &Begin, message: &Incoming<'_>) -> Result<(), IngestError> {
        let Incoming {
            start,
            send_time,
            payload,
        } = *message;
        self.push(|block| block.push_begin(begin, start, send_time, payload))
    }

    #[inline]
    fn record(&mut self, place: Place, record: &Record<'_>) -> Result<(), IngestError> {
        match place {
            Place::Open => {
                self.changes += u64::from(is_change(record.kind));
                self.push_record(record)
            }
            Place::Staged { top, sub } => self.staging.record(top, sub, record),
        }
    }

    fn publications(
        &mut self,
        place: Place,
        lsn: Lsn,
        state: Arc<PublicationState>,
    ) -> Result<(), IngestError> {
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        let horizon = self.horizon();
        self.state.counters().horizon.set(horizon.0);
        let record = PublicationsRecord {
            since: None,
            place: lsn,
            horizon,
            state: Arc::unwrap_or_clone(state),
        };
        record.encode(&mut bytes);
        let result = match place {
            Place::Open => self.push(|block| block.push_aux(RecordKind::Publications, &bytes)),
            Place::Staged { top, sub } => {
                self.staging.aux(top, sub, RecordKind::Publications, &bytes)
            }
        };
        self.scratch = bytes;
        result
    }

    fn commit(&mut self, commit: &Commit, message: &Incoming<'_>) -> Result<(), IngestError> {
        let Incoming { start, payload, .. } = *message;
        self.push(|block| block.push_commit(commit, start, payload))?;
        self.position = self.position.max(commit.end_lsn);
        self.staging.log_reaches(commit.end_lsn);
        if self.hand_over_at_commit && self.is_complete() {
            self.hand_over()?;
        }
        Ok(())
    }

    fn lone_message(&mut self, lsn: Lsn, message: &Incoming<'_>) -> Result<(), IngestError> {
        let Incoming {
            start,
            send_time,
            payload,
        } = *message;
        self.position = self.position.max(lsn);
        self.staging.log_reaches(lsn);
        self.push(|block| block.push_lone_message(lsn, start, send_time, payload))
    }

    fn advance(&mut self, to: Lsn) -> Result<(), IngestError> {
        self.position = self.position.max(to);
        Ok(())
    }

    fn stage_begin(&mut self, top: Xid, message: &Incoming<'_>) -> Result<(), IngestError> {
        self.staging.begin(top, message);
        Ok(())
    }

    fn is_staged(&self, top: Xid) -> bool {
        self.staging.contains(top)
    }

    fn stage_stop(&mut self, top: Xid) -> Result<(), IngestError> {
        self.staging.stop(top)
    }

    fn stage_abort(&mut self, top: Xid, sub: Xid, at: Rollback) -> Result<(), IngestError> {
        self.staging.abort(top, sub, at)
    }

    fn stage_discard(&mut self, top: Xid) {
        self.staging.discard(top);
    }

    fn stage_commit(&mut self, stream: &StreamCommit) -> Result<(), IngestError> {
        let end = StagedEnd::Committed(stream.commit.commit_lsn);
        let finished = self.staging.finish(stream.xid, end)?;
        self.state.counters().changes.add(finished.changes);
        let work = Work::Staged(Box::new(StagedWork {
            transaction: finished.transaction,
            commit: stream.commit,
        }));
        self.send_behind(work, stream.commit.end_lsn)
    }

    fn prepare_begin(&mut self, xid: Xid, message: &Incoming<'_>) -> Result<(), IngestError> {
        self.staging.begin_whole(xid, message);
        Ok(())
    }

    fn is_prepared(&self, xid: Xid, gid: &[u8]) -> bool {
        self.staging.is_prepared(xid, gid)
    }

    fn prepare(&mut self, prepare: &Prepare<'_>, late: bool) -> Result<(), IngestError> {
        let record = PreparedRecord::new(prepare, !late);
        let (prepared, changes) = self.staging.prepare(record)?;
        self.state.counters().changes.add(changes);
        if late {
            return Ok(());
        }
        self.position = self.position.max(prepare.end_lsn);
        self.send_behind(Work::Prepared(prepared), prepare.end_lsn)
    }

    fn commit_prepared(&mut self, end: &CommitPrepared<'_>) -> Result<(), IngestError> {
        let Some(prepared) = self.staging.decided(end.xid) else {
            return Ok(());
        };
        let work = Work::CommitPrepared(prepared, end.commit);
        self.send_behind(work, end.commit.end_lsn)
    }

    fn rollback_prepared(
        &mut self,
        end: &RollbackPrepared<'_>,
        message: &Incoming<'_>,
    ) -> Result<(), IngestError> {
        let Incoming {
            start,
            send_time,
            payload,
        } = *message;
        let prepared = self.staging.decided(end.xid);
        let has_origin = prepared
            .as_ref()
            .is_some_and(|prepared| prepared.staged().has_origin());
        self.push(|block| {
            block.push_rollback_prepared(end, has_origin, start, send_time, payload)
        })?;
        match prepared {
            Some(prepared) => self.send_behind(Work::Decided(prepared), end.rollback_end_lsn),
            None => Ok(()),
        }
    }
}

/// Whether the record is counted as a change of rows.
pub(super) const fn is_change(kind: RecordKind) -> bool {
    matches!(
        kind,
        RecordKind::Insert | RecordKind::Update | RecordKind::Delete | RecordKind::Truncate
    )
}
