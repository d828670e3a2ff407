//! The machine fails under the programs: writes, syncs and reads that fail, no file descriptors, a clock that jumps.

use std::process::Command;

use pg_proto::Lsn;
use tests::expect::assert_mentions;
use tests::process::Process;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, from_lsn};
use tests::{Session, wait_until};

use super::load::Load;

/// What fails, and what the decoder's last words have to say. It may be the segment of now or the next one, which has another
/// name until it is complete.
const FATAL: [(&str, &[&str]); 5] = [
    (
        "fsync EIO .active",
        &["fsync", "/segments/", "Input/output"],
    ),
    (
        "write EIO .active",
        &["write", "/segments/", "Input/output"],
    ),
    (
        "write EROFS .active",
        &["write", "/segments/", "Read-only file system"],
    ),
    (
        "write EIO watermark",
        &["write", "watermark", "Input/output"],
    ),
    ("create EIO segments", &["create", ".tmp", "Input/output"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_or_sync_ends_the_decoder_and_a_restart_goes_on() {
    let mut load = Load::start(None, &[]).await;
    for (fault, words) in FATAL {
        load.stage.decant.fault(fault);
        let status = load.stage.decant.decoder().wait_for_exit(patience()).await;
        let log = load.stage.decant.decoder().log_text();
        assert_eq!(status.code(), Some(1), "{fault}: {status}\n{log}");
        let last = log.lines().last().unwrap();
        assert_mentions(last, &[words, &["decoder: "]].concat());
        load.assert_nothing_is_confirmed_early().await;
        if !fault.starts_with("create") {
            // As long as the disk is not mended it says so again, and nothing is written on top of what failed.
            let text = load.stage.decant.decoder_error().await;
            assert_mentions(text.lines().last().unwrap(), &words[1..]);
            load.assert_nothing_is_confirmed_early().await;
        }
        load.stage.decant.heal();
        load.stage.decant.start_decoder().await;
        load.wait_for_progress().await;
    }
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn short_writes_are_gone_on_with() {
    let mut load = Load::start(None, &[]).await;
    load.stage.decant.fault("write short");
    load.wait_for_progress().await;
    let running = load.stage.decant.decoder().exit_status();
    assert_eq!(running, None);
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_read_is_an_error_for_who_needs_it() {
    let mut load = Load::start(None, &[("fanout.cache_bytes", "1048576")]).await;
    load.wait_for_progress().await;
    // The decoder needs the last segment, when it starts.
    load.stage.decant.stop_decoder().await;
    load.stage.decant.fault("read EIO .active");
    let text = load.stage.decant.decoder_error().await;
    let words = ["read", ".active", "Input/output"];
    assert_mentions(text.lines().last().unwrap(), &words);
    load.stage.decant.heal();
    load.stage.decant.start_decoder().await;
    wait_until("a segment is sealed", patience(), async || {
        let files = load.stage.decant.segment_files();
        let sealed = files.iter().any(|name| name.ends_with(".seg"));
        sealed.then_some(()).ok_or_else(|| format!("{files:?}"))
    })
    .await;

    // A subscriber that begins there gets the error, and the other one goes on.
    let files = load.stage.decant.segment_files();
    let first = files.iter().find(|name| name.ends_with(".seg")).unwrap();
    load.stage.decant.fault(&format!("open EIO {first}"));
    load.stage.decant.restart_fanout(0).await;
    let until = load.durable().to_string();
    let url = load.stage.decant.fanout(0).grpc_url();
    let tail = ["tail", "--fanout", &url, "--from", "0/0", "--until", &until];
    let error = load.stage.decant.decctl_unsuccessfully(&tail);
    assert_mentions(&error, &["open", first, "Input/output"]);
    load.wait_for_progress().await;
    load.stage.decant.heal();
    let lucky = GrpcSubscriber::start(url, from_lsn(Lsn::INVALID), Keep::Counts);
    let end = load.stage.settle().await;
    lucky.wait_for(end, patience()).await;
    load.finish().await;
}

/// A process may open nothing more: descriptors have the lowest number that is free, and must be below the limit.
fn take_descriptors(process: &Process) {
    set_limit(process, "3");
}

fn set_limit(process: &Process, limit: &str) {
    let mut command = Command::new("prlimit");
    command.args(["--pid", &process.id().to_string()]);
    command.arg(format!("--nofile={limit}:"));
    assert!(command.status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_file_descriptors_a_decoder_waits_until_there_are_some() {
    let mut load = Load::start(None, &[]).await;
    // Asked for before: a connection is a descriptor, too.
    let mut control = load.stage.decant.control().await;
    take_descriptors(load.stage.decant.decoder());
    let trouble = wait_until("the decoder waits", patience(), async || {
        let status = control.get_status(proto::v1::GetStatusRequest {}).await;
        // What it can't look at meanwhile is an answer as well.
        let log = status.map_err(|status| status.to_string())?.into_inner();
        let trouble = log.log.unwrap_or_default().trouble;
        if trouble.contains(".tmp") {
            Ok(trouble)
        } else {
            Err(trouble)
        }
    })
    .await;
    assert_mentions(&trouble, &["no file descriptor left", "LimitNOFILE"]);
    load.wait_for_commits(100).await;
    load.assert_nothing_is_confirmed_early().await;
    set_limit(load.stage.decant.decoder(), "1024");
    load.wait_for_progress().await;
    let running = load.stage.decant.decoder().exit_status();
    assert_eq!(running, None);
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_file_descriptors_a_fanout_takes_connections_later() {
    // No new segment meanwhile, which would have to be opened.
    let settings = [("log.segment_bytes", "268435456")];
    let mut load = Load::start(None, &settings).await;
    let endpoint = load.stage.decant.fanout(0).endpoint();
    take_descriptors(load.stage.decant.fanout(0).process());
    let (sql, url) = (endpoint.clone(), load.stage.decant.fanout(0).grpc_url());
    let waiting = tokio::spawn(async move { Session::connect(&sql).await.map(drop) });
    let late = GrpcSubscriber::start(url, from_lsn(Lsn::INVALID), Keep::Counts);
    wait_until("both endpoints wait", patience(), async || {
        let log = load.stage.decant.fanout(0).process().log_text();
        let words = ["fanout.grpc", "fanout.postgres"];
        let missing = words.iter().find(|words| !log.contains(**words));
        missing.map_or(Ok(()), |words| Err(format!("not yet: {words}")))
    })
    .await;
    // Who is there goes on.
    load.wait_for_progress().await;
    let log = load.stage.decant.fanout(0).process().log_text();
    assert!(log.matches("can't accept").count() < 10, "{log}");
    set_limit(load.stage.decant.fanout(0).process(), "1024");
    waiting.await.unwrap().unwrap();
    let end = load.stage.settle().await;
    late.wait_for(end, patience()).await;
    load.finish().await;
}

/// Ages of segments come from the time of day; a clock that somebody sets wrong must not take what slots hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_ahead_invalidates_nothing() {
    let settings = [
        ("retention.slot_keep_seconds_max", "3600"),
        ("retention.keep_seconds", "1800"),
        ("retention.keep_bytes", "1"),
        ("retention.interval_seconds", "1"),
    ];
    let mut load = Load::start(None, &settings).await;
    let create = ["slot", "create", "idle"];
    load.stage.decant.decctl_successfully(&create);
    wait_until("some segments are sealed", patience(), async || {
        let files = load.stage.decant.segment_files();
        let sealed = files.iter().filter(|name| name.ends_with(".seg")).count();
        if sealed > 3 {
            Ok(())
        } else {
            Err(sealed.to_string())
        }
    })
    .await;
    load.stage.decant.fault("clock 864000");
    wait_until("retention sees the clock", patience(), async || {
        let log = load.stage.decant.decoder().log_text();
        let seen = log.contains("the clock has jumped ahead");
        if seen {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    })
    .await;
    load.stage.decant.decctl_successfully(&["gc"]);
    let first = load.stage.decant.segment_files().remove(0);
    assert!(first.starts_with("0000000000000001-"), "{first}");
    let slots = load.stage.decant.decctl_successfully(&["slot", "list"]);
    assert!(!slots.contains("invalidated"), "{slots}");
    // Leases and pauses go by another clock.
    load.wait_for_progress().await;
    load.finish().await;
}
