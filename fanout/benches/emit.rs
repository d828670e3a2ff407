//! What one subscriber's way through the log costs, without a socket. `cargo bench -p fanout`.

#![allow(missing_docs, reason = "criterion's macros")]

use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fanout::emit::{EmitOptions, Frames};
use fanout::replay::{Advance, HeadTeller, Replay, StreamOptions};
use fanout::selection::{Publications, SelectionSpec};
use pg_proto::pgoutput::{
    Begin, Change, ColumnValue, Commit, Message, Relation, RelationColumn, ReplicaIdentity,
    TupleBuf, encode,
};
use pg_proto::{Lsn, Oid, PgTimestamp, Xid};
use storage_format::block::BlockBuilder;
use storage_format::catalog::{
    DescribedRelation, Publication, PublicationActions, PublicationState, PublicationTable,
    PublicationsRecord, RowFilterText,
};
use storage_format::fs::RealFs;
use storage_format::log::{Log, ReadOptions};
use storage_format::record::RecordKind;
use storage_format::{Identity, LogWriter, WriterOptions};

const START: Lsn = Lsn(1 << 24);
const STEP: u64 = 32 << 10;
const TRANSACTIONS: u64 = 100;
const ROWS: u64 = 100;
const TABLES: [Oid; 2] = [Oid(16_384), Oid(16_390)];
/// `account < 500`, as PostgreSQL 18 keeps it.
const FILTER: &str = "{OPEXPR :opno 97 :opfuncid 66 :opresulttype 16 :opretset false :opcollid 0 :inputcollid 0 :args ({VAR :varno 1 \
     :varattno 2 :vartype 23 :vartypmod -1 :varcollid 0 :varnullingrels (b) :varlevelsup 0 :varreturningtype 0 :varnosyn 1 :varattnosyn 2 \
     :location -1} {CONST :consttype 23 :consttypmod -1 :constcollid 0 :constlen 4 :constbyval true :constisnull false :location -1 \
     :constvalue 4 [ 244 1 0 0 0 0 0 0 ]}) :location -1}";

fn bytes(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode(message, &mut out);
    out
}

/// `id bigint primary key, account int, note text`.
fn relation(oid: Oid) -> Vec<u8> {
    let column = |name: &'static str, type_oid, is_key| RelationColumn {
        is_key,
        name: name.as_bytes(),
        type_oid: Oid(type_oid),
        type_modifier: -1,
    };
    let name = name_of(oid);
    bytes(&Message::Relation(Relation {
        xid: None,
        oid,
        namespace: b"public",
        name: name.as_bytes(),
        replica_identity: ReplicaIdentity::Default,
        columns: vec![
            column("id", 20, true),
            column("account", 23, false),
            column("note", 25, false),
        ],
    }))
}

fn name_of(oid: Oid) -> String {
    format!("t{oid}")
}

/// A row of about 150 bytes.
fn insert(oid: Oid, id: u64) -> Vec<u8> {
    let mut row = TupleBuf::new();
    let values = [id.to_string(), (id * 7 % 1000).to_string(), "x".repeat(110)];
    for value in &values {
        assert!(row.push(ColumnValue::Text(value.as_bytes())), "a small row");
    }
    let new = row.as_tuple();
    bytes(&Message::Change(Change::Insert {
        xid: None,
        relation: oid,
        new,
    }))
}

/// Which rows the definition of the publications in force does not judge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Older {
    None,
    /// All were written before it.
    All,
    /// The first half of each transaction's.
    Half,
}

/// Publications `all`, `one` (the first table), `filtered` and `listed`, and `more`.
fn publications(more: Option<&str>) -> Vec<u8> {
    let table = |oid| PublicationTable {
        relation: oid,
        schema: "public".to_owned(),
        name: name_of(oid),
        ..PublicationTable::default()
    };
    let publication = |name: &str, tables| Publication {
        name: name.to_owned(),
        actions: PublicationActions::ALL,
        tables,
        ..Publication::default()
    };
    let filtered = TABLES.map(|oid| PublicationTable {
        row_filter: Some(RowFilterText {
            sql: "account < 500".to_owned(),
            tree: FILTER.to_owned(),
        }),
        ..table(oid)
    });
    let listed = TABLES.map(|oid| PublicationTable {
        columns: Some(vec!["id".to_owned(), "note".to_owned()]),
        ..table(oid)
    });
    let described = TABLES.map(|oid| DescribedRelation {
        oid,
        schema: "public".to_owned(),
        name: name_of(oid),
        replica_identity: b'd',
        attribute_count: 3,
        ..DescribedRelation::default()
    });
    let state = PublicationState {
        publications: Arc::from([
            publication("all", TABLES.map(table).to_vec()),
            publication("one", vec![table(TABLES[0])]),
            publication("filtered", filtered.to_vec()),
            publication("listed", listed.to_vec()),
            publication(more.unwrap_or("first"), Vec::new()),
        ]),
        relations: described.to_vec(),
        ..PublicationState::default()
    };
    let record = PublicationsRecord {
        state,
        ..PublicationsRecord::default()
    };
    let mut out = Vec::new();
    record.encode(&mut out);
    out
}

/// Transactions that have rows of both tables in turn; where it begins for those who have seen the descriptions.
fn write(path: &Path, older: Older) {
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
    let (mut writer, _) =
        LogWriter::open(path, options, identity, Arc::new(RealFs)).expect("a new log");
    let mut builder = BlockBuilder::new();
    for number in 1..=TRANSACTIONS {
        let at = Lsn(START.0 + number * STEP);
        let begin = Begin {
            final_lsn: at,
            commit_time: PgTimestamp(0),
            xid: Xid(7),
        };
        let opening = bytes(&Message::Begin(begin));
        let begun = builder.push_begin(&begin, at, PgTimestamp(0), &opening);
        begun.expect("none is open");
        if number == 1 {
            let pushed = builder.push_aux(RecordKind::Publications, &publications(None));
            pushed.expect("one is open");
            for oid in TABLES {
                let pushed = builder.push_change(RecordKind::Relation, oid, Lsn(0), &relation(oid));
                pushed.expect("one is open");
            }
        }
        if number == 2 && older != Older::None {
            let pushed = builder.push_aux(RecordKind::Publications, &publications(Some("second")));
            pushed.expect("one is open");
        }
        for row in 0..ROWS {
            let oid = TABLES[usize::from(row % 2 == 1)];
            let id = number * ROWS + row;
            let row = insert(oid, id);
            let is_older = match older {
                Older::None => false,
                Older::All => true,
                Older::Half => id % ROWS < ROWS / 2,
            };
            let written = if is_older && number > 2 {
                Lsn(START.0 + STEP + STEP / 2)
            } else {
                at
            };
            let pushed = builder.push_change(RecordKind::Insert, oid, written, &row);
            pushed.expect("one is open");
        }
        let commit = Commit {
            commit_lsn: at,
            end_lsn: Lsn(at.0 + 48),
            commit_time: PgTimestamp(0),
        };
        let closing = bytes(&Message::Commit(commit));
        let committed = builder.push_commit(&commit, at, &closing);
        committed.expect("one is open");
        writer.append(&mut builder).expect("there is room");
        builder.start(None);
    }
    writer.sync().expect("it can be synced");
}

/// Changes that were handed over.
fn drain(replay: &Replay, publication: &str) -> u64 {
    let options = StreamOptions {
        selection: SelectionSpec {
            publications: Publications::Named(vec![publication.to_owned()]),
            ..SelectionSpec::default()
        },
        emit: EmitOptions {
            start: START,
            ..EmitOptions::default()
        },
        ..StreamOptions::default()
    };
    let mut stream = replay.open(options).expect("it is kept");
    let (mut frames, mut changes) = (Frames::default(), 0);
    loop {
        match stream.advance(&mut frames).expect("it can be read") {
            Advance::Moved(step) => changes += step.changes,
            _ => return changes,
        }
        // As if it were written.
        frames.clear();
    }
}

fn emit(criterion: &mut Criterion) {
    measure(criterion, Older::None, "");
    measure(criterion, Older::All, "/older=all");
    measure(criterion, Older::Half, "/older=half");
}

fn measure(criterion: &mut Criterion, older: Older, name: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), older);
    let log = Log::open(folder.path(), ReadOptions::default()).expect("it is there");
    let (_teller, told) = HeadTeller::new(Arc::clone(&log));
    let replay = Replay::new(log, told);
    let rows = TRANSACTIONS * ROWS;
    let mut group = criterion.benchmark_group("fanout::emit");
    group.throughput(Throughput::Elements(rows));
    for (publication, changes) in [
        ("all", rows..=rows),
        ("one", rows / 2..=rows / 2),
        ("filtered", rows / 3..=rows * 2 / 3),
        ("listed", rows..=rows),
    ] {
        let passed = drain(&replay, publication);
        assert!(
            changes.contains(&passed),
            "{publication}: {passed} of {rows}"
        );
        group.bench_function(
            format!("drain/publication={publication}{name}"),
            |bencher| {
                bencher.iter(|| drain(&replay, publication));
            },
        );
    }
    group.finish();
}

criterion_group!(benches, emit);
criterion_main!(benches);
