//! A decoder that is stopped for long and comes back.

use pg_proto::Lsn;
use rustix::process::Signal;
use tests::expect::assert_mentions;
use tests::scale::patience;
use tests::subscriber::Keep;
use tests::{Cluster, Decant, wait_until};

use super::stage::Stage;

const TABLE: &str = "create table t (id int primary key, v text)";
/// The source soon gives up a connection on which nobody answers, and streams transactions early.
const SETTINGS: &[(&str, &str)] = &[
    ("wal_sender_timeout", "1s"),
    ("logical_decoding_work_mem", "64kB"),
];
/// Staged before it commits, and several segments long.
const LARGE: &str =
    "insert into t select g, repeat(md5(g::text), 10) from generate_series(1, 20000) g";

async fn wait_until_stopped(decant: &mut Decant) {
    let stat = format!("/proc/{}/stat", decant.decoder().id());
    wait_until("the decoder stops", patience(), async || {
        let text = std::fs::read_to_string(&stat).map_err(|error| error.to_string())?;
        let state = text.rsplit(") ").next().unwrap_or_default();
        if state.starts_with('T') {
            Ok(())
        } else {
            Err(state.to_owned())
        }
    })
    .await;
}

async fn wait_until_given_up(source: &Cluster) {
    wait_until("the source gives it up", patience(), async || {
        let sql = "select count(*) from pg_stat_replication";
        match source.value(sql).await.as_str() {
            "0" => Ok(()),
            left => Err(left.to_owned()),
        }
    })
    .await;
}

/// Names and sizes of the files of the log.
fn files(decant: &Decant) -> Vec<(String, u64)> {
    let mut all: Vec<_> = ["segments", "staging", "prepared"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(decant.log_directory().join(folder)).unwrap())
        .map(|file| {
            let file = file.unwrap();
            let name = file.file_name().to_string_lossy().into_owned();
            (name, file.metadata().unwrap().len())
        })
        .collect();
    all.sort();
    all
}

/// On one host the lock stays with a process that is stopped. A second decoder does not touch the log, and says who has
/// it; the first one goes on where it was.
async fn the_log_stays_its_own(moment: Option<&str>) {
    let mut stage = Stage::with_settings(16, SETTINGS, 0, TABLE).await;
    stage.decant.stop_decoder().await;
    stage.decant.set("log.segment_bytes", 1 << 20);
    match moment {
        Some(failpoint) => {
            stage.decant.spawn_decoder_to_stop_at(failpoint);
            stage.source.sql(LARGE).await;
        }
        None => {
            stage.decant.start_decoder().await;
            stage.decant.decoder().signal(Signal::STOP);
        }
    }
    wait_until_stopped(&mut stage.decant).await;
    wait_until_given_up(&stage.source).await;
    if moment.is_none() {
        stage.source.sql(LARGE).await;
    }
    let before = files(&stage.decant);
    let mut rival = stage.decant.rival();
    let error = rival.decoder_error().await;
    let holder = format!("process {}", stage.decant.decoder().id());
    let directory = stage.decant.log_directory().display().to_string();
    assert_mentions(&error, &[&holder, &directory]);
    assert_eq!(files(&stage.decant), before, "the second one wrote");

    stage.decant.decoder().signal(Signal::CONT);
    stage.source.sql("insert into t values (-1)").await;
    let end = stage.settle().await;
    stage.decant.start_fanout().await;
    let subscriber = stage.grpc_subscriber(0, Keep::Rows);
    subscriber.wait_for(end, patience()).await;
    subscriber.assert_contents(&stage.source, &["t"]).await;
    stage.decant.decctl_successfully(&["verify"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_while_idle() {
    the_log_stays_its_own(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_inside_a_large_transaction() {
    the_log_stays_its_own(Some("staging.write.after")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_while_it_seals() {
    the_log_stays_its_own(Some("seal.written")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_before_it_confirms() {
    the_log_stays_its_own(Some("fsync.after")).await;
}

/// Another decoder, with a log of its own, took the slot meanwhile. The first one adds nothing to its log and confirms
/// nothing, and says why.
#[tokio::test(flavor = "multi_thread")]
async fn another_one_took_the_slot() {
    let mut stage = Stage::with_settings(16, SETTINGS, 0, TABLE).await;
    stage.source.sql("insert into t values (1)").await;
    stage.settle().await;
    stage.decant.decoder().signal(Signal::STOP);
    wait_until_stopped(&mut stage.decant).await;
    wait_until_given_up(&stage.source).await;
    let mut other = Decant::new(&stage.source);
    other.start_decoder().await;
    stage.source.sql("insert into t values (2)").await;
    let taken = stage.source.flush_lsn().await;
    other.wait_until_durable(taken).await;
    wait_until("it is confirmed", patience(), async || {
        let confirmed = confirmed(&stage.source).await;
        if confirmed >= taken {
            Ok(())
        } else {
            Err(confirmed.to_string())
        }
    })
    .await;

    stage.decant.decoder().signal(Signal::CONT);
    wait_until("the first one says why it waits", patience(), async || {
        let source = stage.decant.status().await.source.unwrap_or_default();
        if source.last_error.contains("is active for PID") {
            Ok(())
        } else {
            Err(source.last_error)
        }
    })
    .await;
    other.stop_decoder().await;
    let error = stage.decant.decoder_failure().await;
    let left = confirmed(&stage.source).await;
    assert_mentions(&error, &["another program used", &left.to_string()]);
    let report = stage.decant.decctl_successfully(&["verify", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let end: Lsn = report["end_lsn"].as_str().unwrap().parse().unwrap();
    assert!(end < taken, "{end} {taken}");
    assert_mentions(&error, &[&end.to_string()]);
}

async fn confirmed(source: &Cluster) -> Lsn {
    let sql = "select confirmed_flush_lsn from pg_replication_slots where slot_name = 'decant'";
    source.value(sql).await.parse().expect("a position")
}
