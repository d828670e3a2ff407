//! In-progress transactions: the log's staging, with what the decoder counts, and with patience for a full disk.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pg_proto::{Lsn, Xid};
use storage_format::FormatError;
use storage_format::fs::Fs;
use storage_format::record::{PreparedRecord, RecordKind};
use storage_format::staging::{
    PreparedStore, PreparedTransaction, Rollback, StagedEnd, StagedTransaction, Staging,
};

use super::IngestError;
use super::log_sink::is_change;
use super::record::{Incoming, Record, Touched};
use super::undecided::undecided;
use crate::clock::Clock;
use crate::disk::{Part, Patience};
use crate::state::DecoderState;

/// The transactions that are being staged.
#[derive(Debug)]
pub(crate) struct StagingArea {
    files: StagedFiles,
    /// Those that are prepared and not decided.
    prepared: HashMap<Xid, Arc<PreparedTransaction>>,
    tallies: HashMap<Xid, Tally>,
    give_up: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
    state: Arc<DecoderState>,
}

/// What may find the disk full.
#[derive(Debug)]
struct StagedFiles {
    staging: Staging,
    prepared: PreparedStore,
}

/// What was staged of one transaction.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    bytes: u64,
    changes: u64,
}

/// A transaction that is complete.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) transaction: StagedTransaction,
    /// Changes of rows, those that were rolled back included.
    pub(super) changes: u64,
}

impl StagingArea {
    /// Over the log directory's staging folder, which is emptied. Waiting for room on the disk ends when `give_up` is
    /// set.
    ///
    /// Of the transactions that were prepared before, those stay that are in the log, which ends at `log_end`, and whose
    /// end is not.
    pub(crate) fn open(
        log: &Path,
        log_end: Lsn,
        fs: Arc<dyn Fs>,
        memory_bytes: u64,
        give_up: Arc<AtomicBool>,
        clock: Arc<dyn Clock>,
        state: Arc<DecoderState>,
    ) -> Result<Self, IngestError> {
        let memory_bytes = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
        let store = PreparedStore::open(log, Arc::clone(&fs))?;
        let prepared = undecided(log, &store, log_end, &fs)?;
        let by_xid = |one: PreparedTransaction| (one.record().xid, Arc::new(one));
        let mut staging = Staging::open(log, memory_bytes, fs)?;
        staging.set_position(log_end);
        let files = StagedFiles {
            staging,
            prepared: store,
        };
        let area = Self {
            files,
            prepared: prepared.into_iter().map(by_xid).collect(),
            tallies: HashMap::new(),
            give_up,
            clock,
            state,
        };
        area.count();
        Ok(area)
    }

    pub(super) fn begin(&mut self, top: Xid, message: &Incoming<'_>) {
        let staging = &mut self.files.staging;
        staging.begin(top, message.start, message.send_time);
        self.tallies.insert(top, Tally::default());
        self.count();
    }

    /// The same for a transaction that comes whole.
    pub(super) fn begin_whole(&mut self, top: Xid, message: &Incoming<'_>) {
        let staging = &mut self.files.staging;
        staging.begin_whole(top, message.start, message.send_time);
        self.tallies.insert(top, Tally::default());
        self.count();
    }

    pub(super) fn contains(&self, top: Xid) -> bool {
        self.files.staging.contains(top)
    }

    pub(super) fn record(
        &mut self,
        top: Xid,
        sub: Xid,
        record: &Record<'_>,
    ) -> Result<(), IngestError> {
        let Record {
            kind,
            start,
            payload,
            ..
        } = *record;
        self.when_there_is_room(|files| files.staging.make_room(top, sub, kind))?;
        let block = self.files.staging.current(top)?;
        match record.touched {
            Touched::One(relation) => block.push_change(kind, relation, start, payload)?,
            Touched::None => block.push_other(kind, start, payload)?,
            Touched::Many(truncate) => block.push_truncate(truncate.relations(), start, payload)?,
        }
        self.tally(top, payload.len(), u64::from(is_change(kind)));
        Ok(())
    }

    pub(super) fn aux(
        &mut self,
        top: Xid,
        sub: Xid,
        kind: RecordKind,
        payload: &[u8],
    ) -> Result<(), IngestError> {
        self.when_there_is_room(|files| files.staging.make_room(top, sub, kind))?;
        self.files.staging.current(top)?.push_aux(kind, payload)?;
        self.tally(top, payload.len(), 0);
        Ok(())
    }

    /// Everything up to `end` is in the log, or will be there before anything that comes now.
    pub(super) const fn log_reaches(&mut self, end: Lsn) {
        self.files.staging.set_position(end);
    }

    /// The source sends something else for now: what there is may be read by those who follow the transaction.
    pub(super) fn stop(&mut self, top: Xid) -> Result<(), IngestError> {
        self.when_there_is_room(|files| files.staging.flush(top))?;
        self.state.staging_changed();
        Ok(())
    }

    pub(super) fn abort(&mut self, top: Xid, sub: Xid, at: Rollback) -> Result<(), IngestError> {
        if top == sub {
            // Without it, for want of room, the file goes without an end, which its readers take for the same.
            let _ = self.files.staging.end(top, StagedEnd::RolledBack(at));
            self.discard(top);
        } else {
            self.when_there_is_room(|files| files.staging.abort_subtransaction(top, sub, at))?;
            self.state.staging_changed();
        }
        Ok(())
    }

    pub(super) fn discard(&mut self, top: Xid) {
        self.files.staging.discard(top);
        self.tallies.remove(&top);
        self.count();
        self.state.staging_changed();
    }

    pub(super) fn finish(&mut self, top: Xid, end: StagedEnd) -> Result<Finished, IngestError> {
        self.when_there_is_room(|files| files.staging.end(top, end))?;
        let transaction = self.when_there_is_room(|files| files.staging.finish(top))?;
        let tally = self.tallies.remove(&top).unwrap_or_default();
        self.count();
        Ok(Finished {
            transaction,
            changes: tally.changes,
        })
    }

    /// The transaction is prepared: it stays until it is decided. Unless it is decided at once, it is made durable.
    pub(super) fn prepare(
        &mut self,
        record: PreparedRecord,
    ) -> Result<(Arc<PreparedTransaction>, u64), IngestError> {
        let Finished {
            mut transaction,
            changes,
        } = self.finish(record.xid, StagedEnd::Prepared(record.prepare_lsn))?;
        if record.at_prepare {
            self.when_there_is_room(|files| files.prepared.keep(&mut transaction, &record))?;
        }
        let xid = record.xid;
        let prepared = Arc::new(PreparedTransaction::new(transaction, record));
        self.prepared.insert(xid, Arc::clone(&prepared));
        self.count();
        Ok((prepared, changes))
    }

    /// Where the changes begin of what is prepared and not decided.
    pub(super) fn oldest_prepared(&self) -> Option<Lsn> {
        let prepared = self.prepared.values();
        prepared.map(|one| one.staged().start()).min()
    }

    pub(super) fn is_prepared(&self, xid: Xid, gid: &[u8]) -> bool {
        let prepared = self.prepared.get(&xid);
        prepared.is_some_and(|prepared| prepared.record().gid == gid)
    }

    /// The transaction is decided. Its file goes when that is durable, see [`PreparedTransaction::resolved`].
    pub(super) fn decided(&mut self, xid: Xid) -> Option<Arc<PreparedTransaction>> {
        let prepared = self.prepared.remove(&xid);
        self.count();
        prepared
    }

    /// The connection is lost: everything will be streamed again, but for what is prepared.
    pub(super) fn discard_all(&mut self) {
        self.files.staging.discard_all();
        self.tallies.clear();
        self.count();
        self.state.staging_changed();
    }

    fn tally(&mut self, top: Xid, bytes: usize, changes: u64) {
        let tally = self.tallies.entry(top).or_default();
        tally.bytes += bytes as u64;
        tally.changes += changes;
        self.state.counters().staged_bytes.add(bytes as u64);
    }

    fn count(&self) {
        let counters = self.state.counters();
        counters.staged_transactions.set(self.tallies.len() as u64);
        let bytes = self.tallies.values().map(|tally| tally.bytes).sum();
        counters.staged_bytes.set(bytes);
        let prepared = self.prepared.len() as u64;
        counters.prepared_transactions.set(prepared);
    }

    /// Repeats what fails for want of space or of a descriptor. What is staged is as it was before each attempt.
    fn when_there_is_room<T>(
        &mut self,
        mut attempt: impl FnMut(&mut StagedFiles) -> Result<T, FormatError>,
    ) -> Result<T, IngestError> {
        let mut patience: Option<Patience> = None;
        loop {
            match attempt(&mut self.files) {
                Err(error) if error.is_retryable() => {
                    let patience = patience.get_or_insert_with(|| self.patience());
                    patience.report(&error);
                    if !patience.wait(|| {}) {
                        return Err(error.into());
                    }
                }
                result => return Ok(result?),
            }
        }
    }

    fn patience(&self) -> Patience {
        Patience::new(
            Part::Staging,
            Arc::clone(self.state.disk()),
            Arc::clone(&self.clock),
            Arc::clone(&self.give_up),
        )
    }
}
