//! Subscribers that wait.

use std::time::Duration;

use crate::cpu;
use crate::drain::Plan;
use crate::drainer::Drainer;
use crate::measure::{count, say};
use crate::memory;
use crate::outcome::{Outcome, Table, Target};
use crate::scale::Scale;
use crate::stage::Stage;
use crate::writer::Writer;

const ABOUT: &str = "Subscribers of a table in which nothing changes, on one fanout, while 1,000 commits per second go to another table. \
    They report every 10 s, as PostgreSQL's own subscribers do.";

const SUBSCRIBERS: u64 = 5_000;
const COMMITS_PER_SECOND: u32 = 1_000;
const MEASURED: Duration = Duration::from_secs(20);

/// What the fanout needed.
struct Measured {
    subscribers: usize,
    memory_before: memory::Peak,
    memory_after: memory::Peak,
    cpu_without: f64,
    cpu_with: f64,
    seconds: f64,
}

pub(super) async fn run(scale: Scale) -> Outcome {
    let subscribers = usize::try_from(scale.count(SUBSCRIBERS, 50.0)).unwrap_or(0);
    let mut stage = Stage::start(2).await;
    say(&format!("{subscribers} slots"));
    stage.create_decant_slots("idle", subscribers).await;
    let fanout = stage.decant.fanout(0).process().id();
    let measured = scale.time(MEASURED);
    say("the source is busy, nobody listens");
    let writer = Writer::start(&stage.source, 0, COMMITS_PER_SECOND).await;
    let cpu_without = cpu_during(fanout, measured).await;
    let memory_before = memory::now(fanout);
    say(&format!("{subscribers} subscribers"));
    let mut plan = Plan::new(stage.fanout(0), "idle", "rows_1", subscribers);
    plan.confirm = true;
    // They would be busy with nothing else.
    plan.ask_interval_ms = 2_000;
    let mut drainer = Drainer::connect(&plan).await;
    drainer.go().await;
    let cpu_with = cpu_during(fanout, measured).await;
    let memory_after = memory::now(fanout);
    writer.stop().await;
    let end = stage.end_of_wal().await;
    // Returns when every single one has been told that it is there.
    let report = drainer.receive_until(end).await;
    assert_eq!(report.rows, 0, "nothing was published");
    outcome(&Measured {
        subscribers,
        memory_before,
        memory_after,
        cpu_without,
        cpu_with,
        seconds: measured.as_secs_f64(),
    })
}

async fn cpu_during(process: u32, time: Duration) -> f64 {
    let before = cpu::of_process(process);
    tokio::time::sleep(time).await;
    cpu::of_process(process) - before
}

fn outcome(found: &Measured) -> Outcome {
    let subscribers = count(found.subscribers as u64);
    let each = |after: u64, before: u64| count(after.saturating_sub(before)) / 1024.0 / subscribers;
    let resident = each(found.memory_after.resident, found.memory_before.resident);
    let anonymous = each(found.memory_after.anonymous, found.memory_before.anonymous);
    let cpu = (found.cpu_with - found.cpu_without) / found.seconds / subscribers * 1e6;
    let mut table = Table::new(
        &format!("{} idle subscribers", found.subscribers),
        &["what", "value"],
    );
    table.row([
        "fanout, resident without them, MB".into(),
        (count(found.memory_before.resident) / 1e6).into(),
    ]);
    table.row([
        "fanout, resident with them, MB".into(),
        (count(found.memory_after.resident) / 1e6).into(),
    ]);
    table.row(["each, resident, KB".into(), resident.into()]);
    table.row(["each, without mapped files, KB".into(), anonymous.into()]);
    table.row([
        "fanout CPU without them, % of a processor".into(),
        (found.cpu_without / found.seconds * 100.0).into(),
    ]);
    table.row([
        "fanout CPU with them, % of a processor".into(),
        (found.cpu_with / found.seconds * 100.0).into(),
    ]);
    table.row(["each, CPU, us/s".into(), cpu.into()]);
    Outcome {
        about: ABOUT.to_owned(),
        tables: vec![table],
        targets: vec![Target::at_most("resident memory of an idle subscriber", resident, 64.0, "KB")],
        notes: vec![
            "Every subscriber was told the position behind the last commit, although nothing in between was for it.".to_owned(),
        ],
        ..Outcome::default()
    }
}
