//! Finding a place in a long log.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use pg_proto::pgoutput::{Begin, Commit, Message, encode};
use pg_proto::{Lsn, Oid, PgTimestamp, Xid};
use storage_format::block::BlockBuilder;
use storage_format::fs::{Fs, RealFs};
use storage_format::log::{Log, ReadOptions};
use storage_format::record::RecordKind;
use storage_format::{Identity, LogWriter, SealOptions, WriterOptions, seal_segment};

use crate::drain::Quantiles;
use crate::measure::{count, say};
use crate::outcome::{Chart, Outcome, Table, Target};
use crate::scale::Scale;

const ABOUT: &str = "A log of small sealed segments, written by the library that the decoder uses, grows; at each size a new reader opens it \
    and goes to random positions. *Seek* is from a position to the first block in hand; *open and seek* is what the first subscriber of a \
    new fanout waits for. The files are in the page cache.";

const OPENING: &str = "A reader opens a log and finds a position in it by the file of the segments' names, of which it reads as many entries as \
    a search by halves needs. Only a log without that file, or with one that does not fit, has its folder listed, which is in proportion to the number \
    of files. To find a time for the first time still goes through all segments.";

const SEGMENTS: u64 = 10_000;
const SIZES: u32 = 4;
const TRANSACTIONS_PER_SEGMENT: u64 = 4;
const ROWS_PER_TRANSACTION: u64 = 20;
const SEEKS: u64 = 300;
const OPENS: u64 = 20;
const START: Lsn = Lsn(1 << 24);
/// Between two commits.
const STEP: u64 = 4_096;

/// One size.
struct Measured {
    segments: u64,
    open: Quantiles,
    seek: Quantiles,
    first_byte: Quantiles,
}

pub(super) async fn run(scale: Scale) -> Outcome {
    let most = scale.count(SEGMENTS, 100.0);
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Files, and no waiting for anything else: not on a thread of the runtime.
    let path = folder.path().to_owned();
    let work = tokio::task::spawn_blocking(move || grow(&path, most));
    let all = work.await.expect("the log can be written and read");
    outcome(&all)
}

/// Measures at a thousandth, a hundredth, a tenth of the size, and at the size.
fn grow(path: &Path, most: u64) -> Vec<Measured> {
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let identity = Identity {
        system_identifier: 1,
        timeline: 1,
        database: "postgres".to_owned(),
        slot: "decant".to_owned(),
        writer_epoch: 0,
    };
    let options = WriterOptions {
        segment_bytes: WriterOptions::MIN_SEGMENT_BYTES,
        start_lsn: START,
    };
    let (mut writer, _) =
        LogWriter::open(path, options, identity, Arc::clone(&fs)).expect("a new log");
    let mut all = Vec::new();
    let mut segments = 0;
    for size in (0..SIZES).rev().map(|power| most / 10_u64.pow(power)) {
        if size <= segments {
            continue;
        }
        say(&format!("{size} segments"));
        while segments < size {
            write_segment(&mut writer, segments);
            for name in writer.take_finished() {
                seal_segment(&*fs, path, name, &SealOptions::default())
                    .expect("a segment is sealed");
            }
            segments += 1;
        }
        writer.sync().expect("the log is durable");
        all.push(measure(path, segments));
    }
    all
}

fn write_segment(writer: &mut LogWriter, number: u64) {
    let mut builder = BlockBuilder::new();
    for transaction in 0..TRANSACTIONS_PER_SEGMENT {
        let at = START.0 + (number * TRANSACTIONS_PER_SEGMENT + transaction + 1) * STEP;
        push_transaction(&mut builder, Lsn(at));
    }
    writer.append(&mut builder).expect("there is room");
    writer.finish_segment().expect("no transaction is open");
}

fn push_transaction(builder: &mut BlockBuilder, at: Lsn) {
    let commit_time = PgTimestamp(0);
    let begin = Begin {
        final_lsn: at,
        commit_time,
        xid: Xid(7),
    };
    let commit = Commit {
        commit_lsn: at,
        end_lsn: Lsn(at.0 + 48),
        commit_time,
    };
    let bytes = |message: &Message<'_>| {
        let mut out = Vec::new();
        encode(message, &mut out);
        out
    };
    let pushed = builder
        .push_begin(&begin, at, commit_time, &bytes(&Message::Begin(begin)))
        .and_then(|()| {
            (0..ROWS_PER_TRANSACTION).try_for_each(|row| {
                let row = format!("I{row:150}");
                builder.push_change(RecordKind::Insert, Oid(16_384), at, row.as_bytes())
            })
        })
        .and_then(|()| builder.push_commit(&commit, at, &bytes(&Message::Commit(commit))));
    pushed.expect("a transaction in its order");
}

fn measure(path: &Path, segments: u64) -> Measured {
    let (mut opens, mut firsts) = (Vec::new(), Vec::new());
    for number in 0..OPENS {
        let begin = Instant::now();
        let log = open(path);
        opens.push(micros(begin));
        seek(&log, position(number, segments));
        firsts.push(micros(begin));
    }
    let log = open(path);
    let mut seeks = Vec::new();
    for number in 0..SEEKS {
        let begin = Instant::now();
        seek(&log, position(number, segments));
        seeks.push(micros(begin));
    }
    Measured {
        segments,
        open: Quantiles::of(&mut opens),
        seek: Quantiles::of(&mut seeks),
        first_byte: Quantiles::of(&mut firsts),
    }
}

fn open(path: &Path) -> Arc<Log> {
    Log::open(path, ReadOptions::default()).expect("the log can be read")
}

fn seek(log: &Arc<Log>, lsn: Lsn) {
    let mut cursor = log.cursor_at(lsn).expect("the position is kept");
    let block = cursor.next().expect("the log can be read");
    assert!(block.is_some(), "there is a transaction at {lsn}");
}

/// Positions all over the log, in no order.
const fn position(number: u64, segments: u64) -> Lsn {
    let transactions = segments * TRANSACTIONS_PER_SEGMENT;
    let some = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    Lsn(START.0 + (some % transactions + 1) * STEP)
}

fn micros(begin: Instant) -> u32 {
    u32::try_from(begin.elapsed().as_micros()).unwrap_or(u32::MAX)
}

fn outcome(all: &[Measured]) -> Outcome {
    let mut table = Table::new(
        "Milliseconds",
        &[
            "segments",
            "open, p50",
            "seek, p50",
            "seek, p99",
            "open and seek, p50",
            "open and seek, p99",
        ],
    );
    for found in all {
        let values = [
            found.open.p50,
            found.seek.p50,
            found.seek.p99,
            found.first_byte.p50,
            found.first_byte.p99,
        ];
        let mut cells = vec![found.segments.into()];
        cells.extend(values.map(|value| (value / 1e3).into()));
        table.row(cells);
    }
    let line = |pick: fn(&Measured) -> f64| -> Vec<(f64, f64)> {
        all.iter()
            .map(|found| (count(found.segments), pick(found) / 1e3))
            .collect()
    };
    let (first, last) = (&all[0], &all[all.len() - 1]);
    Outcome {
        about: ABOUT.to_owned(),
        tables: vec![table],
        charts: vec![
            Chart::new(
                "seek",
                "To the first block of a random position",
                "segments",
                "ms, p50",
            )
            .with("open", line(|found| found.open.p50))
            .with("seek", line(|found| found.seek.p50))
            .with("open and seek", line(|found| found.first_byte.p50)),
        ],
        targets: vec![
            Target::at_most(
                format!("open and seek, p99, {} segments", last.segments),
                last.first_byte.p99 / 1e3,
                10.0,
                "ms",
            ),
            within_logarithm("open", first, last, |found| found.open.p50),
            within_logarithm("seek", first, last, |found| found.seek.p50),
        ],
        notes: vec![OPENING.to_owned()],
        ..Outcome::default()
    }
}

/// A tree over so many times more segments is so many levels deeper; with a floor for the clock's resolution.
fn within_logarithm(
    what: &str,
    first: &Measured,
    last: &Measured,
    p50: fn(&Measured) -> f64,
) -> Target {
    Target::at_most(
        format!(
            "{what}, p50, {} / {} segments",
            last.segments, first.segments
        ),
        p50(last).max(10.0) / p50(first).max(10.0),
        count(last.segments).log2() / count(first.segments.max(2)).log2(),
        "",
    )
}
