//! `kill -9` of each part in the middle of a run: everything arrives, nothing twice.
//!
//! The gRPC subscriber's model refuses a row that comes twice, a PostgreSQL subscriber stops with an error; so
//! equal contents in the end mean that nothing was lost and nothing was doubled.

use tests::scale::{patience, pick};
use tests::subscriber::{GrpcSubscriber, Keep, PostgresSubscriber};
use tests::wait_until;
use tests::workload::{PGBENCH_TABLES, Pgbench, fill_pgbench_tables};

use super::stage::{SlotWatch, Stage};

/// How often each victim is killed.
fn rounds() -> u32 {
    pick(3, 10)
}

struct Run {
    stage: Stage,
    subscriber: PostgresSubscriber,
    grpc: GrpcSubscriber,
    pgbench: Pgbench,
}

impl Run {
    async fn start() -> Self {
        let mut stage = Stage::with_pgbench(15, 1).await;
        let subscriber = stage.pgbench_subscriber("sub", 15, 0).await;
        let grpc = stage.grpc_subscriber(0, Keep::Rows);
        fill_pgbench_tables(&stage.source, 1);
        let pgbench = Pgbench::start_endless(&stage.source, 4);
        Self {
            stage,
            subscriber,
            grpc,
            pgbench,
        }
    }

    /// Waits until both subscribers have received more of the run, so that a kill meets everybody at work.
    async fn wait_for_progress(&self) {
        let before = self.grpc.look(|received| received.transactions.len());
        wait_until("transactions arrive", patience(), async || {
            let seen = self.grpc.look(|received| received.transactions.len());
            if seen > before + 200 {
                Ok(())
            } else {
                Err(format!("{seen} transactions"))
            }
        })
        .await;
        let sql = "select count(*) from pgbench_history";
        let before: u64 = self.subscriber.cluster.value(sql).await.parse().unwrap();
        wait_until(
            "the PostgreSQL subscriber applies",
            patience(),
            async || {
                let seen: u64 = self.subscriber.cluster.value(sql).await.parse().unwrap();
                if seen > before {
                    Ok(())
                } else {
                    Err(format!("{seen} rows"))
                }
            },
        )
        .await;
    }

    async fn finish(self) {
        let source = &self.stage.source;
        self.pgbench.stop_and_settle(source).await;
        let end = self.stage.settle().await;
        self.grpc.wait_for(end, patience()).await;
        self.grpc.assert_contents(source, &PGBENCH_TABLES).await;
        self.subscriber
            .wait_for_contents(source, &PGBENCH_TABLES, patience())
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_decoder() {
    let mut run = Run::start().await;
    let watch = SlotWatch::start(&run.stage.source).await;
    for _ in 0..rounds() {
        run.wait_for_progress().await;
        run.stage.decant.kill_decoder();
        run.stage.decant.start_decoder().await;
    }
    run.wait_for_progress().await;
    watch.assert_one().await;
    run.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_fanout() {
    let mut run = Run::start().await;
    for _ in 0..rounds() {
        run.wait_for_progress().await;
        run.stage.decant.kill_fanout(0);
        run.stage.decant.restart_fanout(0).await;
    }
    run.wait_for_progress().await;
    run.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_subscriber() {
    let mut run = Run::start().await;
    for _ in 0..rounds() {
        run.wait_for_progress().await;
        run.subscriber.cluster.kill().await;
        run.subscriber.cluster.start().await;
    }
    run.wait_for_progress().await;
    run.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_source() {
    let mut run = Run::start().await;
    for _ in 0..rounds() {
        run.wait_for_progress().await;
        run.stage.source.kill().await;
        run.stage.source.start().await;
        run.pgbench.stop();
        run.pgbench = Pgbench::start_endless(&run.stage.source, 4);
    }
    run.wait_for_progress().await;
    run.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_everything_at_once() {
    let mut run = Run::start().await;
    for _ in 0..rounds() {
        run.wait_for_progress().await;
        run.stage.decant.kill_decoder();
        run.stage.decant.kill_fanout(0);
        run.subscriber.cluster.kill().await;
        run.stage.source.kill().await;
        run.pgbench.stop();
        run.subscriber.cluster.start().await;
        run.stage.decant.spawn_fanout(0);
        run.stage.decant.spawn_decoder();
        run.stage.source.start().await;
        run.stage.decant.wait_until_streaming().await;
        run.pgbench = Pgbench::start_endless(&run.stage.source, 4);
    }
    run.wait_for_progress().await;
    run.finish().await;
}
