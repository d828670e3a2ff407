//! Small logs to test with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pg_proto::pgoutput::{Begin, Commit, LogicalMessage, Message, encode};
use pg_proto::{Lsn, Oid, PgTimestamp, Xid};
use storage_format::block::BlockBuilder;
use storage_format::fs::Fs;
use storage_format::log::{Log, ReadOptions, Serve, TransactionIter};
use storage_format::record::RecordKind;
use storage_format::{FormatError, Identity, LogWriter, Recovery, WriterOptions};

use crate::faulty_fs::FaultyFs;

pub(crate) const START: Lsn = Lsn(0x0100_0000);
pub(crate) const SEND_TIME: PgTimestamp = PgTimestamp(800_000_000_000_000);

pub(crate) fn identity() -> Identity {
    Identity {
        system_identifier: 7_300_000_000_000_000_001,
        timeline: 1,
        database: "shop".to_owned(),
        slot: "decant".to_owned(),
        writer_epoch: 0,
    }
}

pub(crate) const fn options(segment_bytes: u64) -> WriterOptions {
    WriterOptions {
        segment_bytes,
        start_lsn: START,
    }
}

pub(crate) fn open_with(
    log: &Path,
    segment_bytes: u64,
    fs: Arc<dyn Fs>,
) -> Result<(LogWriter, Recovery), FormatError> {
    LogWriter::open(log, options(segment_bytes), identity(), fs)
}

pub(crate) fn open(log: &Path, segment_bytes: u64) -> (LogWriter, Recovery) {
    open_with(log, segment_bytes, Arc::new(FaultyFs::default())).unwrap()
}

/// A transaction of a number of rows: commits at `at`, ends 48 bytes later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transaction {
    pub(crate) at: Lsn,
    pub(crate) rows: usize,
    pub(crate) row_len: usize,
}

pub(crate) const fn transaction(at: u64, rows: usize) -> Transaction {
    Transaction {
        at: Lsn(at),
        rows,
        row_len: 40,
    }
}

impl Transaction {
    pub(crate) const fn end(&self) -> Lsn {
        Lsn(self.at.0 + 48)
    }

    pub(crate) fn begin(&self) -> Begin {
        Begin {
            final_lsn: self.at,
            commit_time: SEND_TIME,
            xid: Xid(u32::try_from(self.at.0 & 0xFFFF_FFFF).unwrap()),
        }
    }

    pub(crate) fn commit(&self) -> Commit {
        Commit {
            commit_lsn: self.at,
            end_lsn: self.end(),
            commit_time: SEND_TIME,
        }
    }

    pub(crate) fn push_begin(&self, builder: &mut BlockBuilder) {
        builder
            .push_begin(
                &self.begin(),
                self.at,
                SEND_TIME,
                &bytes(&Message::Begin(self.begin())),
            )
            .unwrap();
    }

    pub(crate) fn push_rows(&self, builder: &mut BlockBuilder, rows: usize) {
        for row in 0..rows {
            let payload = vec![u8::try_from(row % 251).unwrap(); self.row_len];
            let relation = Oid(16384 + u32::try_from(row % 3).unwrap());
            builder
                .push_change(RecordKind::Insert, relation, self.at, &payload)
                .unwrap();
        }
    }

    pub(crate) fn push_commit(&self, builder: &mut BlockBuilder) {
        builder
            .push_commit(
                &self.commit(),
                self.end(),
                &bytes(&Message::Commit(self.commit())),
            )
            .unwrap();
    }

    pub(crate) fn push(&self, builder: &mut BlockBuilder) {
        self.push_begin(builder);
        self.push_rows(builder, self.rows);
        self.push_commit(builder);
    }
}

/// A logical message that stands alone at `lsn`.
pub(crate) fn lone_message(lsn: Lsn) -> Vec<u8> {
    bytes(&Message::LogicalMessage(LogicalMessage {
        xid: None,
        transactional: false,
        lsn,
        prefix: b"prefix",
        content: b"content",
    }))
}

fn bytes(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode(message, &mut out);
    out
}

/// A RELATION message with one column named `column`.
pub(crate) fn relation_message(oid: u32, column: &str) -> Vec<u8> {
    let mut out = vec![b'R'];
    out.extend_from_slice(&oid.to_be_bytes());
    out.extend_from_slice(b"public\0t\0d");
    out.extend_from_slice(&1_u16.to_be_bytes());
    out.push(1);
    out.extend_from_slice(column.as_bytes());
    out.push(0);
    out.extend_from_slice(&23_u32.to_be_bytes());
    out.extend_from_slice(&(-1_i32).to_be_bytes());
    out
}

/// A builder that holds the given transactions.
pub(crate) fn filled(transactions: &[Transaction]) -> BlockBuilder {
    let mut builder = BlockBuilder::new();
    for transaction in transactions {
        transaction.push(&mut builder);
    }
    builder
}

/// Appends each transaction as a block of its own.
pub(crate) fn append_all(writer: &mut LogWriter, transactions: &[Transaction]) {
    for transaction in transactions {
        writer.append(&mut filled(&[*transaction])).unwrap();
    }
}

pub(crate) fn files(log: &Path, extension: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(log.join("segments"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    paths.sort();
    paths
}

/// A record as a subscriber would see it: commit LSN, ordinal, kind, relation, message.
pub(crate) type Seen = (Lsn, Option<u64>, u8, Option<Oid>, Vec<u8>);

/// Everything that the log holds.
pub(crate) fn read_all(log: &Path) -> Vec<Seen> {
    let options = ReadOptions {
        serve: Serve::Written,
        ..ReadOptions::default()
    };
    let log = Log::open(log, options).unwrap();
    let oldest = log.kept().unwrap().oldest;
    let mut records = TransactionIter::new(log.cursor_at(oldest).unwrap());
    let mut seen = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        seen.push((
            record.commit_lsn,
            record.ordinal,
            record.entry.kind_id,
            record.relation(),
            record.payload().to_vec(),
        ));
    }
    seen
}
