//! From the source to both kinds of subscriber, with one slot at the source.

use tests::scale::{patience, pick};
use tests::subscriber::Keep;
use tests::workload::{PGBENCH_TABLES, Pgbench, fill_pgbench_tables};

use super::stage::{SlotWatch, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn pgbench_reaches_both_endpoints_from_15() {
    pgbench_reaches_both_endpoints(15, 15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pgbench_reaches_both_endpoints_from_18() {
    pgbench_reaches_both_endpoints(18, 18).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_subscriber_follows_an_older_source() {
    pgbench_reaches_both_endpoints(15, 18).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_subscriber_follows_a_newer_source() {
    pgbench_reaches_both_endpoints(18, 15).await;
}

async fn pgbench_reaches_both_endpoints(source: u32, subscriber: u32) {
    let mut stage = Stage::with_pgbench(source, 2).await;
    let watch = SlotWatch::start(&stage.source).await;
    let subscriber = stage.pgbench_subscriber("sub", subscriber, 0).await;
    let grpc = stage.grpc_subscriber(1, Keep::Rows);

    fill_pgbench_tables(&stage.source, pick(1, 10));
    let transactions = pick(2_000, 200_000);
    Pgbench::start(&stage.source, 8, transactions)
        .finish(patience())
        .await;

    let end = stage.settle().await;
    subscriber
        .wait_for_contents(&stage.source, &PGBENCH_TABLES, patience())
        .await;
    grpc.wait_for(end, patience()).await;
    grpc.assert_contents(&stage.source, &PGBENCH_TABLES).await;
    grpc.look(|received| assert!(received.transactions.len() >= transactions as usize));
    watch.assert_one().await;
}
