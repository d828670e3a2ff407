//! A subscriber that comes back after a long time.

use std::time::Duration;

use crate::backlog::Backlog;
use crate::drain::{Plan, Quantiles};
use crate::drainer::Drainer;
use crate::measure::{Run, say};
use crate::outcome::{Outcome, Table, Target};
use crate::scale::Scale;
use crate::stage::Stage;
use crate::writer::Writer;

const ABOUT: &str = "One subscriber reads a long sealed history while 1,000 commits of one row per second go on at the head, where another \
    one follows; then a native slot decodes the same WAL under the same load.";

const ROWS: u64 = 10_000_000;
const COMMITS_PER_SECOND: u32 = 1_000;
/// The head alone, before.
const QUIET: Duration = Duration::from_secs(8);
/// The follower's p99 may differ so much between two quiet runs.
const NOISE: f64 = 1.5;

pub(super) async fn run(scale: Scale) -> Outcome {
    let mut stage = Stage::start(1).await;
    let mut next_row = 0;
    let rows = scale.rows(ROWS);
    let history = Backlog::make(&stage, "history", &mut next_row, rows, 1).await;
    stage.wait_until_sealed().await;
    stage.create_decant_slots("head", 1).await;
    let mut follower = Plan::new(stage.fanout(0), "head", "everything", 1);
    follower.latencies = true;
    follower.confirm = true;
    let mut follower = Drainer::connect(&follower).await;
    follower.go().await;
    let writer = Writer::start(&stage.source, next_row, COMMITS_PER_SECOND).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    follower.latencies().await;
    say("the head alone");
    tokio::time::sleep(scale.time(QUIET)).await;
    let quiet = follower.latencies().await;
    let decant = read(&mut stage, &history, true).await;
    let busy = follower.latencies().await;
    let native = read(&mut stage, &history, false).await;
    let beside_native = follower.latencies().await;
    writer.stop().await;
    outcome(rows, [&native, &decant], [quiet, busy, beside_native])
}

/// Reads the history; what is behind it comes, too, and is not waited for.
async fn read(stage: &mut Stage, history: &Backlog, through_decant: bool) -> Run {
    let server = if through_decant {
        say("the history, through Decant");
        stage.fanout(0)
    } else {
        say("the history, native");
        stage.native()
    };
    let plan = history.plan(server, 1);
    let fanout = stage.decant.fanout(0).process().id();
    let run = crate::measure::drain(&plan, history.end, async || {
        if through_decant {
            vec![fanout]
        } else {
            stage.native_walsenders().await
        }
    })
    .await;
    assert!(run.report.rows >= history.rows, "the whole history came");
    run
}

fn outcome(
    rows: u64,
    [native, decant]: [&Run; 2],
    [quiet, busy, beside_native]: [Quantiles; 3],
) -> Outcome {
    let mut speed = Table::new(
        &format!("{rows} rows of history"),
        &["who", "s", "rows/s", "server CPU, us/row"],
    );
    for (who, run) in [("native", native), ("Decant", decant)] {
        speed.row([
            who.into(),
            run.report.seconds.into(),
            run.rows_per_second().into(),
            run.server_us().into(),
        ]);
    }
    let mut head = Table::new(
        "The follower at the head, commit to receipt, ms",
        &["while", "p50", "p99", "p99.9"],
    );
    for (what, found) in [
        ("nobody catches up", quiet),
        ("the history is read through Decant", busy),
        ("a native slot reads it", beside_native),
    ] {
        let mut cells = vec![what.into()];
        cells.extend([found.p50, found.p99, found.p999].map(|value| (value / 1e3).into()));
        head.row(cells);
    }
    Outcome {
        about: ABOUT.to_owned(),
        tables: vec![speed, head],
        targets: vec![
            Target::at_least(
                "rows/s, Decant / native",
                decant.rows_per_second() / native.rows_per_second(),
                20.0,
                "",
            ),
            Target::at_most(
                "p99 of the follower at the head, while the history is read / before",
                busy.p99 / quiet.p99,
                NOISE,
                "",
            ),
        ],
        ..Outcome::default()
    }
}
