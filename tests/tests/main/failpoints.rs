//! `kill -9` of the decoder at every named place, and of decoder and fanout at random moments, under load.
//!
//! The checker knows every commit of the source: each is a row of a table. The gRPC subscriber's model refuses a row
//! that comes twice and a transaction out of order; so equal tables in the end mean that nothing was lost, doubled or
//! out of order.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use storage_format::failpoint;
use tests::scale::{crashes, patience};
use tests::subscriber::{GrpcSubscriber, Keep};
use tests::workload::Pgbench;
use tokio::task::JoinHandle;

use super::stage::Stage;

const TABLES: &str = "create table txs (id bigserial primary key, note text); \
    create table acc (id int primary key, n bigint); \
    create table bulk (id bigint primary key, v text)";
const SCRIPT: &str = "\\set a random(1, 100)\nbegin;\ninsert into txs (note) values ('x');\n\
    update acc set n = n + 1 where id = :a;\nend;\n\\sleep 4 ms\n";

/// Whether the decoder is far behind the source.
const FAR_BEHIND: &str =
    "select pg_current_wal_lsn() - confirmed_flush_lsn > 64 * 1048576 from pg_replication_slots";

struct Run {
    stage: Stage,
    grpc: GrpcSubscriber,
    pgbench: Pgbench,
    bulk: Bulk,
    /// Those that may exist.
    slots: Vec<String>,
    slots_named: u32,
    kills: u32,
}

/// Transactions that are streamed before they commit and fill segments, one after the other.
struct Bulk {
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Bulk {
    async fn start(stage: &Stage) -> Self {
        let mut session = stage.source.session().await;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut step: u64 = 0;
            while !stopped.load(Ordering::Relaxed) {
                let first = step * 10_000;
                let sql = format!(
                    "begin; insert into bulk select g, md5(g::text) || md5((g * 3)::text) \
                     from generate_series({first}, {first} + 5000) g; savepoint s; \
                     insert into bulk select g, 'gone' from generate_series({first} + 6000, {first} + 6500) g; \
                     rollback to s; delete from bulk where id < {first}; commit"
                );
                session.run(&sql).await;
                step += 1;
                tokio::time::sleep(Duration::from_millis(150)).await;
                // Else hundreds of kills leave a backlog that takes longer than they did, and all of them are far from the head.
                while !stopped.load(Ordering::Relaxed) && session.value(FAR_BEHIND).await == "t" {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
    }
}

impl Run {
    async fn start() -> Self {
        let settings = [("logical_decoding_work_mem", "64kB")];
        let mut stage = Stage::with_settings(15, &settings, 0, TABLES).await;
        stage.decant.stop_decoder().await;
        stage.decant.set("log.segment_bytes", 1 << 20);
        stage.decant.set("retention.keep_seconds", 0);
        stage.decant.set("retention.keep_bytes", 0);
        stage.decant.set("retention.interval_seconds", 1);
        stage.decant.start_decoder().await;
        stage.decant.start_fanout().await;
        // What the subscriber has not confirmed is kept, however far it falls behind while all others are killed.
        let slot = ["slot", "create", "checker"];
        stage.decant.decctl_successfully(&slot);
        let mut grpc = stage.grpc_subscriber(0, Keep::Rows);
        grpc.confirm_to(stage.decant.fanout(0).grpc_url(), "checker");
        // Now that the log begins before it.
        let rows = "insert into acc select g, 0 from generate_series(1, 100) g";
        stage.source.sql(rows).await;
        let pgbench = Pgbench::start_script(&stage.source, 2, SCRIPT);
        let bulk = Bulk::start(&stage).await;
        stage.decant.kill_decoder();
        Self {
            stage,
            grpc,
            pgbench,
            bulk,
            slots: Vec::new(),
            slots_named: 0,
            kills: 0,
        }
    }

    /// Starts the decoder, which must die at the place.
    async fn die_at(&mut self, failpoint: &str, count: u32) {
        // Shown when the test fails.
        eprintln!("kill {}: {failpoint}, time {count}", self.kills + 1);
        self.stage.decant.spawn_decoder_to_die_at(failpoint, count);
        let deadline = Instant::now() + patience();
        let status = loop {
            if let Some(status) = self.stage.decant.decoder().exit_status() {
                break status;
            }
            self.grpc.look(|_| ());
            if Instant::now() > deadline {
                let kept = self.stage.decant.decctl(&["gc", "--dry-run"]);
                let kept = String::from_utf8_lossy(&kept.stdout);
                panic!("{failpoint} is never met\n{kept}");
            }
            // What moves the registry, and lets segments go.
            if failpoint.starts_with("registry") || failpoint.starts_with("gc") {
                self.move_slot();
            } else if failpoint.starts_with("publications") {
                self.make_publication();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let log = self.stage.decant.decoder().log_text();
        assert_eq!(status.signal(), Some(9), "{failpoint}: {status}\n{log}");
        self.kills += 1;
    }

    /// A slot at the head, and none before. Whether the decoder is there to hear of it does not matter: a slot that it
    /// made without an answer before it died, or was not asked to drop, is dropped the next time.
    fn move_slot(&mut self) {
        self.slots_named += 1;
        let new = format!("s{}", self.slots_named);
        let decant = &self.stage.decant;
        let made = decant.decctl(&["slot", "create", &new]).status.success();
        if made {
            self.slots.retain(|old| {
                let dropped = decant.decctl(&["slot", "drop", old]);
                let answer = String::from_utf8_lossy(&dropped.stderr);
                !dropped.status.success() && !answer.contains("does not exist")
            });
        }
        self.slots.push(new);
    }

    /// Whether the decoder is there to hear of it does not matter.
    fn make_publication(&self) {
        let decctl = |what, more: &[&str]| {
            let all = [&["publication", what, "p"], more].concat();
            self.stage.decant.decctl(&all).status.success()
        };
        if !decctl("create", &["--table", "acc"]) {
            decctl("drop", &[]);
        }
    }

    async fn finish(mut self, what: &str) {
        self.stage.decant.start_decoder().await;
        self.bulk.stop().await;
        self.pgbench.stop_and_settle(&self.stage.source).await;
        let end = self.stage.settle().await;
        self.grpc.wait_for(end, patience()).await;
        let tables = ["txs", "acc", "bulk"];
        self.grpc.assert_contents(&self.stage.source, &tables).await;
        let in_order = self.grpc.look(|seen| {
            let mut pairs = seen.transactions.windows(2);
            pairs.all(|pair| pair[0].1 <= pair[1].0)
        });
        assert!(in_order);
        let commits = self.stage.source.value("select count(*) from txs").await;
        self.stage.decant.decctl_successfully(&["verify"]);
        let kills = self.kills;
        eprintln!("{what}: {kills} kills, {commits} commits: 0 lost, 0 doubled, 0 out of order");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_every_failpoint() {
    let mut run = Run::start().await;
    let places = u32::try_from(failpoint::ALL.len()).unwrap();
    for round in 0..crashes(places, 8 * places).div_ceil(places) {
        for failpoint in failpoint::ALL {
            // Those that are met all the time are met at some later time, too.
            let often = ["append.", "fsync", "watermark", "confirm", "staging"];
            let often = often.iter().any(|prefix| failpoint.starts_with(prefix));
            let count = if often {
                1 + round % 8 * 7
            } else {
                1 + round % 2
            };
            run.die_at(failpoint, count).await;
        }
    }
    run.finish("every failpoint").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_random_moments() {
    let mut run = Run::start().await;
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    let mut random = seed;
    for _ in 0..crashes(10, 500) {
        // Knuth's MMIX generator; the low bits are poor.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let draw = random >> 33;
        run.grpc.look(|_| ());
        run.stage.decant.spawn_decoder();
        tokio::time::sleep(Duration::from_millis(20 + draw % 700)).await;
        if draw.is_multiple_of(3) {
            run.stage.decant.kill_fanout(0);
            run.stage.decant.spawn_fanout(0);
            run.kills += 1;
        }
        run.stage.decant.kill_decoder();
        run.kills += 1;
    }
    run.stage.decant.wait_until_serving(0).await;
    run.finish("random moments").await;
}
