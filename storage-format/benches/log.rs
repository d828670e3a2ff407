//! A log, written, read and sought in. `cargo bench -p storage-format`.

#![allow(missing_docs, reason = "criterion's macros")]

use std::path::Path;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pg_proto::pgoutput::{Begin, Commit, Message, encode};
use pg_proto::{Lsn, Oid, PgTimestamp, Xid};
use storage_format::block::BlockBuilder;
use storage_format::fs::{Fs, RealFs};
use storage_format::log::{Log, ReadOptions};
use storage_format::record::RecordKind;
use storage_format::{Identity, LogWriter, SealOptions, WriterOptions, seal_segment};
use tempfile::TempDir;

const START: Lsn = Lsn(1 << 24);
/// Between two commits.
const STEP: u64 = 32 << 10;
const ROWS: u64 = 100;
const TRANSACTIONS: u64 = 64;
const RELATION: Oid = Oid(16_384);

fn writer(path: &Path) -> LogWriter {
    let identity = Identity {
        system_identifier: 1,
        timeline: 1,
        database: "bench".to_owned(),
        slot: "decant".to_owned(),
        writer_epoch: 0,
    };
    let options = WriterOptions {
        segment_bytes: 1 << 30,
        start_lsn: START,
    };
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    LogWriter::open(path, options, identity, fs)
        .expect("a new log")
        .0
}

/// A transaction of rows of about 150 bytes.
fn push(builder: &mut BlockBuilder, at: Lsn, rows: &[Vec<u8>]) {
    let begin = Begin {
        final_lsn: at,
        commit_time: PgTimestamp(0),
        xid: Xid(7),
    };
    let commit = Commit {
        commit_lsn: at,
        end_lsn: Lsn(at.0 + 48),
        commit_time: PgTimestamp(0),
    };
    let bytes = |message: &Message<'_>| {
        let mut out = Vec::new();
        encode(message, &mut out);
        out
    };
    let opening = bytes(&Message::Begin(begin));
    builder
        .push_begin(&begin, at, PgTimestamp(0), &opening)
        .expect("none is open");
    for row in rows {
        builder
            .push_change(RecordKind::Insert, RELATION, at, row)
            .expect("one is open");
    }
    let closing = bytes(&Message::Commit(commit));
    builder
        .push_commit(&commit, at, &closing)
        .expect("one is open");
}

fn rows() -> Vec<Vec<u8>> {
    (0..ROWS)
        .map(|row| format!("I{row:149}").into_bytes())
        .collect()
}

/// A log of [`TRANSACTIONS`], sealed or not.
fn log(sealed: bool) -> (TempDir, Arc<Log>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut writer = writer(folder.path());
    let (rows, mut builder) = (rows(), BlockBuilder::new());
    for number in 1..=TRANSACTIONS {
        push(&mut builder, Lsn(START.0 + number * STEP), &rows);
        writer.append(&mut builder).expect("there is room");
        builder.start(None);
    }
    if sealed {
        writer.finish_segment().expect("no transaction is open");
        for name in writer.take_finished() {
            seal_segment(&RealFs, folder.path(), name, &SealOptions::default())
                .expect("it can be sealed");
        }
    }
    writer.sync().expect("it can be synced");
    let log = Log::open(folder.path(), ReadOptions::default()).expect("it can be opened");
    (folder, log)
}

fn append(criterion: &mut Criterion) {
    let rows = rows();
    let mut group = criterion.benchmark_group("storage_format::append");
    group.throughput(Throughput::Elements(ROWS));
    group.bench_function("build/rows=100", |bencher| {
        bencher.iter_batched_ref(
            BlockBuilder::new,
            |builder| push(builder, Lsn(START.0 + STEP), &rows),
            BatchSize::SmallInput,
        );
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut writer = writer(folder.path());
    let (mut builder, mut at) = (BlockBuilder::new(), START.0);
    group.bench_function("write/rows=100", |bencher| {
        bencher.iter(|| {
            at += STEP;
            push(&mut builder, Lsn(at), &rows);
            writer.append(&mut builder).expect("there is room");
            builder.start(None);
        });
    });
    group.finish();
}

fn read(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("storage_format::read");
    group.throughput(Throughput::Elements(TRANSACTIONS * ROWS));
    for (name, sealed) in [("active", false), ("sealed", true)] {
        let (_folder, log) = log(sealed);
        let drain = |wanted: bool| {
            let mut cursor = log.cursor_at(START).expect("it is kept");
            let mut entries = 0;
            while let Some(block) = cursor.next_with(&|_, _| wanted).expect("it can be read") {
                entries += block.entries().len();
            }
            entries
        };
        group.bench_function(format!("blocks/{name}"), |bencher| {
            bencher.iter(|| drain(true));
        });
        group.bench_function(format!("skip/{name}"), |bencher| {
            bencher.iter(|| drain(false));
        });
    }
    group.finish();
}

fn seek(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("storage_format::seek");
    for (name, sealed) in [("active", false), ("sealed", true)] {
        let (folder, log) = log(sealed);
        let mut number = 0;
        group.bench_function(format!("cursor_at/{name}"), |bencher| {
            bencher.iter(|| {
                number = (number + 7) % TRANSACTIONS;
                log.cursor_at(Lsn(START.0 + number * STEP + 1))
                    .expect("it is kept")
            });
        });
        group.bench_function(format!("open/{name}"), |bencher| {
            bencher.iter(|| Log::open(folder.path(), ReadOptions::default()).expect("it is there"));
        });
    }
    group.finish();
}

criterion_group!(benches, append, read, seek);
criterion_main!(benches);
