//! What is deleted, and what a subscriber is told who wants what was deleted.

use pg_proto::Lsn;
use proto::v1::ListSegmentsRequest;
use tests::expect::assert_mentions;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, StreamClient, from_lsn};
use tests::wait_until;

use super::stage::Stage;

const TABLE: &str = "create table t (id int primary key, v text)";
const OPTIONS: &str = "proto_version '1', publication_names 'everything'";

/// A log of several sealed segments.
async fn stage() -> Stage {
    let mut stage = Stage::new(15, 0, TABLE).await;
    stage.decant.stop_decoder().await;
    stage.decant.set("log.segment_bytes", 1 << 20);
    stage.decant.set("retention.keep_seconds", 0);
    // Only `decctl gc` deletes here.
    stage.decant.set("retention.interval_seconds", 86_400);
    stage.decant.set("retention.keep_bytes", 0);
    stage.decant.start_decoder().await;
    stage.decant.start_fanout().await;
    stage
}

async fn fill(stage: &Stage, from: u32) {
    for step in from..from + 8 {
        let sql = format!(
            "insert into t select g, md5(g::text) || repeat(md5((g * 7)::text), 4) \
             from generate_series({step} * 10000, {step} * 10000 + 4000) g"
        );
        stage.source.sql(&sql).await;
    }
    stage.settle().await;
    wait_until("full segments are sealed", patience(), async || {
        let segments = segments(stage).await;
        let unsealed = segments.iter().filter(|segment| !segment.sealed).count();
        if unsealed <= 1 {
            Ok(())
        } else {
            Err(format!("{unsealed} are not sealed"))
        }
    })
    .await;
}

async fn segments(stage: &Stage) -> Vec<proto::v1::Segment> {
    let mut control = stage.decant.control().await;
    let response = control.list_segments(ListSegmentsRequest {}).await;
    response.expect("the decoder answers").into_inner().segments
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_keeps_what_it_needs_and_no_more() {
    let mut stage = stage().await;
    fill(&stage, 0).await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let mut session = tests::Session::connect_for_replication(&endpoint)
        .await
        .unwrap();
    session
        .run("CREATE_REPLICATION_SLOT keeps LOGICAL pgoutput (SNAPSHOT 'nothing')")
        .await;
    fill(&stage, 100).await;
    let before = segments(&stage).await;
    assert!(before.len() > 6, "{before:?}");

    // A trial run explains and deletes nothing.
    let explained = stage.decant.decctl_successfully(&["gc", "--dry-run"]);
    assert_mentions(&explained, &["keeps", "0000000000000001"]);
    assert_eq!(segments(&stage).await, before);

    stage.decant.decctl_successfully(&["gc"]);
    let after = segments(&stage).await;
    assert!(after.len() < before.len() && after.len() > 3, "{after:?}");
    let mut client = StreamClient::start(&endpoint, "keeps", Lsn::INVALID, OPTIONS)
        .await
        .unwrap();
    let end = stage.settle().await;
    let rest = client.receive_until(end, patience()).await;
    assert_eq!(rest.len(), 8, "everything since the slot was made");

    // What is confirmed may go.
    client.confirm(end).await;
    wait_until(
        "all but the newest segments are deleted",
        patience(),
        async || {
            stage.decant.decctl_successfully(&["gc"]);
            match segments(&stage).await.len() {
                0..=2 => Ok(()),
                many => Err(format!("{many} segments")),
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_no_longer_kept_is_refused_with_what_is() {
    let mut stage = stage().await;
    let endpoint = stage.decant.fanout(0).endpoint();
    stage.source.sql("insert into t values (-1, 'old')").await;
    let old = stage.settle().await;
    fill(&stage, 0).await;
    let slot = "CREATE_REPLICATION_SLOT late LOGICAL pgoutput (SNAPSHOT 'nothing')";
    let mut session = tests::Session::connect_for_replication(&endpoint)
        .await
        .unwrap();
    session.run(slot).await;
    stage.decant.decctl_successfully(&["gc"]);
    let oldest = Lsn(segments(&stage).await[0].first_lsn);
    assert!(oldest > old);

    let url = stage.decant.fanout(0).grpc_url();
    let subscriber = GrpcSubscriber::start(url, from_lsn(old), Keep::Rows);
    let error = subscriber.wait_for_error(patience()).await;
    assert_mentions(
        &error,
        &["OutOfRange", &old.to_string(), &oldest.to_string()],
    );

    let create = ["slot", "create", "early", "--at", &old.to_string()];
    let error = stage.decant.decctl_unsuccessfully(&create);
    assert_mentions(&error, &[&oldest.to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_slots_only_limits_delete() {
    let stage = stage().await;
    fill(&stage, 0).await;
    let before = segments(&stage).await.len();
    stage.decant.decctl_successfully(&["gc"]);
    assert_eq!(segments(&stage).await.len(), before);
}
