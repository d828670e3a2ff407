//! Progress while the load runs and until both subscribers have everything.

use std::time::{Duration, Instant};

use pg_proto::Lsn;
use tests::workload::Pgbench;

use super::stage::{SUBSCRIPTION, Stage};

const INTERVAL: Duration = Duration::from_secs(1);

/// Prints a line every second. Returns when the load has ended and both subscribers have reached the source's
/// position; whether the source had exactly one slot all the time. Panics after `catch_up` without that.
pub(super) async fn watch(stage: &mut Stage, load: &mut Pgbench, catch_up: Duration) -> bool {
    let started = Instant::now();
    let mut ended: Option<(Instant, Lsn)> = None;
    let mut one_slot = true;
    println!(
        "{:>5}  {:<12} {:<12} {:>16} {:>16} {:>6}",
        "time", "source", "log", "PostgreSQL lag", "gRPC lag", "slots"
    );
    loop {
        let source = stage.source.flush_lsn().await;
        if ended.is_none() && load.has_ended() {
            ended = Some((Instant::now(), source));
        }
        let slots = stage.source.slot_count().await;
        one_slot &= slots == 1;
        let applied = applied(stage).await;
        let received = stage.grpc.look(|seen| seen.position);
        let log = Lsn(stage
            .decant
            .status()
            .await
            .log
            .unwrap_or_default()
            .durable_lsn);
        println!(
            "{:>3} s  {:<12} {:<12} {:>14} B {:>14} B {slots:>6}",
            started.elapsed().as_secs(),
            source.to_string(),
            log.to_string(),
            source.bytes_since(applied),
            source.bytes_since(received),
        );
        if let Some((at, end)) = ended {
            if applied >= end && received >= end {
                return one_slot;
            }
            assert!(
                at.elapsed() < catch_up,
                "the subscribers did not reach {end} within {catch_up:?}"
            );
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn applied(stage: &Stage) -> Lsn {
    let sql = format!(
        "select coalesce(max(latest_end_lsn), '0/0') from pg_stat_subscription where subname = '{SUBSCRIPTION}'"
    );
    stage
        .subscriber
        .cluster
        .value(&sql)
        .await
        .parse()
        .expect("the server prints positions")
}
