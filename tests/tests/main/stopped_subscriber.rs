//! A subscriber that is away costs nobody anything, and gets all of it later.

use tests::cluster::Stop;
use tests::scale::{patience, pick};
use tests::wait_until;
use tests::workload::{PGBENCH_TABLES, Pgbench, fill_pgbench_tables};

use super::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_subscriber_holds_nothing_and_catches_up() {
    let mut stage = Stage::with_pgbench(15, 1).await;
    let mut stopped = stage.pgbench_subscriber("stopped", 15, 0).await;
    let running = stage.pgbench_subscriber("running", 15, 0).await;
    stopped.cluster.stop(Stop::Fast).await;

    fill_pgbench_tables(&stage.source, 1);
    Pgbench::start(&stage.source, 4, pick(2_000, 100_000))
        .finish(patience())
        .await;
    running
        .wait_for_contents(&stage.source, &PGBENCH_TABLES, patience())
        .await;
    wait_until(
        "the source's slot is at the head",
        patience(),
        async || match stage.source.wal_held_bytes().await {
            held if held < 100_000 => Ok(()),
            held => Err(format!("{held} bytes of WAL are held")),
        },
    )
    .await;

    stopped.cluster.start().await;
    stopped
        .wait_for_contents(&stage.source, &PGBENCH_TABLES, patience())
        .await;
}
