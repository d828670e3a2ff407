//! A source of transactions, and what a reader should make of them.

use std::path::Path;
use std::sync::Arc;

use pg_proto::pgoutput::{
    Begin, Commit, LogicalMessage, Message, Relation, RelationColumn, ReplicaIdentity, encode,
};
use pg_proto::{Lsn, Oid, PgTimestamp, Xid};

use crate::block::BlockBuilder;
use crate::fs::RealFs;
use crate::identity::Identity;
use crate::log::{Cursor, Log, ReadError, ReadOptions, TransactionIter};
use crate::record::RecordKind;
use crate::write::{LogWriter, WriterOptions};

/// Where the tests' logs begin.
pub(super) const ORIGIN: Lsn = Lsn(0x10_0000);

/// What happens at the source.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A transaction: a relation and a row's size each.
    Transaction(Vec<(u32, usize)>),
    /// A transaction that changes a relation's description, then a row.
    Alter(u32, u8),
    /// A message that stands alone.
    Message,
    /// Nothing that is published.
    Idle,
}

/// A record as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flat {
    pub(super) commit_lsn: Lsn,
    pub(super) ordinal: Option<u64>,
    pub(super) kind: RecordKind,
    pub(super) payload: Vec<u8>,
}

/// Writes events into a log and remembers them.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) writer: LogWriter,
    pub(super) expected: Vec<Flat>,
    /// Positions between transactions.
    pub(super) boundaries: Vec<Lsn>,
    /// Commit LSNs and times.
    pub(super) commits: Vec<(Lsn, PgTimestamp)>,
    /// Bytes after which a block is appended.
    pub(super) block_bytes: usize,
    builder: BlockBuilder,
    position: Lsn,
    number: u32,
}

pub(super) fn identity() -> Identity {
    Identity {
        system_identifier: 7,
        timeline: 1,
        database: "shop".to_owned(),
        slot: "decant".to_owned(),
        writer_epoch: 0,
    }
}

pub(super) fn open_writer(directory: &Path) -> LogWriter {
    let options = WriterOptions {
        segment_bytes: WriterOptions::MIN_SEGMENT_BYTES,
        start_lsn: ORIGIN,
    };
    let (writer, _) = LogWriter::open(directory, options, identity(), Arc::new(RealFs)).unwrap();
    writer
}

pub(super) fn open_log(directory: &Path) -> Arc<Log> {
    Log::open(directory, ReadOptions::default()).unwrap()
}

/// Everything from a cursor to the head.
pub(super) fn drain(cursor: Cursor) -> Result<Vec<Flat>, ReadError> {
    let mut records = TransactionIter::new(cursor);
    let mut flats = Vec::new();
    while let Some(record) = records.next_record()? {
        flats.push(Flat {
            commit_lsn: record.commit_lsn,
            ordinal: record.ordinal,
            kind: record.kind().unwrap(),
            payload: record.payload().to_vec(),
        });
    }
    Ok(flats)
}

impl Source {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            writer: open_writer(directory),
            expected: Vec::new(),
            boundaries: vec![ORIGIN],
            commits: Vec::new(),
            block_bytes: 1 << 10,
            builder: BlockBuilder::new(),
            position: ORIGIN,
            number: 0,
        }
    }

    pub(super) fn run(&mut self, events: &[Event]) {
        for event in events {
            self.event(event);
        }
        self.flush();
        self.writer.sync().unwrap();
    }

    /// Goes on behind `position`, where `number` transactions have been written.
    pub(super) fn resume(directory: &Path, position: Lsn, number: u32) -> Self {
        Self {
            position,
            number,
            ..Self::new(directory)
        }
    }

    /// As [`Self::run`], with a block of its own for each event.
    pub(super) fn run_apart(&mut self, events: &[Event]) {
        for event in events {
            self.event(event);
            self.flush();
        }
        self.writer.sync().unwrap();
    }

    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::Transaction(rows) => self.transaction(None, rows),
            Event::Alter(relation, columns) => {
                let description = relation_message(*relation, *columns);
                self.transaction(Some((*relation, description)), &[(*relation, 20)]);
            }
            Event::Message => self.message(),
            Event::Idle => {
                self.flush();
                self.position.0 += 24;
                self.writer.progress(self.position).unwrap();
                self.boundaries.push(self.position);
            }
        }
        if self.builder.raw_len() >= self.block_bytes {
            self.flush();
        }
    }

    /// What a reader that starts at `lsn` should see.
    pub(super) fn suffix(&self, lsn: Lsn) -> Vec<Flat> {
        let wanted = |flat: &&Flat| {
            let lone = flat.kind == RecordKind::Message;
            flat.commit_lsn > lsn || (flat.commit_lsn == lsn && !lone)
        };
        self.expected.iter().filter(wanted).cloned().collect()
    }

    pub(super) fn flush(&mut self) {
        self.writer.append(&mut self.builder).unwrap();
        let open = self.builder.open_transaction();
        self.builder.start(open);
    }

    fn transaction(&mut self, relation: Option<(u32, Vec<u8>)>, rows: &[(u32, usize)]) {
        self.number += 1;
        let commit_lsn = Lsn(self.position.0 + 8 + 100 * rows.len() as u64);
        let end_lsn = Lsn(commit_lsn.0 + 48);
        // Commit times go back a little now and then.
        let time = i64::from(self.number) * 1000 - i64::from(self.number % 3) * 1500;
        let begin = Begin {
            final_lsn: commit_lsn,
            commit_time: PgTimestamp(time),
            xid: Xid(self.number),
        };
        let payload = encoded(&Message::Begin(begin));
        self.builder
            .push_begin(&begin, self.position, PgTimestamp(5), &payload)
            .unwrap();
        self.expect(commit_lsn, None, RecordKind::Begin, payload);
        if let Some((oid, payload)) = relation {
            let pushed = self
                .builder
                .push_change(RecordKind::Relation, Oid(oid), Lsn(0), &payload);
            pushed.unwrap();
            self.expect(commit_lsn, None, RecordKind::Relation, payload);
        }
        for (ordinal, &(oid, size)) in rows.iter().enumerate() {
            self.row(commit_lsn, ordinal, oid, size);
        }
        let commit = Commit {
            commit_lsn,
            end_lsn,
            commit_time: PgTimestamp(time),
        };
        let payload = encoded(&Message::Commit(commit));
        self.builder
            .push_commit(&commit, end_lsn, &payload)
            .unwrap();
        self.expect(commit_lsn, None, RecordKind::Commit, payload);
        self.commits.push((commit_lsn, PgTimestamp(time)));
        self.moved(end_lsn);
    }

    fn row(&mut self, commit_lsn: Lsn, ordinal: usize, oid: u32, size: usize) {
        let start = Lsn(self.position.0 + 100 * ordinal as u64);
        let mut payload = vec![b'I'];
        payload.extend_from_slice(&oid.to_be_bytes());
        payload.extend((0..size).map(|at| ((at * 7 + ordinal) % 251).try_into().unwrap_or(0)));
        self.builder
            .push_change(RecordKind::Insert, Oid(oid), start, &payload)
            .unwrap();
        self.expect(
            commit_lsn,
            Some(ordinal as u64),
            RecordKind::Insert,
            payload,
        );
        if self.builder.raw_len() >= self.block_bytes {
            self.flush();
        }
    }

    fn message(&mut self) {
        let lsn = Lsn(self.position.0 + 32);
        let payload = encoded(&Message::LogicalMessage(LogicalMessage {
            xid: None,
            transactional: false,
            lsn,
            prefix: b"note",
            content: b"hello",
        }));
        self.builder
            .push_lone_message(lsn, lsn, PgTimestamp(0), &payload)
            .unwrap();
        self.expect(lsn, Some(0), RecordKind::Message, payload);
        self.moved(lsn);
    }

    fn moved(&mut self, lsn: Lsn) {
        self.position = lsn;
        self.boundaries.push(lsn);
    }

    fn expect(
        &mut self,
        commit_lsn: Lsn,
        ordinal: Option<u64>,
        kind: RecordKind,
        payload: Vec<u8>,
    ) {
        self.expected.push(Flat {
            commit_lsn,
            ordinal,
            kind,
            payload,
        });
    }
}

/// A RELATION message with that many columns.
pub(super) fn relation_message(oid: u32, columns: u8) -> Vec<u8> {
    let names: Vec<String> = (0..columns).map(|number| format!("c{number}")).collect();
    encoded(&Message::Relation(Relation {
        xid: None,
        oid: Oid(oid),
        namespace: b"public",
        name: format!("t{oid}").as_bytes(),
        replica_identity: ReplicaIdentity::Default,
        columns: names
            .iter()
            .map(|name| RelationColumn {
                is_key: true,
                name: name.as_bytes(),
                type_oid: Oid(23),
                type_modifier: -1,
            })
            .collect(),
    }))
}

fn encoded(message: &Message<'_>) -> Vec<u8> {
    let mut payload = Vec::new();
    encode(message, &mut payload);
    payload
}
