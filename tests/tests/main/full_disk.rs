//! The log's file system is full under load: nothing is confirmed that is not safe, nothing is lost, and all goes on by itself
//! when there is room.

use std::path::{Path, PathBuf};
use std::process::Command;

use pg_proto::Lsn;
use tests::scale::patience;
use tests::subscriber::Keep;
use tests::workload::Pgbench;
use tests::{Cluster, wait_until};

use super::stage::Stage;

const TABLES: &str = "create table txs (id bigserial primary key, note text); \
    create table acc (id int primary key, n bigint)";
const SCRIPT: &str = "\\set a random(1, 100)\nbegin;\n\
    insert into txs (note) select repeat(md5(g::text), 20) from generate_series(1, 20) g;\n\
    update acc set n = n + 1 where id = :a;\nend;\n\\sleep 4 ms\n";

/// A small file system of its own. Unmounted when it is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where this process may not mount.
    fn mount(bytes: u64) -> Option<Self> {
        let folder = tempfile::Builder::new()
            .prefix("decant-small-disk-")
            .tempdir()
            .unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "decant"])
            .arg(folder.path())
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Self(folder))
    }

    fn log(&self) -> PathBuf {
        self.0.path().join("log")
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let path = self.ballast();
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap();
        let mut piece: &[u8] = &[0xAA; 1 << 16];
        while !piece.is_empty() {
            match std::io::Write::write(&mut &file, piece) {
                Ok(_) => {}
                Err(_) => piece = &piece[..piece.len() / 2],
            }
        }
    }

    fn make_room(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.0.path().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a program that a failed test left may still have files open.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_confirming_and_goes_on_when_there_is_room() {
    let Some(disk) = SmallDisk::mount(256 << 20) else {
        eprintln!("skipped: this process may not mount a file system");
        return;
    };
    let mut stage = stage(&disk.log()).await;
    let grpc = stage.grpc_subscriber(0, Keep::Rows);
    let rows = "insert into acc select g, 0 from generate_series(1, 100) g";
    stage.source.sql(rows).await;
    let pgbench = Pgbench::start_script(&stage.source, 2, SCRIPT);
    commits_since(&stage.source, 0, 100).await;

    for _ in 0..2 {
        disk.fill();
        wait_until("the decoder waits for room", patience(), async || {
            // A segment's own room is taken in advance: it may go on for a while.
            disk.fill();
            let log = stage.decant.decoder().log_text();
            let count = |words| log.matches(words).count();
            if count("waiting for room") > count("has room again") {
                Ok(())
            } else {
                Err(durable(&stage).await.to_string())
            }
        })
        .await;
        // The load goes on meanwhile.
        let count = commits(&stage.source).await;
        commits_since(&stage.source, count, 300).await;
        let sql = "select confirmed_flush_lsn from pg_replication_slots";
        let confirmed: Lsn = stage.source.value(sql).await.parse().unwrap();
        let durable = durable(&stage).await;
        assert!(
            confirmed <= durable,
            "{confirmed} is confirmed, {durable} is durable"
        );
        disk.make_room();
        stage.settle().await;
    }
    // A slot, so that the registry is asked to write too.
    stage
        .decant
        .decctl_successfully(&["slot", "create", "after"]);
    pgbench.stop_and_settle(&stage.source).await;
    let end = stage.settle().await;
    grpc.wait_for(end, patience()).await;
    grpc.assert_contents(&stage.source, &["txs", "acc"]).await;
    stage.decant.decctl_successfully(&["verify"]);
    stage.decant.stop_decoder().await;
    drop(stage);
}

async fn stage(log: &Path) -> Stage {
    let mut stage = Stage::with_fanout_settings(
        15,
        &[
            ("log.directory", log.to_str().unwrap()),
            ("log.segment_bytes", "1048576"),
        ],
        TABLES,
    )
    .await;
    stage.decant.wait_until_serving(0).await;
    stage
}

async fn durable(stage: &Stage) -> Lsn {
    Lsn(stage
        .decant
        .status()
        .await
        .log
        .unwrap_or_default()
        .durable_lsn)
}

async fn commits(source: &Cluster) -> u64 {
    let count = source.value("select count(*) from txs").await;
    count.parse::<u64>().unwrap() / 20
}

async fn commits_since(source: &Cluster, count: u64, more: u64) {
    wait_until("the load goes on", patience(), async || {
        let now = commits(source).await;
        if now >= count + more {
            Ok(())
        } else {
            Err(now.to_string())
        }
    })
    .await;
}
