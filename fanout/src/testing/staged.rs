//! A log with transactions that are staged before they end, as a decoder writes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use pg_proto::{Lsn, PgTimestamp, Xid};
use storage_format::fs::RealFs;
use storage_format::record::RecordKind;
use storage_format::staging::{Rollback, StagedEnd, Staging};

use super::TestLog;
use super::messages as pg;
use crate::replay::{Replay, StagedFiles};

/// Memory of all transactions that are staged; what is more goes to files.
const MEMORY_BYTES: usize = 1 << 20;
/// The only table.
const TABLE: u8 = 0;

/// The log, and what is staged beside it.
pub(crate) struct StagedLog {
    pub(crate) log: TestLog,
    staging: Staging,
    files: StagedFiles,
    replay: Replay,
    /// Rows of those that are open, with their writers.
    open: BTreeMap<Xid, Vec<(Xid, u32)>>,
    rows: u32,
}

impl StagedLog {
    /// A log with a transaction that describes the table.
    pub(crate) fn new() -> Self {
        let mut log = TestLog::new();
        log.begin(1);
        log.relation(TABLE, 0);
        log.row(RecordKind::Insert, TABLE, 0);
        let end = log.commit();
        let replay = log.replay();
        let files = StagedFiles::new(Arc::clone(replay.log()));
        let replay = replay.with_staged(files.clone());
        let mut staging = open_staging(&log);
        staging.set_position(end);
        Self {
            log,
            staging,
            files,
            replay,
            open: BTreeMap::new(),
            rows: 0,
        }
    }

    pub(crate) const fn replay(&self) -> &Replay {
        &self.replay
    }

    /// Those that have not ended.
    pub(crate) fn open(&self) -> Vec<Xid> {
        self.open.keys().copied().collect()
    }

    /// Begins a transaction that does not describe the table, which nothing holds the source to.
    pub(crate) fn begin_bare(&mut self, xid: Xid) {
        let start = self.log.take_lsn();
        self.staging.begin(xid, start, PgTimestamp(7));
        self.open.insert(xid, Vec::new());
    }

    pub(crate) fn begin(&mut self, xid: Xid) {
        self.begin_bare(xid);
        let kind = RecordKind::Relation;
        let builder = self.staging.builder(xid, xid, kind).unwrap();
        let message = pg::relation(TABLE, 0);
        let oid = pg::relation_oid(TABLE);
        builder.push_change(kind, oid, Lsn(0), &message).unwrap();
    }

    /// A row of the (sub)transaction `writer` of `xid`.
    pub(crate) fn row(&mut self, xid: Xid, writer: Xid) {
        self.rows += 1;
        self.push_row(xid, writer, self.rows);
        let rows = self.open.get_mut(&xid).unwrap();
        rows.push((writer, self.rows));
    }

    fn push_row(&mut self, xid: Xid, writer: Xid, id: u32) {
        let kind = RecordKind::Insert;
        let (start, oid) = (self.log.take_lsn(), pg::relation_oid(TABLE));
        let builder = self.staging.builder(xid, writer, kind).unwrap();
        let payload = pg::row(kind, TABLE, id);
        builder.push_change(kind, oid, start, &payload).unwrap();
    }

    /// The source sends something else: what there is can be read.
    pub(crate) fn stop(&mut self, xid: Xid) {
        self.staging.flush(xid).unwrap();
        self.files.look();
    }

    pub(crate) fn abort(&mut self, xid: Xid, writer: Xid) {
        let at = Rollback::default();
        self.staging.abort_subtransaction(xid, writer, at).unwrap();
        let rows = self.open.get_mut(&xid).unwrap();
        rows.retain(|(one, _)| *one != writer);
        self.files.look();
    }

    pub(crate) fn roll_back(&mut self, xid: Xid) {
        let end = StagedEnd::RolledBack(Rollback::default());
        self.staging.end(xid, end).unwrap();
        self.staging.discard(xid);
        self.open.remove(&xid);
        self.files.look();
    }

    pub(crate) fn commit(&mut self, xid: Xid) {
        let commit_lsn = self.log.commit_place();
        let end = StagedEnd::Committed(commit_lsn);
        self.staging.end(xid, end).unwrap();
        let staged = self.staging.finish(xid).unwrap();
        let end = self.log.append_staged(&staged, commit_lsn);
        self.staging.set_position(end);
        self.open.remove(&xid);
        self.log.sync();
        drop(staged);
        self.files.look();
    }

    /// A transaction that commits at once.
    pub(crate) fn plain(&mut self) {
        self.rows += 1;
        self.log.begin(1);
        self.log.row(RecordKind::Insert, TABLE, self.rows);
        let end = self.log.commit();
        self.log.sync();
        self.staging.set_position(end);
    }

    /// The decoder begins anew: what is open is sent again, without what is rolled back by then.
    pub(crate) fn restart(&mut self) {
        self.staging.discard_all();
        self.files.look();
        self.staging = open_staging(&self.log);
        self.staging.set_position(self.log.sync());
        for (xid, rows) in std::mem::take(&mut self.open) {
            self.begin(xid);
            for (writer, id) in &rows {
                self.push_row(xid, *writer, *id);
            }
            self.open.insert(xid, rows);
            self.stop(xid);
        }
    }
}

fn open_staging(log: &TestLog) -> Staging {
    let fs = Arc::new(RealFs);
    Staging::open(log.folder.path(), MEMORY_BYTES, fs).unwrap()
}
