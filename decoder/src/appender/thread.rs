//! The appender's loop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use pg_proto::Lsn;
use storage_format::FormatError;
use storage_format::block::BlockBuilder;
use storage_format::segment::SegmentName;
use storage_format::staging::PreparedTransaction;
use storage_format::write::LogWriter;

use super::work::{Returned, StagedWork, Work};
use crate::clock::Clock;
use crate::disk::{Part, Patience};
use crate::ingest::Input;
use crate::mailbox::{Received, Receiver, Sender};
use crate::metrics::Metrics;
use crate::state::{DecoderState, Head};

/// How often readers are shown that the writer lives, when there is nothing else to show.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// The appender's connections.
pub(crate) struct AppenderPorts {
    pub(crate) work: Receiver<Work>,
    pub(crate) returned: Sender<Returned>,
    /// The ingest thread, which waits for its inputs and not for what is returned.
    pub(crate) wake: Sender<Input>,
    pub(crate) finished: Sender<SegmentName>,
    /// Set when waiting for room on the disk must end.
    pub(crate) give_up: Arc<AtomicBool>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Owns the writer.
pub(crate) struct Appender {
    log: LogWriter,
    ports: AppenderPorts,
    state: Arc<DecoderState>,
    metrics: Metrics,
    /// Goes back after the next sync.
    held: Vec<Returned>,
    /// Prepared transactions whose end will be durable with the next sync.
    decided: Vec<Arc<PreparedTransaction>>,
    /// A whole transaction or a progress was appended since the last sync.
    dirty: bool,
    /// It was said that definitions of the publications lack that a change may need.
    told_lack: bool,
    /// Readers were shown then that the writer lives.
    last_heartbeat: Option<Instant>,
}

impl Appender {
    pub(crate) fn new(
        log: LogWriter,
        ports: AppenderPorts,
        state: Arc<DecoderState>,
        metrics: Metrics,
    ) -> Self {
        let mut appender = Self {
            log,
            ports,
            state,
            metrics,
            held: Vec::new(),
            decided: Vec::new(),
            dirty: false,
            told_lack: false,
            last_heartbeat: None,
        };
        appender.publish();
        appender
    }

    /// Works until the ingest thread is gone, then makes durable what is complete.
    pub(crate) fn run(mut self) -> Result<(), FormatError> {
        match self.work() {
            // Only when waiting for room was given up: the source keeps what could not be written.
            Err(error) if error.is_retryable() => {
                tracing::warn!("stopped while the log could not be written");
                self.log.abandon_open_transaction()?;
                self.sync()
            }
            result => result,
        }
    }

    fn work(&mut self) -> Result<(), FormatError> {
        loop {
            let deadline = self.ports.clock.now() + HEARTBEAT;
            match self.ports.work.receive(Some(deadline)) {
                Received::Item(work) => self.perform(work)?,
                Received::Deadline => {}
                Received::Closed => {
                    self.log.abandon_open_transaction()?;
                    return self.sync();
                }
            }
            while self.perform_next()? {}
            self.settle()?;
        }
    }

    /// Does the next piece of work, if there is one.
    pub(crate) fn perform_next(&mut self) -> Result<bool, FormatError> {
        let work = self.ports.work.try_receive();
        let there_was = work.is_some();
        work.map_or(Ok(()), |work| self.perform(work))?;
        Ok(there_was)
    }

    /// Makes durable what was done, and shows that the writer lives.
    pub(crate) fn settle(&mut self) -> Result<(), FormatError> {
        self.sync()?;
        let now = self.ports.clock.now();
        self.state.disk().note_turn(now);
        // Each is a call, and wakes who watches the file.
        let fresh = |last| now < last + HEARTBEAT / 2;
        if !self.last_heartbeat.is_some_and(fresh) {
            self.log.heartbeat(self.ports.clock.time_of_day())?;
            self.last_heartbeat = Some(now);
        }
        Ok(())
    }

    fn perform(&mut self, work: Work) -> Result<(), FormatError> {
        match work {
            Work::Block(builder) => self.append(builder),
            Work::Staged(staged) => {
                self.append_staged(&staged)?;
                self.finish(Returned::Done, true);
                Ok(())
            }
            Work::Prepared(prepared) => {
                self.when_there_is_room(|log| log.append_prepared(&prepared))?;
                let bytes = prepared.staged().stored_bytes();
                self.state.counters().bytes_written.add(bytes);
                self.finish(Returned::Done, true);
                Ok(())
            }
            Work::CommitPrepared(prepared, commit) => {
                self.when_there_is_room(|log| log.append_commit_prepared(&prepared, &commit))?;
                let counters = self.state.counters();
                counters.transactions.add(1);
                let bytes = prepared.staged().stored_bytes();
                counters.bytes_written.add(bytes);
                self.decided.push(prepared);
                self.finish(Returned::Done, true);
                Ok(())
            }
            Work::Decided(prepared) => {
                self.decided.push(prepared);
                self.finish(Returned::Done, true);
                Ok(())
            }
            Work::Progress(lsn) => {
                self.when_there_is_room(|log| log.progress(lsn))?;
                self.finish(Returned::Done, true);
                Ok(())
            }
            Work::Abandon => self.log.abandon_open_transaction(),
            Work::Timeline(timeline) => {
                self.when_there_is_room(|log| log.begin_timeline(timeline))?;
                self.pass_on_finished();
                Ok(())
            }
            Work::Sync => {
                self.sync()?;
                self.give_back(Returned::Synced(self.log.durable_lsn()));
                Ok(())
            }
        }
    }

    fn append(&mut self, mut builder: Box<BlockBuilder>) -> Result<(), FormatError> {
        let counters = self.state.counters();
        counters
            .transactions
            .add(builder.transaction_count().into());
        counters.bytes_written.add(builder.raw_len() as u64);
        counters.blocks.add(1);
        // What is inside one transaction only is made durable with its end.
        let complete = builder.end_lsn().is_some() || builder.open_transaction().is_none();
        self.when_there_is_room(|log| log.append(&mut builder))?;
        self.finish(Returned::Block(builder), complete);
        Ok(())
    }

    fn append_staged(&mut self, staged: &StagedWork) -> Result<(), FormatError> {
        let StagedWork {
            transaction,
            commit,
        } = staged;
        self.when_there_is_room(|log| log.append_staged(transaction, commit))?;
        let counters = self.state.counters();
        counters.transactions.add(1);
        counters.bytes_written.add(transaction.stored_bytes());
        Ok(())
    }

    /// Repeats what fails for want of space or of a descriptor. The log is unchanged each time, and nobody is told that
    /// anything is safe.
    fn when_there_is_room<T>(
        &mut self,
        mut attempt: impl FnMut(&mut LogWriter) -> Result<T, FormatError>,
    ) -> Result<T, FormatError> {
        let mut patience: Option<Patience> = None;
        loop {
            match attempt(&mut self.log) {
                Err(error) if error.is_retryable() => {
                    let patience = patience.get_or_insert_with(|| self.patience());
                    patience.report(&error);
                    // What is complete is not kept waiting for what does not fit.
                    self.sync()?;
                    let Self {
                        log, ports, state, ..
                    } = self;
                    let waited = patience.wait(|| {
                        // A failure poisons the writer, and the next attempt says so.
                        let _ = log.heartbeat(ports.clock.time_of_day());
                        state.disk().note_turn(ports.clock.now());
                    });
                    if !waited {
                        return Err(error);
                    }
                }
                result => return result,
            }
        }
    }

    fn patience(&self) -> Patience {
        Patience::new(
            Part::Log,
            Arc::clone(self.state.disk()),
            Arc::clone(&self.ports.clock),
            Arc::clone(&self.ports.give_up),
        )
    }

    /// What needs no sync goes back at once.
    fn finish(&mut self, returned: Returned, needs_sync: bool) {
        if needs_sync {
            self.dirty = true;
            self.held.push(returned);
            self.publish();
        } else {
            self.give_back(returned);
        }
        self.pass_on_finished();
    }

    fn pass_on_finished(&mut self) {
        for name in self.log.take_finished() {
            // Ignored: without its thread the segment is sealed after the next start.
            let _ = self.ports.finished.send(name);
        }
    }

    fn sync(&mut self) -> Result<(), FormatError> {
        if self.dirty {
            let begun = self.ports.clock.now();
            self.log.sync()?;
            self.metrics
                .fsync_seconds
                .observe((self.ports.clock.now() - begun).as_secs_f64());
            self.state.counters().fsyncs.add(1);
            self.dirty = false;
            self.publish();
        }
        for prepared in self.decided.drain(..) {
            prepared.resolved();
        }
        for returned in std::mem::take(&mut self.held) {
            self.give_back(returned);
        }
        Ok(())
    }

    /// Ignored where it fails: the ingest thread is ending, and this one will see it.
    fn give_back(&self, returned: Returned) {
        let _ = self.ports.returned.send(returned);
        let _ = self.ports.wake.send(Input::Wake);
    }

    /// Says which definitions of the publications the log keeps, and warns if a change that may still come is older.
    fn tell_definitions(&mut self) {
        let definitions = self.log.catalog().definitions();
        let counters = self.state.counters();
        let kept = definitions.older().len() as u64;
        counters.definitions_kept.set(kept);
        let known_from = definitions.known_from();
        if counters.definitions_known_from.get() == known_from.0 {
            return;
        }
        counters.definitions_known_from.set(known_from.0);
        let horizon = Lsn(counters.horizon.get());
        let some_lack = horizon.is_valid() && known_from > horizon;
        if some_lack && !self.told_lack {
            tracing::warn!(
                %known_from,
                open_since = %horizon,
                kept,
                "more definitions of publications came beside an open transaction than are kept: its changes before \
                 this position will be judged by the oldest that is left"
            );
        }
        self.told_lack = some_lack;
    }

    fn publish(&mut self) {
        self.tell_definitions();
        self.state.publish_head(Head {
            writer_epoch: self.log.identity().writer_epoch,
            written_lsn: self.log.written_lsn(),
            durable_lsn: self.log.durable_lsn(),
            ..Head::default()
        });
    }
}
