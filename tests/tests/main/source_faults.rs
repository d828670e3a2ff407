//! What may happen to the source and its slot behind the decoder's back. Nothing is ever passed over in silence: each is
//! an error that names both positions, or goes on without loss.

use pg_proto::Lsn;
use tests::expect::assert_mentions;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, from_lsn};
use tests::{Cluster, wait_until};

use super::stage::Stage;

const TABLE: &str = "create table t (id int primary key, v text)";

/// A stage whose decoder is stopped behind one transaction, and the log's end.
async fn stopped() -> (Stage, Lsn) {
    let mut stage = Stage::new(15, 0, TABLE).await;
    stage.source.sql("insert into t values (1)").await;
    stage.settle().await;
    stage.decant.stop_decoder().await;
    let report = stage.decant.decctl_successfully(&["verify", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let end = report["end_lsn"].as_str().unwrap().parse().unwrap();
    (stage, end)
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_drops_the_slot() {
    let (mut stage, end) = stopped().await;
    stage
        .source
        .sql("select pg_drop_replication_slot('decant')")
        .await;
    let error = stage.decant.decoder_error().await;
    assert_mentions(&error, &["does not exist", &end.to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_advances_the_slot() {
    let (mut stage, end) = stopped().await;
    stage.source.sql("insert into t values (2)").await;
    let sql = "select end_lsn from pg_replication_slot_advance('decant', pg_current_wal_lsn())";
    let confirmed = stage.source.value(sql).await;
    let error = stage.decant.decoder_error().await;
    assert_mentions(&error, &[&confirmed, &end.to_string()]);

    // Who accepts the loss says so, and every reader that comes there is told.
    let accept = ["verify", "--gap-to", &confirmed, "--json"];
    stage.decant.decctl_successfully(&accept);
    stage.decant.start_decoder().await;
    stage.decant.start_fanout().await;
    stage.source.sql("insert into t values (3)").await;
    let last = stage.settle().await;
    let url = stage.decant.fanout(0).grpc_url();
    let early = GrpcSubscriber::start(url.clone(), from_lsn(Lsn::INVALID), Keep::Counts);
    let error = early.wait_for_error(patience()).await;
    assert_mentions(&error, &["DataLoss", &end.to_string(), &confirmed]);
    let late = GrpcSubscriber::start(url, from_lsn(confirmed.parse().unwrap()), Keep::Counts);
    late.wait_for(last, patience()).await;
    late.look(|received| assert_eq!(received.changes, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_source_invalidates_the_slot() {
    let settings = [
        ("max_slot_wal_keep_size", "1MB"),
        ("min_wal_size", "32MB"),
        ("max_wal_size", "32MB"),
    ];
    let mut stage = Stage::with_settings(15, &settings, 0, TABLE).await;
    stage.settle().await;
    stage.decant.stop_decoder().await;
    wait_until("the slot loses its WAL", patience(), async || {
        stage.source.sql("select pg_switch_wal()").await;
        stage
            .source
            .sql("insert into t values (1) on conflict do nothing")
            .await;
        stage.source.sql("checkpoint").await;
        let sql = "select wal_status from pg_replication_slots";
        match stage.source.value(sql).await.as_str() {
            "lost" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await;
    let error = stage.decant.decoder_error().await;
    assert_mentions(&error, &["wal_removed", "log ends at"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_is_at_the_address() {
    let (mut stage, _) = stopped().await;
    let other = Cluster::start_new(15).await;
    other.sql(TABLE).await;
    let sql = "select system_identifier from pg_control_system()";
    let (ours, theirs) = (stage.source.value(sql).await, other.value(sql).await);
    stage.decant.set("source.port", other.port());
    let error = stage.decant.decoder_error().await;
    assert_mentions(&error, &[&ours, &theirs, "another cluster"]);
}
