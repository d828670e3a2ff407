//! A slot's snapshot fits its start exactly: what the snapshot shows is what commits before the consistent point, no more
//! and no less. Each row here is written by a transaction of its own, so the stream tells which rows these are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pg_proto::Lsn;
use pg_proto::pgoutput::{Change, ColumnValue, Framing, Message, decode};
use tests::scale::{patience, pick};
use tests::sql::{Endpoint, Row};
use tests::subscriber::StreamClient;
use tests::{Cluster, Session, wait_until};
use tokio::task::JoinHandle;

use super::stage::Stage;

const TABLE: &str = "
    create table entries (id int primary key, writer text);
    create table bulk (id int, v text, w int)";
/// Transactions with more than this are decoded before they commit.
const SETTINGS: [(&str, &str); 1] = [("logical_decoding_work_mem", "64kB")];
const OPTIONS: &str = "proto_version '1', publication_names 'everything'";

/// Transactions of all kinds, one row each, in a table that says who wrote it. The last two are rare.
const KINDS: [&str; 7] = [
    "insert into entries values ($id, 'plain')",
    "set synchronous_commit = off; insert into entries values ($id, 'asynchronous'); set synchronous_commit = on",
    "begin; savepoint a; insert into entries values ($id, 'subtransaction'); release a; commit",
    "begin; select pg_logical_emit_message(true, 'test', 'x'); insert into entries values ($id, 'message'); commit",
    "begin; insert into entries values (-$id, 'rolled back'); rollback; create temp table if not exists t (x int); insert into t values (1); insert into entries values ($id, 'after others')",
    "begin; insert into entries values ($id, 'prepared'); prepare transaction 'p$id'; commit prepared 'p$id'",
    "begin; insert into bulk select g, 'x', 0 from generate_series(1, 1000) g; insert into entries values ($id, 'large'); commit",
];

/// Writers that go on until they are stopped.
struct Writers {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Writers {
    async fn start(source: &Cluster, count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for writer in 0..count {
            let mut session = source.session().await;
            let stopped = Arc::clone(&stop);
            tasks.push(tokio::spawn(async move {
                let mut number = 0;
                while !stopped.load(Ordering::Relaxed) {
                    let id = 1 + writer + number * count;
                    // Prepared ones need a file each, and large ones are read by every stream: they are rare.
                    let rare = if number % 10 == 0 { 0 } else { 2 };
                    let kinds = KINDS.len() - rare;
                    let kind = KINDS[(writer + number) % kinds];
                    for statement in kind.replace("$id", &id.to_string()).split("; ") {
                        session.run(statement).await;
                    }
                    number += 1;
                }
            }));
        }
        Self { stop, tasks }
    }

    async fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

/// What one snapshot showed.
struct Seen {
    slot: String,
    consistent_point: Lsn,
    ids: BTreeSet<i64>,
}

fn only_row(rows: &[Row]) -> Vec<String> {
    let [row] = rows else {
        panic!("one row expected: {rows:?}")
    };
    row.iter()
        .map(|value| value.clone().unwrap_or_default())
        .collect()
}

fn ids(rows: &[Row]) -> BTreeSet<i64> {
    let ids = rows.iter().map(|row| row[0].as_ref().unwrap());
    ids.map(|id| id.parse().unwrap()).collect()
}

/// Creates a slot, in a transaction if `begin` says so. While the decoder is away there are none; whoever did not hear
/// whether there is one now takes another name.
async fn create(session: &mut Session, begin: &str, slot: &str, options: &str) -> Vec<String> {
    let started = Instant::now();
    let mut tries = 0;
    loop {
        tries += 1;
        let command = format!("CREATE_REPLICATION_SLOT {slot}_{tries} LOGICAL pgoutput {options}");
        session.run(begin).await;
        match session.try_run(&command).await {
            Err(error) if error.code == "57P03" && started.elapsed() < patience() => {
                if !begin.is_empty() {
                    session.run("ROLLBACK").await;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            created => return only_row(&created.unwrap_or_else(|error| panic!("{error}"))),
        }
    }
}

/// A slot whose snapshot is exported, and what another, plain connection sees that imports it.
async fn exported(to: &Endpoint, slot: &str) -> Seen {
    let mut replication = Session::connect_for_replication(to).await.unwrap();
    let created = create(&mut replication, "", slot, "").await;
    let mut plain = Session::connect(to).await.unwrap();
    plain.run("BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    plain
        .run(&format!("SET TRANSACTION SNAPSHOT '{}'", created[2]))
        .await;
    let rows = plain.run("select id from entries").await;
    plain.run("COMMIT").await;
    Seen {
        slot: created[0].clone(),
        consistent_point: created[1].parse().unwrap(),
        ids: ids(&rows),
    }
}

/// A slot whose snapshot is used by the transaction that creates it.
async fn used(to: &Endpoint, slot: &str) -> Seen {
    let mut session = Session::connect_for_replication(to).await.unwrap();
    let begin = "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ";
    let created = create(&mut session, begin, slot, "USE_SNAPSHOT").await;
    assert_eq!(created[2], "", "nothing is exported");
    let rows = session.run("select id from entries").await;
    session.run("COMMIT").await;
    Seen {
        slot: created[0].clone(),
        consistent_point: created[1].parse().unwrap(),
        ids: ids(&rows),
    }
}

/// Commit positions of the rows of a stream.
async fn commits(to: &Endpoint, slot: &str, from: Lsn, end: Lsn) -> BTreeMap<i64, Lsn> {
    let mut client = StreamClient::start(to, slot, from, OPTIONS).await.unwrap();
    let mut commits = BTreeMap::new();
    for transaction in client.receive_until(end, patience()).await {
        for (_, payload) in &transaction.messages {
            if let Message::Change(Change::Insert { new, .. }) =
                decode(payload, Framing::Plain).unwrap()
                && new.column_count() == 2
                && let Some(ColumnValue::Text(id)) = new.columns().next()
            {
                let id = std::str::from_utf8(id).unwrap().parse().unwrap();
                let before = commits.insert(id, transaction.commit_lsn);
                assert_eq!(before, None, "row {id} comes twice");
            }
        }
    }
    commits
}

/// Every snapshot shows exactly the rows that commit before its slot's start, and the slot sends exactly the others.
async fn check(stage: &mut Stage, first: &str, all: &[Seen]) {
    let end = stage.settle().await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let commits_of_all = commits(&endpoint, first, Lsn::INVALID, end).await;
    for seen in all {
        let expected: BTreeSet<i64> = commits_of_all
            .iter()
            .filter(|(_, lsn)| **lsn < seen.consistent_point)
            .map(|(id, _)| *id)
            .collect();
        let lost: Vec<_> = expected.difference(&seen.ids).collect();
        let doubled: Vec<_> = seen.ids.difference(&expected).collect();
        assert!(
            lost.is_empty() && doubled.is_empty(),
            "{} at {}: lost {lost:?}, doubled {doubled:?}",
            seen.slot,
            seen.consistent_point
        );
    }
    // Each stream is read to its end: of many, some.
    for seen in all.iter().step_by(all.len() / 30 + 1) {
        let sent = commits(&endpoint, &seen.slot, seen.consistent_point, end).await;
        let both = seen.ids.len() + sent.len();
        assert_eq!(both, commits_of_all.len(), "{}", seen.slot);
    }
    assert_eq!(
        stage.source.value("select count(*) from entries").await,
        commits_of_all.len().to_string()
    );
}

/// A slot before everything, to know all commits afterwards.
async fn first_slot(stage: &mut Stage) -> Endpoint {
    let endpoint = stage.decant.fanout(0).endpoint();
    let mut session = Session::connect_for_replication(&endpoint).await.unwrap();
    session
        .run("CREATE_REPLICATION_SLOT first LOGICAL pgoutput NOEXPORT_SNAPSHOT")
        .await;
    endpoint
}

/// Takes snapshots, three at a time, while `meanwhile` runs.
async fn take_many(
    stage: &mut Stage,
    each: usize,
    mut meanwhile: impl AsyncFnMut(&mut Stage),
) -> Vec<Seen> {
    let endpoint = first_slot(stage).await;
    let writers = Writers::start(&stage.source, 9).await;
    let mut takers = Vec::new();
    for taker in 0..3 {
        let to = endpoint.clone();
        takers.push(tokio::spawn(async move {
            let mut seen = Vec::new();
            for number in 0..each {
                let slot = format!("s_{taker}_{number}");
                seen.push(if number % 2 == 0 {
                    exported(&to, &slot).await
                } else {
                    used(&to, &slot).await
                });
            }
            seen
        }));
    }
    meanwhile(stage).await;
    let mut all = Vec::new();
    for taker in takers {
        all.extend(taker.await.unwrap());
    }
    writers.finish().await;
    all
}

async fn print_how(stage: &mut Stage) -> u64 {
    let fanout = stage.decant.fanout(0);
    let by_cut = fanout
        .metric("decant_fanout_snapshots_total{method=\"cut\"}")
        .await;
    let by_slot = fanout
        .metric("decant_fanout_snapshots_total{method=\"slot\"}")
        .await;
    let tries = fanout.metric("decant_fanout_snapshot_tries_total").await;
    println!("{by_cut} snapshots by a cut of {tries} tried, {by_slot} by a slot");
    by_cut
}

#[tokio::test(flavor = "multi_thread")]
async fn fit_their_slots_under_load() {
    let mut stage = Stage::with_settings(15, &SETTINGS, 1, TABLE).await;
    let all = take_many(&mut stage, pick(10, 200), async |_| {}).await;
    check(&mut stage, "first", &all).await;
    assert!(print_how(&mut stage).await > 0, "the log gives cuts");
}

#[tokio::test(flavor = "multi_thread")]
async fn fit_their_slots_if_the_source_makes_them() {
    let mut stage = Stage::with_fanout_settings(18, &[("fanout.snapshot_tries", "0")], TABLE).await;
    let all = take_many(&mut stage, pick(2, 50), async |_| {}).await;
    check(&mut stage, "first", &all).await;
    assert_eq!(print_how(&mut stage).await, 0);
    assert_eq!(
        stage.source.slot_count().await,
        1,
        "temporary slots are gone"
    );
}

/// The log has the lower halves of transaction ids only.
#[tokio::test(flavor = "multi_thread")]
async fn fit_their_slots_where_transaction_ids_wrap_around() {
    let mut source = Cluster::start_new(15).await;
    source.move_near_wraparound().await;
    source.sql(TABLE).await;
    let epoch = "select pg_current_xact_id()::text::numeric > 4294967296";
    let mut stage = Stage::on(source, 1).await;
    assert_eq!(stage.source.value(epoch).await, "f");
    let all = take_many(&mut stage, pick(10, 50), async |_| {}).await;
    assert_eq!(stage.source.value(epoch).await, "t", "too few transactions");
    check(&mut stage, "first", &all).await;
    assert!(print_how(&mut stage).await > 0, "the log gives cuts");
}

/// Nothing makes the source tell where it is, and what was committed last need not be flushed there.
#[tokio::test(flavor = "multi_thread")]
async fn fit_their_slots_if_the_source_is_idle() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let endpoint = first_slot(&mut stage).await;
    let mut source = stage.source.session().await;
    source.run("set synchronous_commit = off").await;
    let started = Instant::now();
    let mut all = Vec::new();
    for id in 1..=6 {
        let insert = format!("insert into entries values ({id}, 'asynchronous')");
        source.run(&insert).await;
        all.push(used(&endpoint, &format!("idle_{id}")).await);
        all.push(exported(&endpoint, &format!("still_{id}")).await);
    }
    println!("{} ms for each", started.elapsed().as_millis() / 12);
    check(&mut stage, "first", &all).await;
    assert_eq!(print_how(&mut stage).await, 12, "no slot is needed");
}

/// What is written and not fsynced is served; the decoder is killed, and the log may go back.
#[tokio::test(flavor = "multi_thread")]
async fn fit_their_slots_while_the_decoder_is_killed() {
    let settings = [("fanout.serve", "written")];
    let mut stage = Stage::with_fanout_settings(18, &settings, TABLE).await;
    let all = take_many(&mut stage, pick(8, 100), async |stage| {
        for _ in 0..pick(2, 10) {
            tokio::time::sleep(Duration::from_millis(300)).await;
            stage.decant.kill_decoder();
            stage.decant.start_decoder().await;
        }
    })
    .await;
    check(&mut stage, "first", &all).await;
    print_how(&mut stage).await;
}

/// A transaction that waits for its synchronous standby has committed in the WAL, is decoded and even delivered, and nobody
/// sees it; later ones that do not wait are seen. No snapshot fits then, however long one looks back.
#[tokio::test(flavor = "multi_thread")]
async fn wait_for_a_commit_that_hangs() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let endpoint = first_slot(&mut stage).await;
    let mut seen = vec![used(&endpoint, "before").await];
    let mut source = stage.source.session().await;
    source
        .run("alter system set synchronous_standby_names = 'nobody'")
        .await;
    source.run("select pg_reload_conf()").await;
    let mut hanging = stage.source.session().await;
    let hangs = tokio::spawn(async move {
        hanging.run("insert into entries values (1, 'hangs')").await;
    });
    wait_until("a commit waits for its standby", patience(), async || {
        let sql = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
        match stage.source.value(sql).await.as_str() {
            "1" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await;
    source.run("set synchronous_commit = local").await;
    for id in 2..50 {
        let insert = format!("insert into entries values ({id}, 'local')");
        source.run(&insert).await;
    }
    let taking = {
        let to = endpoint.clone();
        tokio::spawn(async move { exported(&to, "meanwhile").await })
    };
    tokio::time::sleep(Duration::from_millis(pick(1_500, 10_000))).await;
    assert!(!taking.is_finished(), "no snapshot fits while it hangs");
    assert!(!hangs.is_finished());
    source
        .run("alter system reset synchronous_standby_names")
        .await;
    source.run("select pg_reload_conf()").await;
    hangs.await.unwrap();
    seen.push(taking.await.unwrap());
    assert!(seen[1].ids.contains(&1));
    check(&mut stage, "first", &seen).await;
}
