//! Prepared transactions over restarts of everything, for subscribers that want them at PREPARE and for those that do not.

use std::path::Path;

use pg_proto::Lsn;
use pg_proto::pgoutput::{Framing, Message, decode};
use tests::scale::patience;
use tests::subscriber::{PieceClient, PostgresSubscriber, Unit, when_free};
use tests::{Endpoint, Session};

use super::stage::Stage;

const TABLES: &str =
    "create table t (id int primary key, v text); create table other (id int primary key)";
const PLAIN: &str = "proto_version '3', publication_names 'everything'";
const TWO_PHASE: &str = "proto_version '3', publication_names 'everything', two_phase 'true'";

/// The messages' tags, unit by unit, without schema.
fn tags(units: &[Unit]) -> Vec<String> {
    let tag = |payload: &[u8]| char::from(payload[0]);
    let unit = |unit: &Unit| -> String { unit.iter().map(|piece| tag(&piece.payload)).collect() };
    units
        .iter()
        .map(|one| unit(one).replace(['R', 'Y'], ""))
        .collect()
}

fn end_of(unit: &Unit) -> Lsn {
    let end = &unit.last().unwrap().payload;
    match decode(end, Framing::Plain).unwrap() {
        Message::Prepare(prepare) => prepare.end_lsn,
        Message::Commit(commit) => commit.end_lsn,
        Message::CommitPrepared(end) => end.commit.end_lsn,
        other => panic!("{other:?}"),
    }
}

async fn create_slot(to: &Endpoint, slot: &str, option: &str) {
    let mut session = Session::connect_for_replication(to).await.unwrap();
    let sql =
        format!("CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput (SNAPSHOT 'nothing'{option})");
    session.run(&sql).await;
}

async fn read(to: &Endpoint, slot: &str, options: &str, end: Lsn) -> Vec<Unit> {
    let mut client = PieceClient::start(to, slot, Lsn::INVALID, options)
        .await
        .unwrap();
    client.receive_until(end, patience()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_transactions_outlive_the_decoder() {
    outlive(|_| {}).await;
}

/// Their files are durable only when their segment is finished. Before, the log stands for them when the machine goes down.
#[tokio::test(flavor = "multi_thread")]
async fn prepared_transactions_outlive_the_machine() {
    let lose = |folder: &Path| {
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        files.sort();
        for (number, path) in files.into_iter().enumerate() {
            if number % 2 == 0 {
                std::fs::remove_file(path).unwrap();
            } else {
                let file = std::fs::File::options().write(true).open(path).unwrap();
                let length = file.metadata().unwrap().len();
                file.set_len(length / 2).unwrap();
            }
        }
    };
    outlive(lose).await;
}

async fn outlive(lose: impl Fn(&Path)) {
    let settings = [("logical_decoding_work_mem", "64kB")];
    let mut stage = Stage::with_settings(15, &settings, 1, TABLES).await;
    let fanout = stage.decant.fanout(0).endpoint();
    create_slot(&fanout, "plain", "").await;
    create_slot(&fanout, "two_phase", ", TWO_PHASE").await;
    let mut session = stage.source.session().await;
    for step in [
        "begin; insert into t values (1, 'small'); prepare transaction 'small'",
        "begin; insert into t select g, repeat('large', 20) from generate_series(100, 5000) g; \
         savepoint a; insert into t values (9999, 'no'); rollback to a; prepare transaction 'large'",
        "begin; insert into t values (2, 'no'); prepare transaction 'given up'",
        "insert into other values (1)",
    ] {
        session.run(step).await;
    }
    stage.settle().await;
    let folder = stage.decant.log_directory().join("prepared");
    let files = || std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(files(), 3);
    stage.decant.kill_decoder();
    lose(&folder);
    session.run("insert into other values (2)").await;
    stage.decant.start_decoder().await;
    session.run("commit prepared 'large'").await;
    stage.settle().await;
    stage.decant.kill_decoder();
    lose(&folder);
    for step in ["rollback prepared 'given up'", "commit prepared 'small'"] {
        session.run(step).await;
    }
    stage.decant.start_decoder().await;
    let end = stage.settle().await;
    let plain = read(&fanout, "plain", PLAIN, end).await;
    let large = format!("B{}C", "I".repeat(4901));
    assert_eq!(tags(&plain), ["BIC", "BIC", large.as_str(), "BIC"]);
    let two_phase = read(&fanout, "two_phase", TWO_PHASE, end).await;
    let large = format!("b{}P", "I".repeat(4901));
    assert_eq!(
        tags(&two_phase),
        ["bIP", large.as_str(), "bIP", "BIC", "BIC", "K", "r", "K"]
    );
    assert_eq!(files(), 0, "what is decided leaves nothing behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepare_that_was_confirmed_does_not_come_again() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    let fanout = stage.decant.fanout(0).endpoint();
    create_slot(&fanout, "later", "").await;
    let mut session = stage.source.session().await;
    let step = "begin; insert into t values (1); prepare transaction 'before'";
    session.run(step).await;
    session.run("insert into other values (1)").await;
    let end = stage.settle().await;
    // Not one of two-phase commit yet.
    let mut client = PieceClient::start(&fanout, "later", Lsn::INVALID, PLAIN)
        .await
        .unwrap();
    let units = client.receive_until(end, patience()).await;
    assert_eq!(tags(&units), ["BIC"]);
    client.send_status(end_of(&units[0]), true).await;
    drop(client);
    // The option makes it one, from there on.
    let mut client = when_free(|| PieceClient::start(&fanout, "later", Lsn::INVALID, TWO_PHASE))
        .await
        .unwrap();
    let step = "begin; insert into t values (2); prepare transaction 'behind'";
    session.run(step).await;
    let end = stage.settle().await;
    let units = client.receive_until(end, patience()).await;
    assert_eq!(tags(&units), ["bIP"]);
    client.send_status(end_of(&units[0]), true).await;
    drop(client);
    session.run("commit prepared 'behind'").await;
    session.run("commit prepared 'before'").await;
    let end = stage.settle().await;
    let mut client = when_free(|| PieceClient::start(&fanout, "later", Lsn::INVALID, TWO_PHASE))
        .await
        .unwrap();
    let units = client.receive_until(end, patience()).await;
    assert_eq!(
        tags(&units),
        ["K", "bIP", "K"],
        "one was sent at its PREPARE, the other was prepared before"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_slot_without_it_goes_on_as_before() {
    let mut stage = Stage::new_without_two_phase(15, 1, TABLES).await;
    let fanout = stage.decant.fanout(0).endpoint();
    create_slot(&fanout, "s", ", TWO_PHASE").await;
    let mut session = stage.source.session().await;
    let step = "begin; insert into t values (1); prepare transaction 'x'";
    session.run(step).await;
    session.run("commit prepared 'x'").await;
    let end = stage.settle().await;
    let units = read(&fanout, "s", TWO_PHASE, end).await;
    assert_eq!(tags(&units), ["BIC"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_has_prepared_transactions_of_its_own() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    let fanout = stage.decant.fanout(0).endpoint();
    let subscriber = PostgresSubscriber::start_new(15).await;
    subscriber.cluster.sql(TABLES).await;
    subscriber
        .subscribe("s", &fanout, "everything", ", two_phase = true")
        .await;
    let mut session = stage.source.session().await;
    let step = "begin; insert into t values (1, 'x'); prepare transaction 'x'";
    session.run(step).await;
    let count = "select count(*)::text from pg_prepared_xacts";
    tests::wait_until(
        "the subscriber prepares",
        patience(),
        async || match subscriber.cluster.value(count).await.as_str() {
            "1" => Ok(()),
            other => Err(other.to_owned()),
        },
    )
    .await;
    stage.decant.kill_decoder();
    stage.decant.restart_fanout(0).await;
    stage.decant.start_decoder().await;
    session.run("commit prepared 'x'").await;
    subscriber
        .wait_for_contents(&stage.source, &["t"], patience())
        .await;
    assert_eq!(subscriber.cluster.value(count).await, "0");
}

/// With an initial copy the slot is one of two-phase commit only when all tables are copied: the worker asks for it then.
/// From version 18 on a subscription can give it up.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_with_an_initial_copy_becomes_one_of_two_phase() {
    let mut stage = Stage::new(18, 1, TABLES).await;
    stage.source.sql("insert into t values (0, 'copied')").await;
    stage.settle().await;
    let fanout = stage.decant.fanout(0).endpoint();
    let subscriber = PostgresSubscriber::start_new(18).await.cluster;
    subscriber.sql(TABLES).await;
    let sql = format!(
        "create subscription s connection '{}' publication everything with (two_phase = true)",
        fanout.conninfo()
    );
    subscriber.sql(&sql).await;
    let expect = async |what: &str, sql: &str, expected: &str| {
        tests::wait_until(what, patience(), async || {
            let seen = subscriber.value(sql).await;
            same(&seen, expected)
        })
        .await;
    };
    let state = "select subtwophasestate::text from pg_subscription";
    let prepared = "select count(*)::text from pg_prepared_xacts";
    let rows = "select count(*)::text from t";
    expect("two-phase commit is enabled", state, "e").await;
    let mut session = stage.source.session().await;
    let step = "begin; insert into t values (1, 'x'); prepare transaction 'x'";
    session.run(step).await;
    expect("the subscriber prepares", prepared, "1").await;
    session.run("commit prepared 'x'").await;
    expect("the subscriber commits", rows, "2").await;
    subscriber.sql("alter subscription s disable").await;
    let workers = "select count(*)::text from pg_stat_subscription where pid is not null";
    expect("the worker ends", workers, "0").await;
    subscriber
        .sql("alter subscription s set (two_phase = false)")
        .await;
    subscriber.sql("alter subscription s enable").await;
    let step = "begin; insert into t values (2, 'y'); prepare transaction 'y'";
    session.run(step).await;
    session.run("insert into t values (3, 'z')").await;
    expect("what is not prepared comes", rows, "3").await;
    assert_eq!(subscriber.value(prepared).await, "0");
    session.run("commit prepared 'y'").await;
    expect("the transaction comes when it commits", rows, "4").await;
}

fn same(seen: &str, expected: &str) -> Result<(), String> {
    if seen == expected {
        Ok(())
    } else {
        Err(seen.to_owned())
    }
}
