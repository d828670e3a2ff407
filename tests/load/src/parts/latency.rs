//! From a commit to its receipt.

use std::time::Duration;

use crate::drain::{Plan, Quantiles, Server};
use crate::drainer::Drainer;
use crate::measure::{count, say};
use crate::outcome::{Chart, Outcome, Table, Target};
use crate::scale::Scale;
use crate::stage::Stage;
use crate::writer::Writer;

const ABOUT: &str = "1,000 commits of one row per second, evenly spaced. Latency is from the commit's own time stamp, which the source \
    takes before it makes the commit durable, to the receipt of COMMIT; both by the same clock. `durable`: the fanout serves what is \
    fsynced in the log; `written`: what is written.";

const SUBSCRIBERS: [usize; 3] = [1, 16, 64];
const COMMITS_PER_SECOND: u32 = 1_000;
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(8);

/// One run.
struct Measured {
    subscribers: usize,
    who: &'static str,
    commits_per_second: f64,
    latency: Quantiles,
}

/// What all runs share.
struct Load {
    next_id: u64,
    measured: Duration,
}

pub(super) async fn run(scale: Scale) -> Outcome {
    let mut stage = Stage::start(1).await;
    let mut load = Load {
        next_id: 0,
        measured: scale.time(MEASURED),
    };
    let numbers = scale.subscribers(&SUBSCRIBERS);
    let mut all = Vec::new();
    // Whatever is not measured is not there either.
    stage.decant.stop_fanout(0).await;
    stage.decant.stop_decoder().await;
    for subscribers in &numbers {
        let slots = format!("native{subscribers}");
        stage.create_native_slots(&slots, *subscribers).await;
        let server = stage.native();
        all.push(
            load.measure(&stage, server, "native", &slots, *subscribers)
                .await,
        );
        stage.drop_native_slots(&slots).await;
    }
    stage.decant.start_decoder().await;
    for (fanout, serve) in ["durable", "written"].into_iter().enumerate() {
        stage.decant.set("fanout.serve", serve);
        if fanout == 0 {
            stage.decant.restart_fanout(0).await;
        } else {
            stage.decant.stop_fanout(0).await;
            stage.decant.start_fanout().await;
        }
        for subscribers in &numbers {
            let slots = format!("{serve}{subscribers}");
            stage.create_decant_slots(&slots, *subscribers).await;
            let server = stage.fanout(fanout);
            all.push(
                load.measure(&stage, server, serve, &slots, *subscribers)
                    .await,
            );
        }
    }
    outcome(&all)
}

impl Load {
    async fn measure(
        &mut self,
        stage: &Stage,
        server: Server,
        who: &'static str,
        slots: &str,
        subscribers: usize,
    ) -> Measured {
        say(&format!("{subscribers} {who}"));
        let mut plan = Plan::new(server, slots, "everything", subscribers);
        plan.latencies = true;
        plan.confirm = true;
        let mut drainer = Drainer::connect(&plan).await;
        drainer.go().await;
        let warm_up = Writer::start(&stage.source, self.next_id, COMMITS_PER_SECOND).await;
        tokio::time::sleep(WARM_UP).await;
        self.next_id += 2 * warm_up.stop().await + 1_000;
        drainer.receive_until(stage.end_of_wal().await).await;
        let writer = Writer::start(&stage.source, self.next_id, COMMITS_PER_SECOND).await;
        tokio::time::sleep(self.measured).await;
        let commits_per_second = writer.rate();
        self.next_id += 2 * writer.stop().await + 1_000;
        // What is late counts, too.
        let report = drainer.receive_until(stage.end_of_wal().await).await;
        Measured {
            subscribers,
            who,
            commits_per_second,
            latency: report.latency,
        }
    }
}

fn outcome(all: &[Measured]) -> Outcome {
    let find = |who: &str, subscribers: usize| {
        let mut found = all
            .iter()
            .filter(|run| run.who == who && run.subscribers == subscribers);
        found.next().map(|run| run.latency).unwrap_or_default()
    };
    let most = all.iter().map(|run| run.subscribers).max().unwrap_or(1);
    let native = find("native", 1);
    let added = |who: &str| (find(who, 1).p50 - native.p50) / 1e3;
    let mut table = Table::new(
        "Commit to receipt, ms",
        &["N", "who", "p50", "p99", "p99.9", "max", "commits/s"],
    );
    for run in all {
        let mut cells = vec![run.subscribers.into(), run.who.into()];
        let Quantiles {
            p50,
            p99,
            p999,
            max,
            ..
        } = run.latency;
        cells.extend([p50, p99, p999, max].map(|value| (value / 1e3).into()));
        cells.push(run.commits_per_second.into());
        table.row(cells);
    }
    let line = |who: &str| -> Vec<(f64, f64)> {
        let runs = all.iter().filter(|run| run.who == who);
        runs.map(|run| (count(run.subscribers as u64), run.latency.p99 / 1e3))
            .collect()
    };
    Outcome {
        about: ABOUT.to_owned(),
        tables: vec![table],
        charts: vec![
            Chart::new("latency", "p99 from commit to receipt", "subscribers", "ms")
                .with("native", line("native"))
                .with("Decant, durable", line("durable"))
                .with("Decant, written", line("written")),
        ],
        targets: vec![
            Target::at_most(
                "p50 above native, durable, N = 1",
                added("durable"),
                0.6,
                "ms",
            ),
            Target::at_most(
                "p50 above native, written, N = 1",
                added("written"),
                0.25,
                "ms",
            ),
            Target::at_most(
                format!("p99 / native p99, durable, N = {most}"),
                find("durable", most).p99 / find("native", most).p99,
                1.0,
                "",
            ),
        ],
        ..Outcome::default()
    }
}
