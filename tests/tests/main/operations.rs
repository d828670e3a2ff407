//! What `deploy/OPERATIONS.md` tells an operator to do, as far as no other test does it.

use std::path::Path;

use pg_proto::Lsn;
use tests::expect::assert_mentions;
use tests::process::run_successfully;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, StreamClient, from_lsn};

use super::stage::Stage;

const TABLE: &str = "create table t (id int primary key, v text)";
const OPTIONS: &str = "proto_version '1', publication_names 'everything'";

/// A commit that is in the log.
async fn write(stage: &Stage, sql: &str) -> Lsn {
    stage.source.sql(sql).await;
    stage.settle().await
}

fn copy(from: &Path, to: &Path) {
    let mut command = std::process::Command::new("cp");
    run_successfully(command.arg("-a").args([from, to]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decoder_moves_with_its_log_directory() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let start = write(&stage, "insert into t values (1)").await;
    let subscriber = stage.grpc_subscriber(0, Keep::Rows);
    subscriber.wait_for(start, patience()).await;
    stage
        .decant
        .decctl_successfully(&["slot", "create", "kept"]);
    stage.decant.stop_decoder().await;
    stage.decant.stop_fanout(0).await;
    let moved = stage.decant.home().join("moved");
    let before = stage.decant.log_directory();
    copy(&before, &moved);
    std::fs::remove_dir_all(&before).unwrap();
    stage.decant.set("log.directory", moved.display());
    stage.source.sql("insert into t values (2)").await;
    stage.decant.start_decoder().await;
    stage.decant.restart_fanout(0).await;
    let end = write(&stage, "insert into t values (3)").await;
    subscriber.wait_for(end, patience()).await;
    subscriber.assert_contents(&stage.source, &["t"]).await;
    let slots = stage.decant.decctl_successfully(&["slot", "list"]);
    assert_mentions(&slots, &["kept"]);
    stage.decant.decctl_successfully(&["verify"]);
}

/// The source forgets what it was told to be safe: an older copy of the log lacks it, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_backup_goes_on_behind_a_gap() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    write(&stage, "insert into t values (1)").await;
    stage.decant.stop_decoder().await;
    stage.decant.stop_fanout(0).await;
    let backup = stage.decant.home().join("backup");
    let log = stage.decant.log_directory();
    copy(&log, &backup);
    stage.decant.start_decoder().await;
    write(&stage, "insert into t values (2)").await;
    stage.decant.stop_decoder().await;

    std::fs::remove_dir_all(&log).unwrap();
    copy(&backup, &log);
    stage.decant.decctl_successfully(&["verify"]);
    let error = stage.decant.decoder_error().await;
    assert_mentions(&error, &["--accept-source"]);
    let accept = ["verify", "--accept-source"];
    let done = stage.decant.decctl_successfully(&accept);
    assert_mentions(&done, &["gap"]);
    stage.decant.start_decoder().await;
    stage.decant.restart_fanout(0).await;
    write(&stage, "insert into t values (3)").await;
    let url = stage.decant.fanout(0).grpc_url();
    let reader = GrpcSubscriber::start(url, from_lsn(Lsn::INVALID), Keep::Counts);
    assert_mentions(&reader.wait_for_error(patience()).await, &["DataLoss"]);
}

/// The slots are gone and the log is not: nothing is deleted until an operator says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_registry_costs_the_slots_only() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let end = write(&stage, "insert into t values (1)").await;
    stage
        .decant
        .decctl_successfully(&["slot", "create", "mine"]);
    stage.decant.stop_decoder().await;
    std::fs::remove_dir_all(stage.decant.log_directory().join("registry")).unwrap();
    stage.decant.start_decoder().await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let gone = StreamClient::start(&endpoint, "mine", Lsn::INVALID, OPTIONS).await;
    assert_mentions(&gone.unwrap_err().to_string(), &["does not exist"]);

    // Where its subscriber stands.
    let create = ["slot", "create", "mine", "--at", &end.to_string()];
    stage.decant.decctl_successfully(&create);
    let last = write(&stage, "insert into t values (2)").await;
    let mut client = StreamClient::start(&endpoint, "mine", Lsn::INVALID, OPTIONS)
        .await
        .unwrap();
    assert_eq!(client.receive_until(last, patience()).await.len(), 1);
    // The slots are made again: segments may go.
    stage.decant.decctl_successfully(&["gc"]);
    let explained = stage.decant.decctl_successfully(&["gc", "--dry-run"]);
    assert!(!explained.contains("registry"), "{explained}");
}
