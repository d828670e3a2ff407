//! Real disks that fail under the log: one that hangs, one that loses what it took, one that delivers nothing, and one that
//! is read-only. Skipped where this process may not mount.

use std::path::PathBuf;

use pg_proto::Lsn;
use tests::expect::assert_mentions;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, from_lsn};
use tests::wait_until;

use super::disks::{LoopDisk, SmallDisk};
use super::load::Load;

const DISK_BYTES: u64 = 512 << 20;

/// A disk in memory that has room for all of it.
fn disk() -> Option<(SmallDisk, LoopDisk)> {
    let below = SmallDisk::mount(DISK_BYTES * 2)?;
    let disk = LoopDisk::mount(below.path(), DISK_BYTES);
    if disk.is_none() {
        eprintln!("skipped: this process may not mount a file system of a file");
    }
    Some((below, disk?))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_hangs_is_waited_for_and_told_of() {
    let Some((_below, mut disk)) = disk() else {
        return;
    };
    let load = Load::start(Some(&disk.log()), &[]).await;
    load.wait_for_progress().await;
    let walsender = "select active_pid from pg_replication_slots";
    let before = load.stage.source.value(walsender).await;
    disk.freeze();
    wait_until("the decoder says so", patience(), async || {
        let answer = load.stage.decant.readiness().await;
        if answer.contains("503") && answer.contains("the log's disk has not answered for") {
            Ok(())
        } else {
            Err(answer)
        }
    })
    .await;
    let metrics = load.stage.decant.metrics().await;
    assert_mentions(&metrics, &["decant_decoder_log_stalled 1"]);
    let status = load.stage.decant.decctl_successfully(&["status"]);
    assert_mentions(&status, &["trouble", "has not answered", "streaming"]);
    load.wait_for_commits(100).await;
    load.assert_nothing_is_confirmed_early().await;
    // The source is answered all the time, so it keeps the connection.
    assert_eq!(load.stage.source.value(walsender).await, before);
    disk.thaw();
    load.wait_for_progress().await;
    assert_mentions(&load.stage.decant.readiness().await, &["200", "ready"]);
    assert_eq!(load.stage.source.value(walsender).await, before);
    load.finish().await;
}

/// As one that is provisioned thinly does: it takes writes into memory, and when they are to be kept there is no room.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_loses_what_it_took_ends_the_decoder() {
    let Some((below, disk)) = disk() else {
        return;
    };
    let mut load = Load::start(Some(&disk.log()), &[]).await;
    load.wait_for_progress().await;
    below.fill();
    let status = load.stage.decant.decoder().wait_for_exit(patience()).await;
    let log = load.stage.decant.decoder().log_text();
    assert_eq!(status.code(), Some(1), "{status}\n{log}");
    assert_mentions(log.lines().last().unwrap(), &["decoder: ", "can't "]);
    load.assert_nothing_is_confirmed_early().await;
    load.wait_for_commits(100).await;

    load.stage.decant.kill_fanout(0);
    below.make_room();
    disk.replace();
    load.stage.decant.start_decoder().await;
    load.stage.decant.restart_fanout(0).await;
    load.wait_for_progress().await;
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_disk_does_not_deliver_is_an_error_for_who_wants_it() {
    let Some((_below, mut disk)) = disk() else {
        return;
    };
    let mut load = Load::start(Some(&disk.log()), &[("fanout.cache_bytes", "1048576")]).await;
    load.wait_for_commits(1500).await;
    load.wait_for_progress().await;

    // A log that can't be written: the decoder refuses, and fanouts serve what there is, also those that begin then.
    load.stage.decant.stop_decoder().await;
    // It may have files open that are deleted, and go with the last who has.
    load.stage.decant.kill_fanout(0);
    disk.remount("ro");
    let error = load.stage.decant.decoder_error().await;
    assert_mentions(error.lines().last().unwrap(), &["Read-only file system"]);
    load.stage.decant.restart_fanout(0).await;
    let url = load.stage.decant.fanout(0).grpc_url();
    let start = |lsn| GrpcSubscriber::start(url.clone(), from_lsn(lsn), Keep::Counts);
    let end = load.durable();
    start(Lsn::INVALID).wait_for(end, patience()).await;
    load.assert_nothing_is_confirmed_early().await;

    // A disk that delivers nothing: who wants what is not in memory is told so, and the others go on.
    load.stage.decant.kill_fanout(0);
    let log = disk.log().join("segments");
    let names = load.stage.decant.segment_files();
    let files: Vec<PathBuf> = names.iter().map(|name| log.join(name)).collect();
    let sealed = names.iter().filter(|name| name.ends_with(".seg")).count();
    assert!(sealed > 3, "{names:?}");
    let is_sealed = |path: &PathBuf| path.extension().is_none_or(|other| other != "active");
    let (gone, kept): (Vec<_>, Vec<_>) = files.into_iter().partition(is_sealed);
    for path in kept {
        std::fs::read(path).unwrap();
    }
    disk.tear(&gone);
    load.stage.decant.restart_fanout(0).await;
    let until = end.to_string();
    let tail = ["tail", "--fanout", &url, "--from", "0/0", "--until", &until];
    let unlucky = load.stage.decant.decctl_unsuccessfully(&tail);
    assert_mentions(&unlucky, &["can't read", ".seg", "Input/output"]);
    let last = load.grpc.look(|all| all.transactions.last().unwrap().0);
    start(last).wait_for(end, patience()).await;
    let running = load.stage.decant.fanout(0).process().exit_status();
    assert_eq!(running, None);
    disk.mend();
    start(Lsn::INVALID).wait_for(end, patience()).await;

    disk.remount("rw");
    load.stage.decant.start_decoder().await;
    load.wait_for_progress().await;
    load.finish().await;
}
