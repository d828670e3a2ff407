//! Which definition of a publication judges a change: the one that had committed at or before the change's own place in
//! WAL, and inside the transaction that alters it, by its own place.
//!
//! The rule is what a fanout does, from whatever position it replays. A native walsender does the same but where its cache
//! has an entry that an earlier commit made with a later snapshot: [`History::cache_may_decide`].

mod bound;
mod history;

use std::collections::HashMap;

use pg_proto::pgoutput::{Change, ColumnValue, Framing, Message, decode};
use pg_proto::{Lsn, Oid};
use tests::Session;
use tests::scale::{patience, pick};
use tests::sql::Endpoint;
use tests::subscriber::{StreamClient, Transaction, when_free};

use self::history::{By, Definition, History, PUBLICATIONS, Row, TABLES, WRITERS};
use super::selection_random::Random;
use super::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn the_rule_holds_on_version_15() {
    random_histories(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rule_holds_on_version_18() {
    random_histories(18).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rule_holds_for_versions_made_afterwards_15() {
    versions_made_afterwards(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rule_holds_for_versions_made_afterwards_18() {
    versions_made_afterwards(18).await;
}

async fn random_histories(major: u32) {
    for seed in seeds(major) {
        random_history(major, seed).await;
    }
}

async fn versions_made_afterwards(major: u32) {
    for seed in seeds(major) {
        afterwards(major, seed).await;
    }
}

fn seeds(major: u32) -> Vec<u64> {
    let seed = std::env::var("DECANT_SEED").ok();
    let seeds: Vec<u64> = match seed.and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..pick(1, 20)).map(|number| 5 + number).collect(),
    };
    eprintln!("definitions on version {major}: DECANT_SEED of {seeds:?}");
    seeds
}

/// Runs a history, and makes the same definitions as publications of Decant's own when all is over: each from the
/// position on where the source's counted.
async fn afterwards(major: u32, seed: u64) {
    let mut stage = stage(major).await;
    let fanout = stage.decant.fanout(0).endpoint();
    create_slots(std::slice::from_ref(&fanout)).await;
    let mut random = Random::new(seed);
    let mut history = History::of_lone_alterations();
    let mut sessions = Sessions::open(&stage).await;
    let mut made = Vec::new();
    let first = stage.source.flush_lsn().await;
    for _ in 0..pick(250, 600) {
        let (by, sql) = history.step(&mut random);
        sessions.run(by, &sql).await;
        if let Some((publication, arguments)) = history.altered_last() {
            made.push((stage.source.flush_lsn().await, publication, arguments));
        }
    }
    for (by, sql) in history.finish() {
        sessions.run(by, &sql).await;
    }
    stage.settle().await;
    let publish = |what: &str, publication: usize, from: Lsn, arguments: &[String]| {
        let (name, from) = (format!("o{publication}"), from.to_string());
        let mut all = vec!["publication", what, &name, "--from", &from];
        all.extend(arguments.iter().map(String::as_str));
        stage.decant.decctl_successfully(&all);
    };
    for publication in 0..PUBLICATIONS {
        let arguments = ["--table", "a"].map(str::to_owned);
        publish("create", publication, first, &arguments);
    }
    for (from, publication, arguments) in &made {
        publish("alter", *publication, *from, arguments);
    }
    let end = stage.settle().await;
    for publication in 0..PUBLICATIONS {
        let expected = history.by_the_rule(publication);
        let given = receive_of("o", &fanout, publication, Lsn::INVALID, end).await;
        assert_rows(&format!("o{publication}"), &given, &expected);
        for number in (0..given.len()).step_by(pick(4, 1)) {
            let from = given[number].0;
            let rest = receive_of("o", &fanout, publication, from, end).await;
            assert_eq!(rest, given[number + 1..], "o{publication} from {from}");
        }
    }
    eprintln!("{} versions", made.len());
    stage.decant.stop_decoder().await;
    stage.decant.decctl_successfully(&["verify"]);
}

/// Runs a history, and compares what a fanout and a walsender make of it with what they must.
async fn random_history(major: u32, seed: u64) {
    let mut stage = stage(major).await;
    let endpoints = [stage.source.endpoint(), stage.decant.fanout(0).endpoint()];
    create_slots(&endpoints).await;
    let mut random = Random::new(seed);
    let mut history = History::new();
    let mut sessions = Sessions::open(&stage).await;
    for _ in 0..pick(250, 600) {
        let (by, sql) = history.step(&mut random);
        sessions.run(by, &sql).await;
    }
    for (by, sql) in history.finish() {
        sessions.run(by, &sql).await;
    }
    let end = stage.settle().await;
    let mut apart = 0;
    for publication in 0..PUBLICATIONS {
        let [native, fanout] = &endpoints;
        let expected = history.by_the_rule(publication);
        let given = receive(fanout, publication, Lsn::INVALID, end).await;
        assert_rows(&format!("p{publication} at the fanout"), &given, &expected);
        let native = receive(native, publication, Lsn::INVALID, end).await;
        apart += assert_native(publication, &history, &native, &given);
        // From every commit on, the same.
        for number in (0..given.len()).step_by(pick(4, 1)) {
            let from = given[number].0;
            let rest = receive(fanout, publication, from, end).await;
            assert_eq!(rest, given[number + 1..], "p{publication} from {from}");
        }
    }
    eprintln!("{apart} rows that the source's cache decides otherwise");
    stage.decant.stop_decoder().await;
    stage.decant.decctl_successfully(&["verify"]);
}

async fn stage(major: u32) -> Stage {
    let mut sql = "create table filler (v text); create schema nothing;".to_owned();
    for table in TABLES {
        sql += &format!("create table {table} (id int primary key, n int, v text);");
    }
    for publication in 0..PUBLICATIONS {
        sql += &format!("create publication p{publication} {};", Definition::INITIAL);
    }
    let settings = [
        ("logical_decoding_work_mem", "64kB"),
        ("max_wal_senders", "20"),
    ];
    let mut stage = Stage::with_settings(major, &settings, 0, &sql).await;
    stage.decant.stop_decoder().await;
    stage.decant.set("log.segment_bytes", 1 << 20);
    stage.decant.start_decoder().await;
    stage.decant.start_fanout().await;
    stage.settle().await;
    stage
}

async fn create_slots(endpoints: &[Endpoint]) {
    for endpoint in endpoints {
        let mut session = Session::connect_for_replication(endpoint).await.unwrap();
        for publication in 0..PUBLICATIONS {
            let sql = format!(
                "CREATE_REPLICATION_SLOT s{publication} LOGICAL pgoutput NOEXPORT_SNAPSHOT"
            );
            session.run(&sql).await;
        }
    }
}

struct Sessions {
    writers: Vec<Session>,
    other: Session,
}

impl Sessions {
    async fn open(stage: &Stage) -> Self {
        let mut writers = Vec::new();
        for _ in 0..WRITERS {
            writers.push(stage.source.session().await);
        }
        Self {
            writers,
            other: stage.source.session().await,
        }
    }

    async fn run(&mut self, by: By, sql: &str) {
        let session = match by {
            By::Writer(number) => &mut self.writers[number],
            By::Other => &mut self.other,
        };
        session.run(sql).await;
    }
}

/// The rows of each transaction, with its end.
async fn receive(
    from: &Endpoint,
    publication: usize,
    start: Lsn,
    end: Lsn,
) -> Vec<(Lsn, Vec<Row>)> {
    receive_of("p", from, publication, start, end).await
}

/// The same of publications whose names begin with `prefix`.
async fn receive_of(
    prefix: &str,
    from: &Endpoint,
    publication: usize,
    start: Lsn,
    end: Lsn,
) -> Vec<(Lsn, Vec<Row>)> {
    let options = format!("proto_version '1', publication_names '{prefix}{publication}'");
    let slot = format!("s{publication}");
    let client = when_free(|| StreamClient::start(from, &slot, start, &options)).await;
    let mut client = client.unwrap_or_else(|error| panic!("{slot}: {error}"));
    let received = client.receive_until(end, patience()).await;
    let mut known = HashMap::new();
    let transactions = received.into_iter();
    let rows = transactions.map(|one| (one.end_lsn, rows(&one, &mut known)));
    rows.filter(|(_, rows)| !rows.is_empty()).collect()
}

fn rows(transaction: &Transaction, known: &mut HashMap<Oid, String>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (_, payload) in &transaction.messages {
        match decode(payload, Framing::Plain).unwrap() {
            Message::Relation(relation) => {
                let name = String::from_utf8_lossy(relation.name).into_owned();
                known.insert(relation.oid, name);
            }
            Message::Change(Change::Insert { relation, new, .. }) => {
                let Some(ColumnValue::Text(id)) = new.columns().next() else {
                    panic!("an id is text");
                };
                let id = std::str::from_utf8(id).unwrap().parse().unwrap();
                rows.push((known[&relation].clone(), id, new.column_count().into()));
            }
            _ => {}
        }
    }
    rows
}

fn assert_rows(what: &str, found: &[(Lsn, Vec<Row>)], expected: &[Vec<Row>]) {
    for ((end, found), expected) in found.iter().zip(expected) {
        assert_eq!(
            found, expected,
            "{what}, the transaction that ends at {end}"
        );
    }
    assert_eq!(
        found.len(),
        expected.len(),
        "{what}: number of transactions"
    );
}

/// The source gives the same but for the rows that its cache may decide; how many those are.
fn assert_native(
    publication: usize,
    history: &History,
    native: &[(Lsn, Vec<Row>)],
    fanout: &[(Lsn, Vec<Row>)],
) -> usize {
    let [native, fanout] = [native, fanout].map(|all| {
        let rows = all
            .iter()
            .flat_map(|(end, rows)| rows.iter().map(move |row| (*end, row)));
        rows.collect::<Vec<_>>()
    });
    let [only_native, only_fanout] =
        [(&native, &fanout), (&fanout, &native)].map(|(all, other)| {
            all.iter()
                .filter(|row| !other.contains(row))
                .collect::<Vec<_>>()
        });
    for (end, row) in only_native.iter().chain(&only_fanout) {
        assert!(
            history.cache_may_decide(publication, row.1),
            "p{publication}, the transaction that ends at {end}, {row:?}: only at the source: {}",
            only_native.contains(&&(*end, *row))
        );
    }
    let common = |all: &[(Lsn, &Row)], other: &[(Lsn, &Row)]| {
        let rows = all.iter().filter(|row| other.contains(row));
        rows.map(|(end, row)| (*end, (*row).clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        common(&native, &fanout),
        common(&fanout, &native),
        "p{publication}: the order"
    );
    only_native.len() + only_fanout.len()
}
