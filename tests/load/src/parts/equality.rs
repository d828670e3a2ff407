//! Many subscribers of one table, each with a row filter by equality.

use std::fmt::Write as _;
use std::time::Duration;

use crate::cpu;
use crate::drain::Plan;
use crate::drainer::Drainer;
use crate::measure::{count, say};
use crate::outcome::{Outcome, Table, Target};
use crate::scale::Scale;
use crate::stage::Stage;
use crate::writer::Writer;

const ABOUT: &str = "N subscribers of one table, each with a publication `where (account = <its own>)`, while 1,000 rows per second are \
    committed one by one. All of them are the first subscriber's: each change is for one subscriber, whatever N is.";

const SUBSCRIBERS: [usize; 4] = [1, 10, 100, 1_000];
const COMMITS_PER_SECOND: u32 = 1_000;
const MEASURED: Duration = Duration::from_secs(15);
/// Until nobody has anything left to do with its beginning.
const WARM_UP: Duration = Duration::from_secs(2);

/// One run.
struct Measured {
    subscribers: usize,
    changes: u64,
    cpu: f64,
}

impl Measured {
    fn per_change_us(&self) -> f64 {
        self.cpu * 1e6 / count(self.changes)
    }
}

pub(super) async fn run(scale: Scale) -> Outcome {
    let numbers = scale.subscribers(&SUBSCRIBERS);
    let most = numbers.iter().copied().max().unwrap_or(1);
    let mut stage = Stage::without_programs(1).await;
    let mut sql = String::new();
    // The writer's rows are all of account 1.
    for number in 0..most {
        write!(
            sql,
            "create publication equal_{number} for table rows_0 where (account = {}) with (publish = 'insert');",
            number + 1
        )
        .expect("text can be written");
    }
    // Before `decctl init`: each of them would state all the others in the log.
    stage.source.sql(&sql).await;
    stage.decant.initialise_and_start().await;
    stage.decant.start_fanout().await;
    let mut next_id = 0;
    let mut all = Vec::new();
    for subscribers in numbers {
        say(&format!("{subscribers} subscribers"));
        all.push(measure(&mut stage, subscribers, scale.time(MEASURED), &mut next_id).await);
    }
    outcome(&all)
}

async fn measure(
    stage: &mut Stage,
    subscribers: usize,
    time: Duration,
    next_id: &mut u64,
) -> Measured {
    let prefix = format!("equal{subscribers}");
    stage.create_decant_slots(&prefix, subscribers).await;
    let fanout = stage.decant.fanout(0).process().id();
    let mut plan = Plan::new(stage.fanout(0), &prefix, "", subscribers);
    plan.confirm = true;
    plan.ask_interval_ms = 2_000;
    for (number, subscription) in plan.subscriptions.iter_mut().enumerate() {
        subscription.publication = format!("equal_{number}");
    }
    let mut drainer = Drainer::connect(&plan).await;
    drainer.go().await;
    let warm_up = Writer::start(&stage.source, *next_id, COMMITS_PER_SECOND).await;
    tokio::time::sleep(WARM_UP).await;
    let warm = warm_up.stop().await;
    *next_id += 4 * warm + 1_000;
    drainer.receive_until(stage.end_of_wal().await).await;
    let before = cpu::of_process(fanout);
    let writer = Writer::start(&stage.source, *next_id, COMMITS_PER_SECOND).await;
    tokio::time::sleep(time).await;
    let changes = writer.stop().await;
    *next_id += 4 * changes + 1_000;
    let cpu = cpu::of_process(fanout) - before;
    let report = drainer.receive_until(stage.end_of_wal().await).await;
    assert_eq!(
        report.rows,
        warm + changes,
        "one gets all, the others nothing"
    );
    Measured {
        subscribers,
        changes,
        cpu,
    }
}

fn outcome(all: &[Measured]) -> Outcome {
    let mut table = Table::new(
        "One subscriber of each change",
        &["N", "changes", "fanout CPU, s", "CPU per change, us"],
    );
    for run in all {
        table.row([
            run.subscribers.into(),
            count(run.changes).into(),
            run.cpu.into(),
            run.per_change_us().into(),
        ]);
    }
    let few = all.iter().find(|run| run.subscribers >= 10);
    let few = few.or(all.first()).expect("there was a run");
    let many = all.last().expect("there was a run");
    Outcome {
        about: ABOUT.to_owned(),
        tables: vec![table],
        targets: vec![Target::at_most(
            format!(
                "fanout CPU per change, N = {} / N = {}",
                many.subscribers, few.subscribers
            ),
            many.per_change_us() / few.per_change_us(),
            2.0,
            "",
        )],
        notes: vec![
            "Positions of the subscribers that nothing is for move on once a second: that part of the cost grows with their number \
             and with time, not with the changes."
                .to_owned(),
        ],
        ..Outcome::default()
    }
}
