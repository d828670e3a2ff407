//! Many subscribers of everything.

use crate::backlog::{Backlog, ROWS};
use crate::drain::{Plan, Server};
use crate::instructions::{Counts, Instructions};
use crate::loopback::{self, Sender};
use crate::measure::{Run, count, drain, say};
use crate::outcome::{Chart, Outcome, Table, Target};
use crate::scale::Scale;
use crate::stage::{ROWS_PER_TRANSACTION, Stage};

const ABOUT: &str = "A backlog of rows of about 150 bytes, 100 in a transaction, is read by N subscribers of everything at the same \
    time: text, protocol version 1; 64 subscribers read the last quarter of it. *Loopback* is a sender without any logic that writes as many bytes to as many of the same \
    receivers from one buffer: what this machine can carry. Source CPU is that of the walsenders: one for each native \
    subscriber, one for the decoder.";

const SUBSCRIBERS: [usize; 4] = [1, 4, 16, 64];
/// The number that the targets are about.
const AIM: usize = 16;
/// Parts of the full backlog for the growth with rows.
const SMALLER: [u64; 2] = [100, 10];
/// So much of the backlog is its last part.
const LAST_SHARE: u64 = 4;
/// How often each of the live runs is measured.
const LIVE_ROUNDS: usize = 3;
/// The live run is so much smaller than the backlog.
const LIVE_SHARE: u64 = 4;

/// The three runs with one number of subscribers.
struct Measured {
    native: Run,
    decant: Run,
    loopback: Run,
}

pub(super) async fn run(scale: Scale) -> Outcome {
    let numbers = scale.subscribers(&SUBSCRIBERS);
    let most = *numbers.last().expect("there is a number");
    let mut stage = Stage::start(1).await;
    let mut next_row = 0;
    let mut growth = Vec::new();
    for divisor in SMALLER {
        let rows = scale.rows(ROWS / divisor);
        let backlog = Backlog::make(&stage, &format!("b{divisor}"), &mut next_row, rows, 1).await;
        let native = backlog.native(&stage, 1).await;
        let decant = backlog.decant(&mut stage, 1).await;
        growth.push((rows, native, decant));
        stage.drop_native_slots(&backlog.slots).await;
    }
    let (backlog, last) = backlogs(&stage, &mut next_row, scale.rows(ROWS), most).await;
    let mut measured = Vec::new();
    for subscribers in numbers {
        let backlog = if subscribers > AIM { &last } else { &backlog };
        let native = backlog.native(&stage, subscribers).await;
        let decant = backlog.decant(&mut stage, subscribers).await;
        let loopback = loopback(&decant).await;
        measured.push(Measured {
            native,
            decant,
            loopback,
        });
    }
    for slots in [&backlog.slots, &last.slots] {
        stage.drop_native_slots(slots).await;
    }
    let first = &measured[0];
    growth.push((backlog.rows, first.native.clone(), first.decant.clone()));
    let rows = scale.rows(ROWS / LIVE_SHARE);
    let live = compare_live(&mut stage, &mut next_row, rows, most).await;
    outcome(&measured, &growth, &live)
}

/// The backlog, and its last part for more subscribers than the targets are about: natively they would take minutes.
async fn backlogs(stage: &Stage, next_row: &mut u64, rows: u64, most: usize) -> (Backlog, Backlog) {
    let last_rows = rows / LAST_SHARE;
    let first = Backlog::make(stage, "all", next_row, rows - last_rows, most.min(AIM)).await;
    let last = Backlog::make(stage, "last", next_row, last_rows, most).await;
    let all = Backlog {
        rows,
        end: last.end,
        ..first
    };
    (all, last)
}

/// What the source's walsender cost.
struct Live {
    rows: u64,
    alone: Cost,
    together: Cost,
    /// One subscriber, and something else keeps the processors busy.
    beside: Cost,
}

#[derive(Clone, Copy, Default)]
struct Cost {
    /// CPU time, in seconds.
    cpu: f64,
    /// Where they can be counted.
    instructions: Option<Counts>,
}

/// Bytes that go through loopback and have nothing to do with the source or with Decant.
struct Busy {
    sender: Sender,
    receivers: crate::drainer::Drainer,
}

impl Busy {
    const CONNECTIONS: usize = 2;
    const FRAME_BYTES: usize = 170;

    async fn start() -> Self {
        let sender = Sender::start(Self::CONNECTIONS, u64::MAX, Self::FRAME_BYTES);
        let port = sender.port();
        let plan = Plan::new(Server::Postgres { port }, "none", "none", Self::CONNECTIONS);
        let mut receivers = crate::drainer::Drainer::connect(&plan).await;
        receivers.go().await;
        Self { sender, receivers }
    }

    fn stop(self) {
        drop(self.receivers);
        self.sender.join();
    }
}

/// A sender without logic with the same connections, receivers, rows and bytes.
async fn loopback(like: &Run) -> Run {
    let connections = like.connections;
    let rows = like.report.rows / connections as u64;
    let frame_bytes = usize::try_from(like.report.bytes / like.report.rows).unwrap_or(0);
    say(&format!("{connections} by loopback alone"));
    let sender = Sender::start(connections, rows, frame_bytes);
    let port = sender.port();
    let plan = Plan::new(Server::Postgres { port }, "none", "none", connections);
    let run = drain(&plan, loopback::END, async || vec![std::process::id()]).await;
    sender.join();
    assert_eq!(run.report.rows, like.report.rows, "it sends as much");
    run
}

/// In turns, since what else the machine does changes within seconds: the middle one of each.
async fn compare_live(stage: &mut Stage, next_row: &mut u64, rows: u64, most: usize) -> Live {
    let [mut alone, mut together, mut beside] = [[Cost::default(); LIVE_ROUNDS]; 3];
    for round in 0..LIVE_ROUNDS {
        alone[round] = live(stage, &format!("alone_{round}"), next_row, rows, 1).await;
        together[round] = live(stage, &format!("together_{round}"), next_row, rows, most).await;
        let busy = Busy::start().await;
        beside[round] = live(stage, &format!("beside_{round}"), next_row, rows, 1).await;
        busy.stop();
    }
    let [alone, together, beside] = [alone, together, beside].map(|mut all| {
        all.sort_by(|a, b| a.cpu.total_cmp(&b.cpu));
        all[LIVE_ROUNDS / 2]
    });
    Live {
        rows,
        alone,
        together,
        beside,
    }
}

/// The source's walsender while rows go all the way to the subscribers at once.
async fn live(
    stage: &mut Stage,
    slots: &str,
    next_row: &mut u64,
    rows: u64,
    subscribers: usize,
) -> Cost {
    say(&format!("{subscribers} live"));
    stage.create_decant_slots(slots, subscribers).await;
    let plan = Plan::new(stage.fanout(0), slots, "everything", subscribers);
    let mut drainer = crate::drainer::Drainer::connect(&plan).await;
    drainer.go().await;
    stage.decant.stop_decoder().await;
    let end = stage.fill(0, *next_row, rows, ROWS_PER_TRANSACTION).await;
    *next_row += rows;
    let server = stage.source.process_id();
    let mut instructions = server.and_then(Instructions::of_children);
    stage.decant.start_decoder().await;
    let report = drainer.receive_until(end).await;
    assert_eq!(report.rows, rows * subscribers as u64);
    Cost {
        instructions: instructions.as_mut().and_then(Instructions::counts),
        cpu: crate::cpu::of_processes(&stage.decoder_walsender().await),
    }
}

fn outcome(measured: &[Measured], growth: &[(u64, Run, Run)], live: &Live) -> Outcome {
    let aim = measured
        .iter()
        .find(|run| run.native.connections == AIM)
        .or(measured.last())
        .expect("there was a run");
    let n = aim.native.connections;
    let most = measured.last().map_or(1, |run| run.native.connections);
    let sum = aim.decant.rows_per_second();
    Outcome {
        about: ABOUT.to_owned(),
        tables: vec![
            speeds(measured),
            costs(measured),
            live_table(live, most),
            rows_table(growth),
        ],
        charts: charts(measured, growth),
        targets: vec![
            Target::at_least(
                format!("rows/s in sum, Decant / native, N = {n}"),
                sum / aim.native.rows_per_second(),
                15.0,
                "",
            ),
            Target::at_least(
                format!("rows/s in sum, Decant / loopback, N = {n}"),
                sum / aim.loopback.rows_per_second(),
                0.4,
                "",
            ),
            Target::at_most(
                format!("fanout CPU per delivered row, N = {n}"),
                aim.decant.server_us(),
                0.15,
                "us",
            ),
            Target::at_most(
                format!("source CPU with Decant, N = {most} / N = 1"),
                live.together.cpu / live.alone.cpu,
                1.1,
                "",
            ),
        ],
        notes: vec![
            "The source's walsender was measured live, with rows on the way from the source to the receivers at once; each figure is the middle one of \
             three runs by CPU time. It does the same in all of them, for the decoder and nobody else. Its own instructions per row are a few more where it is interrupted more often, \
             which other load does as well as subscribers do; what else differs is how long they take beside others, and the kernel's share, who lets \
             whoever runs do the work of the sockets of all."
                .to_owned(),
        ],
        ..Outcome::default()
    }
}

fn speeds(measured: &[Measured]) -> Table {
    let mut table = Table::new(
        "Speed, rows/s of all subscribers together",
        &[
            "N",
            "native",
            "Decant",
            "Decant / native",
            "loopback",
            "Decant / loopback",
            "Decant MB/s",
        ],
    );
    for Measured {
        native,
        decant,
        loopback,
    } in measured
    {
        let sum = decant.rows_per_second();
        table.row([
            native.connections.into(),
            native.rows_per_second().into(),
            sum.into(),
            (sum / native.rows_per_second()).into(),
            loopback.rows_per_second().into(),
            (sum / loopback.rows_per_second()).into(),
            decant.megabytes_per_second().into(),
        ]);
    }
    table
}

fn costs(measured: &[Measured]) -> Table {
    let mut table = Table::new(
        "CPU time per delivered row, us",
        &[
            "N",
            "native walsenders",
            "fanout",
            "loopback sender",
            "receivers, native",
            "receivers, Decant",
        ],
    );
    for Measured {
        native,
        decant,
        loopback,
    } in measured
    {
        table.row([
            native.connections.into(),
            native.server_us().into(),
            decant.server_us().into(),
            loopback.server_us().into(),
            native.receiver_us().into(),
            decant.receiver_us().into(),
        ]);
    }
    table
}

fn live_table(live: &Live, most: usize) -> Table {
    let title = format!(
        "The source's walsender, {} rows on the way at once, per row",
        live.rows
    );
    let columns = [
        "with",
        "CPU, us",
        "instructions",
        "instructions, with the kernel's",
    ];
    let mut table = Table::new(&title, &columns);
    for (with, cost) in [
        ("1 subscriber".to_owned(), live.alone),
        (format!("{most} subscribers"), live.together),
        (
            "1, and other bytes through loopback".to_owned(),
            live.beside,
        ),
    ] {
        let counted = |pick: fn(&Counts) -> f64| match &cost.instructions {
            Some(counts) => (pick(counts) / count(live.rows)).into(),
            None => "not counted here".into(),
        };
        table.row([
            with.as_str().into(),
            (cost.cpu * 1e6 / count(live.rows)).into(),
            counted(|counts| counts.own),
            counted(|counts| counts.all),
        ]);
    }
    table
}

fn rows_table(growth: &[(u64, Run, Run)]) -> Table {
    let mut table = Table::new(
        "One subscriber and a growing backlog",
        &[
            "rows",
            "native, s",
            "Decant, s",
            "native CPU, s",
            "fanout CPU, s",
        ],
    );
    for (rows, native, decant) in growth {
        table.row([
            (*rows).into(),
            native.report.seconds.into(),
            decant.report.seconds.into(),
            native.server_cpu.into(),
            decant.server_cpu.into(),
        ]);
    }
    table
}

fn charts(measured: &[Measured], growth: &[(u64, Run, Run)]) -> Vec<Chart> {
    let cost = |pick: fn(&Measured) -> &Run| -> Vec<(f64, f64)> {
        let point = |found: &Measured| {
            let connections = count(found.native.connections as u64);
            (connections, pick(found).server_us() * connections)
        };
        measured.iter().map(point).collect()
    };
    let grown = |pick: fn(&(u64, Run, Run)) -> f64| -> Vec<(f64, f64)> {
        growth
            .iter()
            .map(|found| (count(found.0), pick(found)))
            .collect()
    };
    vec![
        Chart::new(
            "cost_by_subscribers",
            "Cost of serving the backlog, by number of subscribers",
            "subscribers",
            "servers' CPU, us per row of the backlog",
        )
        .with("native walsenders", cost(|found| &found.native))
        .with("fanout", cost(|found| &found.decant))
        .with("loopback sender", cost(|found| &found.loopback)),
        Chart::new(
            "time_by_rows",
            "Time for one subscriber, by size of the backlog",
            "rows",
            "seconds",
        )
        .with("native", grown(|found| found.1.report.seconds))
        .with("Decant", grown(|found| found.2.report.seconds)),
    ]
}
