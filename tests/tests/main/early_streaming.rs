//! Large transactions on their way to subscribers before they have ended.

use pg_proto::pgoutput::{Framing, Message, decode, tag};
use pg_proto::{Lsn, Xid};
use tests::scale::patience;
use tests::subscriber::{PieceClient, PostgresSubscriber, Unit};
use tests::{Cluster, Endpoint, Session, wait_until};

use super::stage::{PUBLICATION, Stage};

const TABLES: &str =
    "create table t (id int primary key, v text); create table other (id int primary key)";
const SETTINGS: &[(&str, &str)] = &[("logical_decoding_work_mem", "64kB")];

const WHOLE: &str = "proto_version '1', publication_names 'everything'";
const PIECES: &str = "proto_version '2', publication_names 'everything', streaming 'on'";
const PARALLEL: &str = "proto_version '4', publication_names 'everything', streaming 'parallel'";

fn insert(from: u32, to: u32) -> String {
    format!("insert into t select g, md5(g::text) from generate_series({from}, {to}) g")
}

async fn create_slot(to: &Endpoint, slot: &str, option: &str) {
    let mut session = Session::connect_for_replication(to).await.unwrap();
    let sql =
        format!("CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput (SNAPSHOT 'nothing'{option})");
    session.run(&sql).await;
}

async fn start(to: &Endpoint, slot: &str, options: &str) -> PieceClient {
    create_slot(to, slot, "").await;
    PieceClient::start(to, slot, Lsn::INVALID, options)
        .await
        .unwrap()
}

/// Receives until this many messages of transactions that have not ended are here.
async fn receive_early(client: &mut PieceClient, count: u64) -> Vec<Unit> {
    let what = "rows come before the commit";
    let until = client.before_end + count;
    client
        .receive_while(what, patience(), |client| client.before_end < until)
        .await
}

/// Tags of the unit's messages, without schema, and their payloads.
fn essence(unit: &Unit) -> (String, Vec<&[u8]>) {
    let content = unit
        .iter()
        .filter(|piece| !matches!(piece.payload[0], tag::RELATION | tag::TYPE));
    let tags = content
        .clone()
        .map(|piece| char::from(piece.payload[0]).to_ascii_uppercase())
        .collect();
    let rows = content.filter(|piece| piece.payload[0] == tag::INSERT);
    (tags, rows.map(|piece| &*piece.payload).collect())
}

fn rows(unit: &Unit) -> usize {
    essence(unit).1.len()
}

/// A subscriber that applies what it gets, and is asked for its rows.
async fn subscriber(name: &str, major: u32, to: &Endpoint, streaming: &str) -> PostgresSubscriber {
    let subscriber = PostgresSubscriber::start_new(major).await;
    subscriber.cluster.sql(TABLES).await;
    let options = format!(", streaming = {streaming}");
    subscriber.subscribe(name, to, PUBLICATION, &options).await;
    subscriber
}

/// Waits until subscribers have a part of what has not ended.
async fn wait_until_sent(stage: &mut Stage, subscribers: u64) {
    let bytes = stage
        .decant
        .fanout(0)
        .metric("decant_fanout_early_bytes_total")
        .await;
    let fanout = stage.decant.fanout(0);
    wait_until("a part is sent", patience(), async || {
        let transactions = fanout.metric("decant_fanout_early_transactions").await;
        let sent = fanout.metric("decant_fanout_early_bytes_total").await;
        if transactions >= subscribers && sent + u64::from(transactions > 0) > bytes {
            Ok(())
        } else {
            Err(format!("{transactions} transactions, {sent} bytes"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_arrive_before_the_commit_at_those_who_ask() {
    let mut stage = Stage::with_settings(18, SETTINGS, 1, TABLES).await;
    let fanout = stage.decant.fanout(0).endpoint();
    let mut whole = start(&fanout, "whole", WHOLE).await;
    let mut pieces = start(&fanout, "pieces", PIECES).await;
    let mut parallel = start(&fanout, "parallel", PARALLEL).await;
    let mut session = stage.source.session().await;
    session.run("begin").await;
    session.run(&insert(1, 4000)).await;
    for client in [&mut pieces, &mut parallel] {
        assert!(receive_early(client, 1000).await.is_empty());
    }
    // Somebody who comes later gets it from its beginning.
    let mut late = start(&fanout, "late", PARALLEL).await;
    receive_early(&mut late, 1000).await;
    session.run("savepoint a").await;
    session.run(&insert(4001, 8000)).await;
    session.run("rollback to a").await;
    // Another one commits between.
    stage.source.sql("insert into other values (1)").await;
    session.run(&insert(8001, 12_000)).await;
    for client in [&mut pieces, &mut parallel, &mut late] {
        let what = "the subtransaction is rolled back";
        let between = client
            .receive_while(what, patience(), |client| {
                client.subtransaction_aborts.is_empty()
            })
            .await;
        assert!(between.len() <= 1);
        let told = client.subtransaction_aborts[0];
        assert!(
            told.is_none() || told.is_some_and(Lsn::is_valid),
            "{told:?}"
        );
    }
    assert!(pieces.subtransaction_aborts[0].is_none());
    assert!(parallel.subtransaction_aborts[0].is_some());
    session.run("commit").await;
    let end = stage.settle().await;
    let expected = whole.receive_until(end, patience()).await;
    assert_eq!(whole.before_end, 0);
    let large = expected.last().unwrap();
    assert_eq!(rows(large), 8000);
    for mut client in [pieces, parallel, late] {
        let units = client.receive_until(end, patience()).await;
        let seen = units.last().unwrap();
        assert_eq!(essence(seen).1, essence(large).1);
        assert_eq!(essence(seen).0, format!("{}C", "I".repeat(8000)));
        assert_eq!(client.aborts, 0);
    }
    assert_eq!(
        stage
            .decant
            .fanout(0)
            .metric("decant_fanout_early_transactions")
            .await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_rolled_back_is_taken_back() {
    let mut stage = Stage::with_settings(15, SETTINGS, 1, TABLES).await;
    let fanout = stage.decant.fanout(0).endpoint();
    let mut client = start(&fanout, "pieces", PIECES).await;
    let mut session = stage.source.session().await;
    session.run("begin").await;
    session.run(&insert(1, 4000)).await;
    receive_early(&mut client, 1000).await;
    session.run("rollback").await;
    session.run("insert into other values (1)").await;
    let end = stage.settle().await;
    let mut units = client.receive_until(end, patience()).await;
    let what = "it is taken back";
    units.extend(
        client
            .receive_while(what, patience(), |client| client.aborts == 0)
            .await,
    );
    let seen: Vec<String> = units.iter().map(|unit| essence(unit).0).collect();
    assert_eq!(seen, ["BIC"]);
    assert_eq!(client.aborts, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_at_once_come_interleaved_and_end_in_commit_order() {
    let mut stage = Stage::with_settings(16, SETTINGS, 1, TABLES).await;
    let fanout = stage.decant.fanout(0).endpoint();
    let mut client = start(&fanout, "parallel", PARALLEL).await;
    let mut one = stage.source.session().await;
    let mut two = stage.source.session().await;
    one.run("begin").await;
    two.run("begin").await;
    for part in 0..3 {
        let from = part * 10_000;
        one.run(&insert(from + 1, from + 3000)).await;
        two.run(&insert(from + 5001, from + 8000)).await;
        stage
            .source
            .sql(&format!("insert into other values ({part})"))
            .await;
        receive_early(&mut client, 1000).await;
    }
    two.run("commit").await;
    stage.source.sql("insert into other values (100)").await;
    one.run("commit").await;
    let end = stage.settle().await;
    let units = client.receive_until(end, patience()).await;
    let large: Vec<&Unit> = units.iter().filter(|unit| rows(unit) > 1).collect();
    let counts: Vec<usize> = large.iter().map(|unit| rows(unit)).collect();
    assert_eq!(counts, [9000, 9000]);
    let first = |unit: &Unit| -> Xid { unit.iter().find_map(|piece| piece.xid).unwrap() };
    assert_ne!(first(large[0]), first(large[1]));
    let commits: Vec<Lsn> = large.iter().map(|unit| commit_of(unit)).collect();
    assert!(commits.is_sorted());
    assert_eq!(rows(units.last().unwrap()), 9000);
}

fn commit_of(unit: &Unit) -> Lsn {
    match decode(&unit.last().unwrap().payload, Framing::Plain).unwrap() {
        Message::StreamCommit(stream) => stream.commit.commit_lsn,
        other => panic!("{other:?}"),
    }
}

/// The decoder reads the transaction again from its start. What its subscribers have of it is taken back first.
#[tokio::test(flavor = "multi_thread")]
async fn the_decoder_dies_while_it_is_open() {
    let mut stage = Stage::with_settings(15, SETTINGS, 1, TABLES).await;
    let fanout = stage.decant.fanout(0).endpoint();
    let mut client = start(&fanout, "pieces", PIECES).await;
    let subscriber = subscriber("sub", 15, &fanout, "on").await;
    let mut session = stage.source.session().await;
    session.run("begin").await;
    session.run(&insert(1, 4000)).await;
    receive_early(&mut client, 1000).await;
    wait_until_sent(&mut stage, 2).await;
    for round in 1..=2 {
        stage.decant.kill_decoder();
        session
            .run(&insert(round * 10_000, round * 10_000 + 2000))
            .await;
        stage.decant.start_decoder().await;
        let what = "what came before the crash is taken back";
        let units = client
            .receive_while(what, patience(), |client| client.aborts < u64::from(round))
            .await;
        assert!(units.is_empty());
        receive_early(&mut client, 1000).await;
    }
    session.run("commit").await;
    let end = stage.settle().await;
    let units = client.receive_until(end, patience()).await;
    let seen: Vec<usize> = units.iter().map(rows).collect();
    assert_eq!(seen, [4000 + 2 * 2001]);
    subscriber
        .wait_for_contents(&stage.source, &["t", "other"], patience())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fanout_dies_while_it_is_open() {
    let mut stage = Stage::with_settings(16, SETTINGS, 1, TABLES).await;
    let fanout = stage.decant.fanout(0).endpoint();
    let subscriber = subscriber("sub", 16, &fanout, "parallel").await;
    let mut session = stage.source.session().await;
    session.run("begin").await;
    session.run(&insert(1, 4000)).await;
    wait_until_sent(&mut stage, 1).await;
    stage.decant.kill_fanout(0);
    session.run(&insert(10_000, 14_000)).await;
    stage.source.sql("insert into other values (1)").await;
    stage.decant.restart_fanout(0).await;
    wait_until_sent(&mut stage, 1).await;
    session.run("commit").await;
    subscriber
        .wait_for_contents(&stage.source, &["t", "other"], patience())
        .await;
}

/// Subtransactions rolled back and not, two transactions at once, one of them given up.
async fn apply_through(source: u32, subscribers: &[(u32, &str)]) {
    let mut stage = Stage::with_settings(source, SETTINGS, 1, TABLES).await;
    let fanout = stage.decant.fanout(0).endpoint();
    let mut all = Vec::new();
    for (major, streaming) in subscribers {
        let one = subscriber(&format!("sub_{major}"), *major, &fanout, streaming).await;
        // At the source it comes while workers of the subscriber hold their locks.
        one.cluster.sql("alter table t add w int").await;
        all.push(one);
    }
    let mut one = stage.source.session().await;
    let mut two = stage.source.session().await;
    one.run("begin").await;
    one.run(&insert(1, 3000)).await;
    two.run("begin").await;
    two.run(&insert(100_001, 103_000)).await;
    wait_until_sent(&mut stage, all.len() as u64).await;
    one.run("savepoint a").await;
    one.run(&insert(3001, 6000)).await;
    one.run("savepoint b").await;
    one.run(&insert(6001, 9000)).await;
    one.run("rollback to a").await;
    stage.source.sql("insert into other values (1)").await;
    one.run(&insert(3001, 3500)).await;
    one.run("savepoint c").await;
    one.run("update t set v = 'changed' where id % 7 = 0").await;
    one.run("release c").await;
    one.run(&insert(10_001, 12_000)).await;
    two.run("rollback").await;
    one.run("alter table t add w int").await;
    one.run("insert into t select g, 'with w', g from generate_series(20001, 22000) g")
        .await;
    one.run("commit").await;
    stage
        .source
        .sql("insert into t values (-1, 'after', 1)")
        .await;
    for subscriber in &all {
        subscriber
            .wait_for_contents(&stage.source, &["t", "other"], patience())
            .await;
        assert_no_errors(&subscriber.cluster);
    }
}

/// A subscriber that stops with an error tries again, and would hide what was wrong.
fn assert_no_errors(subscriber: &Cluster) {
    let log = subscriber.log_text();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR:")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_15_spools_what_it_gets() {
    apply_through(15, &[(15, "on")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_16_and_18_apply_in_parallel() {
    apply_through(18, &[(18, "parallel"), (16, "parallel"), (17, "on")]).await;
}

/// Large transactions that are prepared: for those who want them at PREPARE, and for those who do not.
#[tokio::test(flavor = "multi_thread")]
async fn prepared_ones_end_at_prepare_or_with_their_commit() {
    let mut stage = Stage::with_settings(17, SETTINGS, 1, TABLES).await;
    let fanout = stage.decant.fanout(0).endpoint();
    let mut plain = start(&fanout, "plain", PARALLEL).await;
    create_slot(&fanout, "two_phase", ", TWO_PHASE").await;
    let options = format!("{PARALLEL}, two_phase 'true'");
    let mut two_phase = PieceClient::start(&fanout, "two_phase", Lsn::INVALID, &options)
        .await
        .unwrap();
    let mut session = stage.source.session().await;
    for (gid, from, decision) in [("yes", 1, "commit"), ("no", 10_001, "rollback")] {
        session.run("begin").await;
        session.run(&insert(from, from + 2999)).await;
        for client in [&mut plain, &mut two_phase] {
            assert!(receive_early(client, 1000).await.is_empty());
        }
        session.run(&format!("prepare transaction '{gid}'")).await;
        session
            .run(&format!("insert into other values ({from})"))
            .await;
        let prepared = stage.settle().await;
        let seen = tags(&plain.receive_until(prepared, patience()).await);
        assert_eq!(seen, ["BIC"], "{gid}");
        let seen = tags(&two_phase.receive_until(prepared, patience()).await);
        assert_eq!(seen, [format!("{}p", "I".repeat(3000)), "BIC".to_owned()]);
        session.run(&format!("{decision} prepared '{gid}'")).await;
        let end = stage.settle().await;
        let at_plain = tags(&plain.receive_until(end, patience()).await);
        let at_two_phase = tags(&two_phase.receive_until(end, patience()).await);
        if decision == "commit" {
            assert_eq!(at_plain, [format!("{}c", "I".repeat(3000))]);
            assert_eq!(at_two_phase, ["K"]);
        } else {
            let what = "it is taken back";
            plain
                .receive_while(what, patience(), |client| client.aborts == 0)
                .await;
            assert!(at_plain.is_empty());
            assert_eq!(at_two_phase, ["r"]);
        }
    }
    assert_eq!((plain.aborts, two_phase.aborts), (1, 0));
}

fn tags(units: &[Unit]) -> Vec<String> {
    let tags = |unit: &Unit| -> String {
        let tags = unit.iter().map(|piece| char::from(piece.payload[0]));
        tags.filter(|tag| !matches!(tag, 'R' | 'Y')).collect()
    };
    units.iter().map(tags).collect()
}

/// Who may not have a row, or the table, does not get it earlier either.
#[tokio::test(flavor = "multi_thread")]
async fn publications_count_also_for_what_has_not_ended() {
    let mut stage = Stage::with_settings(15, SETTINGS, 1, TABLES).await;
    stage
        .source
        .sql("create publication even for table t (id) where (id % 2 = 0)")
        .await;
    stage.settle().await;
    let fanout = stage.decant.fanout(0).endpoint();
    let options = "proto_version '2', publication_names 'even', streaming 'on'";
    let mut client = start(&fanout, "even", options).await;
    let mut session = stage.source.session().await;
    session.run("begin").await;
    session.run(&insert(1, 4000)).await;
    session
        .run("insert into other select generate_series(1, 4000)")
        .await;
    receive_early(&mut client, 500).await;
    // In force for this transaction at once, for others when it commits.
    session.run("alter publication even set table t").await;
    session.run(&insert(4001, 6000)).await;
    session.run("commit").await;
    let end = stage.settle().await;
    let units = client.receive_until(end, patience()).await;
    assert_eq!(units.len(), 1);
    let unit = &units[0];
    assert_eq!(rows(unit), 2000 + 2000);
    let columns = |payload: &[u8]| u16::from_be_bytes([payload[6], payload[7]]);
    let widths: Vec<u16> = essence(unit).1.into_iter().map(columns).collect();
    assert!(widths[..2000].iter().all(|width| *width == 1));
    assert!(widths[2000..].iter().all(|width| *width == 2));
}

/// It commits all the same, and nothing that was sent of it counts.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_nothing_left_ends_as_at_the_source() {
    for major in [15, 18] {
        let tables = format!("{TABLES}; create publication few for table other");
        let mut stage = Stage::with_settings(major, SETTINGS, 1, &tables).await;
        let fanout = stage.decant.fanout(0).endpoint();
        stage.wait_for_publication("few").await;
        let source = stage.source.endpoint();
        let none = PIECES.replace("everything", "few");
        let mut all = Vec::new();
        for endpoint in [&source, &fanout] {
            let pieces = start(endpoint, "pieces", PIECES).await;
            all.push((pieces, start(endpoint, "none", &none).await));
        }
        let mut session = stage.source.session().await;
        for undone in [&["a"][..], &["a", "b"]] {
            session.run("begin").await;
            for name in undone {
                session.run(&format!("savepoint {name}")).await;
                session.run(&insert(1, 4000)).await;
                for (pieces, _) in &mut all {
                    assert!(receive_early(pieces, 1000).await.is_empty());
                }
                session.run(&format!("rollback to {name}")).await;
            }
            session.run("commit").await;
        }
        session.run("insert into other values (1)").await;
        let end = stage.settle().await;
        for (mut pieces, mut none) in all {
            let seen = tags(&pieces.receive_until(end, patience()).await);
            assert_eq!(seen, ["c", "c", "BIC"], "version {major}");
            assert_eq!(pieces.aborts, 0, "version {major}");
            // Begun although nothing of it is published.
            let seen = tags(&none.receive_until(end, patience()).await);
            assert_eq!(seen, ["c", "c", "BIC"], "version {major}");
        }
    }
}
