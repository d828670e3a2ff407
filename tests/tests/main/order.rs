//! Programs may start and end in any order; SIGTERM ends each of them with status 0.

use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, from_lsn};
use tests::workload::{PGBENCH_TABLES, Pgbench, fill_pgbench_tables};
use tests::{Cluster, Decant};

use super::stage::Stage;
use pg_proto::Lsn;

const TABLE: &str = "create table t (id int primary key)";

async fn assert_rows(stage: &Stage, grpc: &GrpcSubscriber) {
    let end = stage.settle().await;
    grpc.wait_for(end, patience()).await;
    grpc.assert_contents(&stage.source, &["t"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_each_part_with_status_0() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let grpc = stage.grpc_subscriber(0, Keep::Rows);
    for (step, row) in (0..4).zip(1..) {
        stage
            .source
            .sql(&format!("insert into t values ({row})"))
            .await;
        match step {
            0 => {
                stage.decant.stop_decoder().await;
                stage.decant.start_decoder().await;
            }
            1 => {
                stage.decant.stop_fanout(0).await;
                stage.decant.restart_fanout(0).await;
            }
            2 => {
                stage.decant.stop_fanout(0).await;
                stage.decant.stop_decoder().await;
                stage.source.sql("insert into t values (-2)").await;
                stage.decant.start_decoder().await;
                stage.decant.restart_fanout(0).await;
            }
            _ => {
                stage.decant.stop_decoder().await;
                stage.decant.stop_fanout(0).await;
                stage.source.sql("insert into t values (-3)").await;
                stage.decant.spawn_fanout(0);
                stage.decant.start_decoder().await;
            }
        }
        assert_rows(&stage, &grpc).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_clean_stop_the_source_is_told_everything() {
    let mut stage = Stage::new(15, 0, TABLE).await;
    stage
        .source
        .sql("insert into t select generate_series(1, 100)")
        .await;
    let end = stage.settle().await;
    stage.decant.stop_decoder().await;
    let confirmed = "select confirmed_flush_lsn from pg_replication_slots";
    let confirmed: Lsn = stage.source.value(confirmed).await.parse().unwrap();
    assert!(
        confirmed >= end,
        "{confirmed} is confirmed, {end} was durable"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fanout_may_be_first() {
    let source = Cluster::start_new(15).await;
    source.sql(TABLE).await;
    let mut decant = Decant::new(&source);
    decant.decctl_successfully(&["init"]);
    let number = decant.add_fanout();
    decant.spawn_fanout(number);
    let url = decant.fanout(number).grpc_url();
    let grpc = GrpcSubscriber::start(url, from_lsn(Lsn::INVALID), Keep::Rows);
    decant.start_decoder().await;
    decant.wait_until_serving(number).await;
    source.sql("insert into t values (1)").await;
    let stage = Stage { decant, source };
    assert_rows(&stage, &grpc).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_source_may_be_last() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let grpc = stage.grpc_subscriber(0, Keep::Rows);
    stage.source.sql("insert into t values (1)").await;
    stage.decant.stop_decoder().await;
    stage.source.stop(tests::cluster::Stop::Fast).await;
    stage.decant.spawn_decoder();
    // It waits for a source that is not there, and says so.
    tests::wait_until("the decoder says that it waits", patience(), async || {
        let log = stage.decant.decoder().log_text().to_lowercase();
        if log.contains("refused") {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    stage.source.start().await;
    stage.decant.wait_until_streaming().await;
    stage.source.sql("insert into t values (2)").await;
    assert_rows(&stage, &grpc).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_in_the_middle_of_a_run_loses_nothing() {
    let mut stage = Stage::with_pgbench(15, 1).await;
    let grpc = stage.grpc_subscriber(0, Keep::Rows);
    fill_pgbench_tables(&stage.source, 1);
    let pgbench = Pgbench::start(&stage.source, 4, 4_000);
    for _ in 0..3 {
        stage.decant.stop_decoder().await;
        stage.decant.start_decoder().await;
        stage.decant.stop_fanout(0).await;
        stage.decant.restart_fanout(0).await;
    }
    pgbench.finish(patience()).await;
    let end = stage.settle().await;
    grpc.wait_for(end, patience()).await;
    grpc.assert_contents(&stage.source, &PGBENCH_TABLES).await;
}
