//! A standby takes over from the source, with and without what the log already has.

use pg_proto::Lsn;
use tests::cluster::Stop;
use tests::expect::assert_mentions;
use tests::scale::patience;
use tests::subscriber::{
    GrpcSubscriber, Keep, PostgresSubscriber, StreamClient, from_lsn, from_slot,
};
use tests::{Cluster, wait_until};

use super::stage::{PUBLICATION, Stage};

const TABLE: &str = "create table t (id int primary key, v text)";
const OPTIONS: &str = "proto_version '1', publication_names 'everything'";

/// A source and its standby, with a decoder and a fanout before them.
struct Pair {
    stage: Stage,
    standby: Cluster,
}

impl Pair {
    /// The source's slot is also on the standby, from version 17 on.
    async fn with_failover_slot(major: u32) -> Self {
        let settings = [
            ("primary_slot_name", "standby"),
            ("hot_standby_feedback", "on"),
            ("sync_replication_slots", "on"),
        ];
        let pair = Self::new(major, &settings, &["--failover"]).await;
        wait_until("the slot is synchronized", patience(), async || {
            // Only a slot that moves can catch up with what the standby has.
            pair.write("insert into t values (-1) on conflict (id) do update set v = 'x'")
                .await;
            let sql = "select count(*) from pg_replication_slots \
                       where slot_name = 'decant' and synced and not temporary";
            match pair.standby.value(sql).await.as_str() {
                "1" => Ok(()),
                _ => Err("not yet".to_owned()),
            }
        })
        .await;
        pair.write("delete from t").await;
        pair
    }

    async fn new(major: u32, settings: &[(&str, &str)], init: &[&str]) -> Self {
        let mut source = Cluster::start_new(major).await;
        source.sql(TABLE).await;
        source
            .sql("select pg_create_physical_replication_slot('standby')")
            .await;
        let standby = source.standby(settings).await;
        let stage = Stage::around_with(source, 1, init).await;
        Self { stage, standby }
    }

    /// A commit that is in the log.
    async fn write(&self, sql: &str) -> Lsn {
        self.stage.source.sql(sql).await;
        self.stage.settle().await
    }

    /// The source is gone, the standby takes over. The decoder is stopped, and told of the new address.
    async fn fail_over(&mut self) {
        self.stage.decant.stop_decoder().await;
        self.stage.source.stop(Stop::Immediate).await;
        self.standby.promote().await;
        self.stage.decant.set("source.port", self.standby.port());
    }

    /// A commit at the new source that is in the log.
    async fn write_after(&self, sql: &str) -> Lsn {
        self.standby.sql(sql).await;
        let end = self.standby.flush_lsn().await;
        self.stage.decant.wait_until_durable(end).await;
        end
    }
}

/// With a failover slot (PostgreSQL 17 and later) nothing is lost and nothing has to be done but to name the new primary.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_slot_goes_on_at_the_standby() {
    for major in [17, 18] {
        goes_on_at_the_standby(major).await;
    }
}

async fn goes_on_at_the_standby(major: u32) {
    let mut pair = Pair::with_failover_slot(major).await;
    let url = pair.stage.decant.fanout(0).grpc_url();
    let subscriber = GrpcSubscriber::start(url, from_lsn(Lsn::INVALID), Keep::Rows);
    pair.write("insert into t values (1), (3)").await;
    pair.stage.source.wait_for_standby(&pair.standby).await;
    pair.fail_over().await;
    pair.stage.decant.start_decoder().await;
    let end = pair.write_after("insert into t values (4)").await;
    subscriber.wait_for(end, patience()).await;
    subscriber.assert_contents(&pair.standby, &["t"]).await;
    let report = pair.stage.decant.decctl_successfully(&["verify"]);
    assert!(!report.contains("gap"), "{report}");
}

/// The log has commits that the new primary lacks. Who has none of them goes on without loss.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_standby_lacked_is_cut_off() {
    let mut pair = Pair::with_failover_slot(17).await;
    let endpoint = pair.stage.decant.fanout(0).endpoint();
    let url = pair.stage.decant.fanout(0).grpc_url();
    // A PostgreSQL subscriber that is behind the fork.
    let behind = PostgresSubscriber::start_new(17).await;
    behind.cluster.sql(TABLE).await;
    behind.subscribe("behind", &endpoint, PUBLICATION, "").await;
    let common = pair.write("insert into t values (1, 'common')").await;
    behind.wait_for("behind", common, patience()).await;
    behind
        .cluster
        .sql("alter subscription behind disable")
        .await;
    pair.stage.source.wait_for_standby(&pair.standby).await;

    // From here on the standby has nothing.
    pair.standby.leave_primary().await;
    let ahead = ["slot", "create", "ahead", "--at", &common.to_string()];
    pair.stage.decant.decctl_successfully(&ahead);
    let mut client = StreamClient::start(&endpoint, "ahead", common, OPTIONS)
        .await
        .unwrap();
    let live = GrpcSubscriber::start(url.clone(), from_lsn(common), Keep::Rows);
    let orphan = pair
        .write("insert into t values (2, 'orphan'), (3, 'orphan')")
        .await;
    live.wait_for(orphan, patience()).await;
    let seen = client.receive_until(orphan, patience()).await;
    client.confirm(seen.last().unwrap().end_lsn).await;
    confirmed(&pair.stage, "ahead", seen.last().unwrap().end_lsn).await;
    let end = log_end(&mut pair.stage).await;

    pair.fail_over().await;
    pair.standby.sql("insert into t values (2, 'new')").await;
    let error = pair.stage.decant.decoder_error().await;
    let fork = position_behind(&error, "which left timeline 1 at ");
    assert!(fork >= common && fork < orphan, "{fork}: {error}");
    assert_mentions(
        &error,
        &[&fork.to_string(), &end.to_string(), "--accept-source"],
    );

    // Detected: what is past the fork is told so, and nobody else gets there.
    let told = live.wait_for_error(patience()).await;
    assert_mentions(&told, &["another history", &fork.to_string()]);
    let told = client.receive_error(patience()).await;
    assert_mentions(&told.to_string(), &["another history", &fork.to_string()]);
    let early = GrpcSubscriber::start(url.clone(), from_lsn(Lsn::INVALID), Keep::Rows);
    early.wait_for(common, patience()).await;

    let done = pair
        .stage
        .decant
        .decctl_successfully(&["verify", "--accept-source"]);
    assert_mentions(&done, &["cut off", "timeline (1 to 2)"]);
    pair.stage.decant.start_decoder().await;
    let last = pair.write_after("insert into t values (4, 'new')").await;

    // No row with "orphan" among what they get: the contents would differ.
    let anew = GrpcSubscriber::start(url.clone(), from_lsn(Lsn::INVALID), Keep::Rows);
    for subscriber in [early, anew] {
        subscriber.wait_for(last, patience()).await;
        subscriber.assert_contents(&pair.standby, &["t"]).await;
    }
    behind.cluster.sql("alter subscription behind enable").await;
    behind
        .wait_for_contents(&pair.standby, &["t"], patience())
        .await;
    assert_forked(&mut pair.stage, "ahead").await;
    let report = pair.stage.decant.decctl_successfully(&["verify"]);
    assert!(!report.contains("gap"), "{report}");
}

/// What was prepared before the fork and decided behind it on the lost side is undecided again.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_decided_on_the_lost_side_is_decided_again() {
    let mut pair = Pair::with_failover_slot(18).await;
    for (id, gid) in [(1, "committed"), (2, "given up"), (3, "open")] {
        pair.write(&format!(
            "begin; insert into t values ({id}, '{gid}'); prepare transaction '{gid}'"
        ))
        .await;
    }
    pair.write("insert into t values (4, 'common')").await;
    pair.stage.source.wait_for_standby(&pair.standby).await;
    pair.standby.leave_primary().await;
    pair.write("commit prepared 'committed'").await;
    pair.write("rollback prepared 'given up'").await;
    log_end(&mut pair.stage).await;
    pair.fail_over().await;
    let error = pair.stage.decant.decoder_error().await;
    assert_mentions(&error, &["which left timeline 1 at ", "--accept-source"]);
    let accept = ["verify", "--accept-source"];
    let done = pair.stage.decant.decctl_successfully(&accept);
    assert_mentions(
        &done,
        &[
            "undecided again: \"committed\"",
            "undecided again: \"given up\"",
        ],
    );
    pair.stage.decant.start_decoder().await;
    for gid in ["committed", "given up", "open"] {
        pair.write_after(&format!("commit prepared '{gid}'")).await;
    }
    let last = pair.write_after("insert into t values (5, 'new')").await;
    let url = pair.stage.decant.fanout(0).grpc_url();
    let subscriber = GrpcSubscriber::start(url, from_lsn(Lsn::INVALID), Keep::Rows);
    subscriber.wait_for(last, patience()).await;
    subscriber.assert_contents(&pair.standby, &["t"]).await;
    pair.stage.decant.decctl_successfully(&["verify"]);
}

/// A prepared transaction whose changes are not there any more stops the decoder, which says how to go on without it.
#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_transaction_that_is_gone_can_be_left_out() {
    let mut stage = Stage::new(16, 1, TABLE).await;
    stage
        .source
        .sql("begin; insert into t values (1, 'gone'); prepare transaction 'x'")
        .await;
    stage.settle().await;
    // Its segment is finished, so that nobody looks for its PREPARE there.
    stage
        .source
        .sql("insert into t select g, repeat(md5(g::text), 40) from generate_series(10, 9000) g")
        .await;
    stage.source.sql("insert into t values (2, 'kept')").await;
    stage.settle().await;
    wait_until("its segment is sealed", patience(), async || {
        let list = stage.decant.decctl_successfully(&["segments", "--json"]);
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        let segments = list.as_array().or_else(|| list["segments"].as_array());
        let first = segments.and_then(|all| all.first()).expect("a segment");
        if first["sealed"] == true {
            Ok(())
        } else {
            Err(list.to_string())
        }
    })
    .await;
    stage.decant.stop_decoder().await;
    let folder = stage.decant.log_directory().join("prepared");
    for file in std::fs::read_dir(&folder).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    stage.source.sql("insert into t values (3, 'kept')").await;
    stage.source.sql("commit prepared 'x'").await;
    stage.source.sql("insert into t values (4, 'kept')").await;
    let error = stage.decant.decoder_error().await;
    let end = position_behind(&error, "decctl verify --gap-to ");
    let gap = ["verify", "--gap-to", &end.to_string()];
    stage.decant.decctl_successfully(&gap);
    stage.decant.start_decoder().await;
    let last = stage.settle().await;
    let url = stage.decant.fanout(0).grpc_url();
    let early = GrpcSubscriber::start(url.clone(), from_lsn(Lsn::INVALID), Keep::Counts);
    let told = early.wait_for_error(patience()).await;
    assert_mentions(&told, &["DataLoss", &end.to_string()]);
    let late = GrpcSubscriber::start(url, from_lsn(end), Keep::Counts);
    late.wait_for(last, patience()).await;
    late.look(|received| assert_eq!(received.changes, 1));
}

/// Who is past the fork gets the error that names what happened.
async fn assert_forked(stage: &mut Stage, slot: &str) {
    let endpoint = stage.decant.fanout(0).endpoint();
    let url = stage.decant.fanout(0).grpc_url();
    let refused = StreamClient::start(&endpoint, slot, Lsn::INVALID, OPTIONS)
        .await
        .unwrap_err();
    assert_eq!(refused.code, "55000", "{refused}");
    assert_mentions(&refused.to_string(), &["can no longer", "source never had"]);
    let slots = stage.decant.decctl_successfully(&["slot", "list"]);
    assert_mentions(&slots, &["invalidated: forked"]);
    let refused = GrpcSubscriber::start(url, from_slot(slot), Keep::Counts);
    let told = refused.wait_for_error(patience()).await;
    assert_mentions(&told, &["DataLoss", "forked"]);
    stage.decant.decctl_successfully(&["slot", "drop", slot]);
}

/// Without a failover slot there is a gap between the fork and the slot that was made at the new primary, whether or not
/// something was lost before.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_failover_slot_there_is_a_gap() {
    for lossy in [false, true] {
        let mut pair = Pair::new(15, &[("primary_slot_name", "standby")], &[]).await;
        pair.write("insert into t values (1)").await;
        pair.stage.source.wait_for_standby(&pair.standby).await;
        if lossy {
            pair.standby.leave_primary().await;
            pair.write("insert into t values (2, 'orphan')").await;
        }
        let end = log_end(&mut pair.stage).await;
        pair.fail_over().await;
        let error = pair.stage.decant.decoder_error().await;
        assert_mentions(&error, &[&end.to_string(), "decctl init"]);
        assert_eq!(error.contains("left timeline 1"), lossy, "{error}");
        let refused = pair
            .stage
            .decant
            .decctl_unsuccessfully(&["verify", "--accept-source"]);
        assert_mentions(&refused, &["decctl init"]);
        // What happens before somebody makes the slot is lost.
        pair.standby.sql("insert into t values (3, 'lost')").await;
        pair.stage.decant.decctl_successfully(&["init"]);
        let error = pair.stage.decant.decoder_error().await;
        assert_mentions(&error, &["--accept-source"]);
        let accept = ["verify", "--accept-source", "--json"];
        let report = pair.stage.decant.decctl_successfully(&accept);
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let gap = &report["gaps"][0];
        let (from, to) = (gap["from"].as_str().unwrap(), gap["to"].as_str().unwrap());
        pair.stage.decant.start_decoder().await;
        let last = pair.write_after("insert into t values (4)").await;

        let url = pair.stage.decant.fanout(0).grpc_url();
        let early = GrpcSubscriber::start(url.clone(), from_lsn(Lsn::INVALID), Keep::Counts);
        let told = early.wait_for_error(patience()).await;
        assert_mentions(&told, &["DataLoss", from, to]);
        let late = GrpcSubscriber::start(url, from_lsn(to.parse().unwrap()), Keep::Counts);
        late.wait_for(last, patience()).await;
        late.look(|received| assert_eq!(received.changes, 1));
        pair.stage.decant.decctl_successfully(&["verify"]);
        // The old primary is not taken for the source any more.
        pair.stage.decant.stop_decoder().await;
        pair.stage.source.start().await;
        let port = pair.stage.source.port();
        pair.stage.decant.set("source.port", port);
        let error = pair.stage.decant.decoder_error().await;
        assert_mentions(&error, &["timeline 1", "timeline 2", "before a failover"]);
    }
}

/// The log's end when nothing more comes: the decoder is not stopped.
async fn log_end(stage: &mut Stage) -> Lsn {
    stage.settle().await;
    Lsn(stage
        .decant
        .status()
        .await
        .log
        .unwrap_or_default()
        .durable_lsn)
}

async fn confirmed(stage: &Stage, slot: &str, lsn: Lsn) {
    wait_until("the slot's position is stored", patience(), async || {
        let slots = stage.decant.status().await.slots;
        let found = slots.iter().find(|status| status.name == slot);
        let at = Lsn(found.map_or(0, |status| status.confirmed_lsn));
        if at >= lsn {
            Ok(())
        } else {
            Err(at.to_string())
        }
    })
    .await;
}

/// The position that follows some words of a message.
fn position_behind(text: &str, words: &str) -> Lsn {
    let (_, rest) = text.split_once(words).expect("the words");
    let end = rest
        .find(|letter: char| !letter.is_ascii_hexdigit() && letter != '/')
        .unwrap_or(rest.len());
    rest[..end].parse().expect("a position")
}
