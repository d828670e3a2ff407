//! Transactions that are larger than any memory limit: committed, aborted, aborted in part.

use tests::Cluster;
use tests::decant::Decant;
use tests::scale::{patience, pick};
use tests::subscriber::{GrpcSubscriber, Keep, PostgresSubscriber};
use tests::wait_until;
use tests::workload::bytes_in;

use super::stage::{PUBLICATION, Stage};

/// What a program may have resident at most.
const MEMORY_LIMIT: u64 = 256 << 20;

const TABLE: &str = "create table large (id int primary key, v text)";

fn rows() -> u64 {
    pick(200_000, 5_000_000)
}

async fn stage() -> Stage {
    // The source streams what is open instead of keeping it until the commit.
    let settings = [
        ("logical_decoding_work_mem", "1MB"),
        ("max_wal_size", "4GB"),
    ];
    Stage::with_settings(15, &settings, 1, TABLE).await
}

fn insert(from: u64, to: u64) -> String {
    format!("insert into large select g, md5(g::text) from generate_series({from}, {to}) g")
}

async fn changes_in_log(decant: &Decant) -> u64 {
    decant.status().await.log.unwrap_or_default().changes
}

fn assert_memory(decant: &mut Decant) {
    let decoder = decant.decoder().memory();
    let fanout = decant.fanout(0).process().memory();
    eprintln!("memory: decoder {decoder:?}, fanout {fanout:?}");
    assert!(decoder.peak < MEMORY_LIMIT, "the decoder: {decoder:?}");
    assert!(fanout.peak < MEMORY_LIMIT, "the fanout: {fanout:?}");
}

async fn assert_counts(source: &Cluster, subscriber: &PostgresSubscriber, grpc: &GrpcSubscriber) {
    subscriber
        .wait_for_contents(source, &["large"], patience())
        .await;
    let end = source.flush_lsn().await;
    grpc.wait_for(end, patience()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_it_arrives_in_bounded_memory() {
    let mut stage = stage().await;
    let subscriber = PostgresSubscriber::start_new(15).await;
    subscriber.cluster.sql(TABLE).await;
    let endpoint = stage.decant.fanout(0).endpoint();
    subscriber
        .subscribe("sub", &endpoint, PUBLICATION, "")
        .await;
    // One that gets it before the commit, whatever it is doing with it.
    let early = PostgresSubscriber::start_new(15).await;
    early.cluster.sql(TABLE).await;
    early
        .subscribe("early", &endpoint, PUBLICATION, ", streaming = on")
        .await;
    let grpc = stage.grpc_subscriber(0, Keep::Counts);

    let mut session = stage.source.session().await;
    session.run("begin").await;
    session.run(&insert(1, rows())).await;
    let fanout = stage.decant.fanout(0);
    wait_until(
        "it comes before its commit",
        patience(),
        async || match fanout.metric("decant_fanout_early_bytes_total").await {
            0 => Err("nothing is sent".to_owned()),
            _ => Ok(()),
        },
    )
    .await;
    session.run("commit").await;
    assert_counts(&stage.source, &subscriber, &grpc).await;
    early
        .wait_for_contents(&stage.source, &["large"], patience())
        .await;
    grpc.look(|received| {
        assert_eq!(received.changes, rows());
        assert_eq!(received.transactions.len(), 1);
    });
    assert_memory(&mut stage.decant);
    let staging = stage.decant.log_directory().join("staging");
    assert_eq!(bytes_in(&staging), 0, "what was staged is in the log now");
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_it_leaves_nothing_in_the_log() {
    let mut stage = stage().await;
    let before = changes_in_log(&stage.decant).await;
    let insert = insert(1, rows());
    stage
        .source
        .sql(&format!("begin; {insert}; rollback"))
        .await;
    stage
        .source
        .sql("insert into large values (0, 'after')")
        .await;
    stage.settle().await;
    assert_eq!(changes_in_log(&stage.decant).await, before + 1);

    wait_until("nothing is staged", patience(), async || {
        let log = stage.decant.status().await.log.unwrap_or_default();
        tests::expect::equal(&(log.staged_transactions, log.staged_bytes), &(0, 0))
    })
    .await;
    let staging = stage.decant.log_directory().join("staging");
    assert_eq!(bytes_in(&staging), 0);
    assert_memory(&mut stage.decant);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_subtransaction_rolled_back_is_not_delivered() {
    let mut stage = stage().await;
    let grpc = stage.grpc_subscriber(0, Keep::Rows);
    let part = pick(30_000, 500_000);
    let mut session = stage.source.session().await;
    session.run("begin").await;
    session.run(&insert(1, part)).await;
    session.run("savepoint one").await;
    session.run(&insert(part + 1, 2 * part)).await;
    session.run("rollback to one").await;
    session.run(&insert(2 * part + 1, 3 * part)).await;
    // Other transactions commit while it is open, before and after it in commit order.
    stage
        .source
        .sql("insert into large values (-1, 'between')")
        .await;
    session.run("delete from large where id % 10 = 0").await;
    session.run("commit").await;
    stage
        .source
        .sql("insert into large values (-2, 'after')")
        .await;

    let end = stage.settle().await;
    grpc.wait_for(end, patience()).await;
    grpc.assert_contents(&stage.source, &["large"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_decoder_dies_while_it_is_open() {
    let mut stage = stage().await;
    let grpc = stage.grpc_subscriber(0, Keep::Rows);
    let mut session = stage.source.session().await;
    session.run("begin").await;
    session.run(&insert(1, 30_000)).await;
    wait_until("it is staged", patience(), async || {
        let log = stage.decant.status().await.log.unwrap_or_default();
        if log.staged_bytes > 0 {
            Ok(())
        } else {
            Err("nothing staged".to_owned())
        }
    })
    .await;
    stage.decant.kill_decoder();
    session.run(&insert(30_001, 40_000)).await;
    stage.decant.start_decoder().await;
    session.run(&insert(40_001, 50_000)).await;
    session.run("commit").await;

    let end = stage.settle().await;
    grpc.wait_for(end, patience()).await;
    grpc.assert_contents(&stage.source, &["large"]).await;
    grpc.look(|received| assert_eq!(received.changes, 50_000));
}
