//! What is deleted, and what a subscriber is told who wants what was deleted.

use std::time::Duration;

use pg_proto::Lsn;
use proto::v1::ListSegmentsRequest;
use tests::expect::assert_mentions;
use tests::scale::patience;
use tests::sql::{Endpoint, SqlError};
use tests::subscriber::{GrpcSubscriber, Keep, StreamClient, from_lsn};
use tests::{Cluster, wait_until};

use super::stage::Stage;

const TABLE: &str = "create table t (id int primary key, v text)";
const OPTIONS: &str = "proto_version '1', publication_names 'everything'";

/// A log of several sealed segments.
async fn stage() -> Stage {
    stage_of(15).await
}

async fn stage_of(major: u32) -> Stage {
    let mut stage = Stage::new(major, 0, TABLE).await;
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

/// What a slot may hold is limited: then it is invalidated, and its subscriber told so in the server's own words.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_too_far_behind_is_invalidated() {
    let mut stage = stage().await;
    fill(&stage, 0).await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let mut session = tests::Session::connect_for_replication(&endpoint)
        .await
        .unwrap();
    for slot in ["idle", "used"] {
        let create =
            format!("CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput (SNAPSHOT 'nothing')");
        session.run(&create).await;
    }
    fill(&stage, 100).await;
    // A hot reader: nothing of what it still reads may go away under it.
    let mut client = StreamClient::start(&endpoint, "used", Lsn::INVALID, OPTIONS)
        .await
        .unwrap();
    let end = stage.settle().await;
    client.receive_until(end, patience()).await;
    client.confirm(end).await;
    wait_until_stored(&stage, "used", end).await;
    stage.decant.stop_decoder().await;
    stage.decant.set("retention.interval_seconds", 0);
    stage.decant.set("retention.slot_keep_bytes_max", 1);
    stage.decant.start_decoder().await;
    let explained = stage.decant.decctl_successfully(&["gc", "--dry-run"]);
    assert_mentions(&explained, &["invalidates slot \"idle\""]);
    let before = segments(&stage).await.len();
    stage.decant.decctl_successfully(&["gc"]);
    assert!(segments(&stage).await.len() < before);

    let listed = stage.decant.decctl_successfully(&["slot", "list"]);
    assert_mentions(&listed, &["invalidated: wal_removed"]);
    let mut sql = tests::Session::connect(&endpoint).await.unwrap();
    let query = "select string_agg(concat_ws(' ', slot_name, wal_status, restart_lsn is null), ', ' \
                 order by slot_name) from pg_replication_slots";
    assert_eq!(sql.value(query).await, "idle lost t, used reserved f");
    let refused = StreamClient::start(&endpoint, "idle", Lsn::INVALID, OPTIONS)
        .await
        .unwrap_err();
    assert_eq!(refused.code, "55000");
    let words = [
        "cannot read from logical replication slot \"idle\"",
        "This slot has been invalidated because it exceeded the maximum reserved size.",
    ];
    assert_mentions(&refused.to_string(), &words);
    // The other one goes on.
    stage.source.sql("insert into t values (-1)").await;
    let end = stage.settle().await;
    client.receive_until(end, patience()).await;
    stage.decant.decctl_successfully(&["slot", "drop", "idle"]);
    stage.decant.decctl_successfully(&["verify"]);
}

/// What a client is told of a slot whose changes are gone is what a server of its source's version says, detail and hint
/// included.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalidated_slot_says_what_a_servers_says() {
    for major in 14..=18 {
        let native = native_words(major).await;
        let mut stage = stage_of(major).await;
        let endpoint = stage.decant.fanout(0).endpoint();
        create_slot(&endpoint).await;
        fill(&stage, 0).await;
        stage.decant.stop_decoder().await;
        stage.decant.set("retention.slot_keep_bytes_max", 1);
        stage.decant.start_decoder().await;
        stage.decant.decctl_successfully(&["gc"]);
        // What the fanout had read of the log last is deleted, and it has lost the decoder for a moment.
        let mut session = tests::Session::connect(&endpoint).await.unwrap();
        wait_until("the fanout hears of it", patience(), async || {
            let sql = "select 1 from pg_replication_slots where wal_status = 'lost'";
            match session.try_run(sql).await {
                Ok(rows) if rows.len() == 1 => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        assert_eq!(words(&endpoint).await, native, "{major}");
    }
}

async fn create_slot(endpoint: &Endpoint) {
    let mut session = tests::Session::connect(endpoint).await.unwrap();
    let sql = "select pg_create_logical_replication_slot('s', 'pgoutput')";
    session.run(sql).await;
}

async fn native_words(major: u32) -> Vec<SqlError> {
    let settings = [
        ("max_slot_wal_keep_size", "1MB"),
        ("min_wal_size", "32MB"),
        ("max_wal_size", "32MB"),
    ];
    let server = Cluster::start_with(major, &settings).await;
    server.sql(TABLE).await;
    create_slot(&server.endpoint()).await;
    wait_until("the slot loses its WAL", patience(), async || {
        server.sql("select pg_switch_wal()").await;
        let sql = "insert into t values (1) on conflict do nothing";
        server.sql(sql).await;
        server.sql("checkpoint").await;
        let sql = "select wal_status from pg_replication_slots";
        match server.value(sql).await.as_str() {
            "lost" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await;
    words(&server.endpoint()).await
}

/// What the ways to use the slot `s` are answered.
async fn words(endpoint: &Endpoint) -> Vec<SqlError> {
    let started = StreamClient::start(endpoint, "s", Lsn::INVALID, OPTIONS).await;
    let mut all = vec![started.unwrap_err()];
    for sql in [
        "select pg_replication_slot_advance('s', pg_current_wal_lsn())",
        "select pg_copy_logical_replication_slot('s', 'copy')",
    ] {
        let mut session = tests::Session::connect(endpoint).await.unwrap();
        // Who was refused first may hold the slot for a moment after it was told.
        let refused = tokio::time::timeout(patience(), async {
            loop {
                let refused = session.try_run(sql).await.unwrap_err();
                if refused.code != "55006" {
                    return refused;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        all.push(refused.await.expect("nobody holds the slot"));
    }
    all
}

async fn wait_until_stored(stage: &Stage, name: &str, end: Lsn) {
    wait_until("the position is stored", patience(), async || {
        let slots = stage.decant.status().await.slots;
        let used = slots.iter().find(|slot| slot.name == name);
        match used.map(|slot| Lsn(slot.confirmed_lsn)) {
            Some(at) if at >= end => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}
