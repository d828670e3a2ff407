//! A log in a temporary folder, and its writer.

use std::sync::Arc;

use pg_proto::pgoutput::Message;
use pg_proto::{Lsn, PgTimestamp};
use storage_format::block::BlockBuilder;
use storage_format::catalog::{Publication, encode_publications};
use storage_format::fs::RealFs;
use storage_format::log::{Log, ReadOptions};
use storage_format::record::RecordKind;
use storage_format::staging::StagedTransaction;
use storage_format::{Identity, LogWriter, WriterOptions};
use tempfile::TempDir;

use super::messages as pg;
use crate::replay::{HeadTeller, Replay};

/// Positions behind a commit that are left for older rows.
const ROOM: u64 = 64;
const START: Lsn = Lsn(0x0100_0000);

/// A log that is written record by record. Positions are given out by it, in steps of 8.
pub(crate) struct TestLog {
    pub(crate) folder: TempDir,
    writer: LogWriter,
    builder: BlockBuilder,
    next: Lsn,
    open: Option<Lsn>,
    /// Where rows of transactions go that commit later: behind each commit there is room for some.
    rooms: Vec<Lsn>,
    /// Where the rows of the open transaction go as long as they are older than other commits.
    older: Option<Lsn>,
    head: Option<HeadTeller>,
}

impl TestLog {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = WriterOptions {
            segment_bytes: WriterOptions::MIN_SEGMENT_BYTES,
            start_lsn: START,
        };
        let identity = Identity {
            system_identifier: 7,
            timeline: 1,
            database: "shop".to_owned(),
            slot: "decant".to_owned(),
            writer_epoch: 0,
        };
        let writer = LogWriter::open(folder.path(), options, identity, Arc::new(RealFs));
        Self {
            folder,
            writer: writer.unwrap().0,
            builder: BlockBuilder::new(),
            next: START,
            open: None,
            rooms: vec![START],
            older: None,
            head: None,
        }
    }

    pub(crate) fn take_lsn(&mut self) -> Lsn {
        self.next.0 += 8;
        self.next
    }

    /// Begins a transaction of at most `items` records; its commit position.
    pub(crate) fn begin(&mut self, items: usize) -> Lsn {
        self.begin_before(0, items)
    }

    /// The same for one whose rows are older than the last `overtaken` commits, until [`Self::catch_up`].
    pub(crate) fn begin_before(&mut self, overtaken: usize, items: usize) -> Lsn {
        let mut first = self.take_lsn();
        if overtaken > 0 {
            let rooms = self.rooms.len();
            let room = &mut self.rooms[rooms.saturating_sub(overtaken + 1)];
            room.0 += 1;
            first = *room;
            self.older = Some(first);
        }
        let now = self.next;
        let commit_lsn = Lsn(now.0 + 8 * (items as u64 + 1));
        let begin = pg::begin(commit_lsn);
        let payload = pg::encode(&Message::Begin(begin));
        let send_time = PgTimestamp(commit_lsn.0.cast_signed());
        self.builder
            .push_begin(&begin, first, send_time, &payload)
            .unwrap();
        self.open = Some(commit_lsn);
        commit_lsn
    }

    pub(crate) fn origin(&mut self, name: &str) {
        let payload = pg::origin(name);
        let kind = RecordKind::Origin;
        self.builder.push_other(kind, self.next, &payload).unwrap();
    }

    /// A row; its payload.
    pub(crate) fn row(&mut self, kind: RecordKind, table: u8, id: u32) -> Vec<u8> {
        let lsn = self.older.unwrap_or_else(|| self.take_lsn());
        let payload = pg::row(kind, table, id);
        let relation = pg::relation_oid(table);
        self.builder
            .push_change(kind, relation, lsn, &payload)
            .unwrap();
        payload
    }

    /// What follows in the open transaction is newer than all commits before it. Where its rows were before, if they were
    /// older.
    pub(crate) fn catch_up(&mut self) -> Option<Lsn> {
        self.older.take()
    }

    pub(crate) fn relation(&mut self, table: u8, version: u8) {
        let payload = pg::relation(table, version);
        let (kind, oid) = (RecordKind::Relation, pg::relation_oid(table));
        self.builder
            .push_change(kind, oid, Lsn(0), &payload)
            .unwrap();
    }

    pub(crate) fn named_type(&mut self, version: u8) {
        let payload = pg::named_type(version);
        self.builder
            .push_other(RecordKind::Type, Lsn(0), &payload)
            .unwrap();
    }

    pub(crate) fn truncate(&mut self, tables: &[u8]) {
        let (lsn, payload) = (self.take_lsn(), pg::truncate(tables));
        let relations = tables.iter().map(|table| pg::relation_oid(*table));
        self.builder
            .push_truncate(relations, lsn, &payload)
            .unwrap();
    }

    pub(crate) fn message(&mut self, content: u32) -> Vec<u8> {
        let lsn = self.take_lsn();
        let payload = pg::message(true, lsn, content);
        self.builder
            .push_other(RecordKind::Message, lsn, &payload)
            .unwrap();
        payload
    }

    pub(crate) fn lone_message(&mut self, content: u32) -> (Lsn, Vec<u8>) {
        let lsn = self.take_lsn();
        let payload = pg::message(false, lsn, content);
        self.builder
            .push_lone_message(lsn, lsn, PgTimestamp(1), &payload)
            .unwrap();
        (lsn, payload)
    }

    pub(crate) fn publications(&mut self, publications: &[Publication]) {
        let mut payload = Vec::new();
        encode_publications(publications, &mut payload);
        self.builder
            .push_aux(RecordKind::Publications, &payload)
            .unwrap();
    }

    /// Ends the transaction; its end position.
    pub(crate) fn commit(&mut self) -> Lsn {
        let commit_lsn = self.open.take().unwrap();
        self.next = Lsn(commit_lsn.0 + 8);
        self.older = None;
        self.rooms.push(self.next);
        let commit = pg::commit(commit_lsn, self.next);
        let payload = pg::encode(&Message::Commit(commit));
        self.builder
            .push_commit(&commit, self.next, &payload)
            .unwrap();
        let end = self.next;
        self.next.0 += ROOM;
        end
    }

    /// Where a staged transaction commits: behind all that is there.
    pub(crate) fn commit_place(&mut self) -> Lsn {
        self.cut();
        self.take_lsn()
    }

    /// Appends one that commits at such a place; its end position.
    pub(crate) fn append_staged(&mut self, staged: &StagedTransaction, commit_lsn: Lsn) -> Lsn {
        let end = self.take_lsn();
        let commit = pg::commit(commit_lsn, end);
        self.writer.append_staged(staged, &commit).unwrap();
        end
    }

    /// Ends the block.
    pub(crate) fn cut(&mut self) {
        self.writer.append(&mut self.builder).unwrap();
        let open = self.builder.open_transaction();
        self.builder.start(open);
    }

    pub(crate) fn progress(&mut self) {
        self.cut();
        let lsn = self.take_lsn();
        self.writer.progress(lsn).unwrap();
    }

    pub(crate) fn finish_segment(&mut self) {
        self.cut();
        self.writer.finish_segment().unwrap();
    }

    /// Makes durable what there is, and tells the head.
    pub(crate) fn sync(&mut self) -> Lsn {
        self.cut();
        let head = self.writer.sync().unwrap();
        if let Some(teller) = &self.head {
            teller.look();
        }
        head
    }

    pub(crate) fn log(&self) -> Arc<Log> {
        Log::open(self.folder.path(), ReadOptions::default()).unwrap()
    }

    /// Opens it for streams, which are woken by [`Self::sync`].
    pub(crate) fn replay(&mut self) -> Replay {
        self.sync();
        let log = self.log();
        let (teller, told) = HeadTeller::new(Arc::clone(&log));
        self.head = Some(teller);
        Replay::new(log, told)
    }
}
