//! Subscribers that all want something else.

use std::fmt::Write as _;

use crate::backlog::ROWS;
use crate::drain::{Plan, Server};
use crate::measure::{Run, count, drain, say};
use crate::outcome::{Outcome, Table, Target};
use crate::scale::Scale;
use crate::stage::{Stage, wait_until_durable};

const ABOUT: &str = "N subscribers, each with a publication of its own that passes half of the rows. The publications differ in their \
    tables: N of 2 N tables each, of which every transaction touches one. A scanned row is one of the log, whether it passes or not.";

const NOTE: &str = "Column lists and row filters are not supported by the fanout yet; publications of different tables stand in for them, \
    so that this figure says what it costs to look at each row and to send about half of them, not what it costs to evaluate a filter.";

const SUBSCRIBERS: [usize; 1] = [16];
const SHARE: u64 = 2;
/// Small transactions: few blocks pass or fail as a whole.
const ROWS_PER_TRANSACTION: u64 = 10;

pub(super) async fn run(scale: Scale) -> Outcome {
    let subscribers = scale.subscribers(&SUBSCRIBERS)[0];
    let (rows, tables) = (scale.rows(ROWS / SHARE), 2 * subscribers);
    say(&format!("{rows} rows in {tables} tables"));
    let mut stage = Stage::start(tables).await;
    create_publications(&stage, subscribers, tables).await;
    stage.create_native_slots("half", subscribers).await;
    stage.create_decant_slots("half", subscribers).await;
    let end = stage.mix(tables, rows, ROWS_PER_TRANSACTION).await;
    wait_until_durable(&stage.decant, end).await;
    say(&format!("{subscribers} native"));
    let native = plan(stage.native(), subscribers);
    let native = drain(&native, end, async || stage.native_walsenders().await).await;
    say(&format!("{subscribers} through Decant"));
    let decant = plan(stage.fanout(0), subscribers);
    let fanout = stage.decant.fanout(0).process().id();
    let decant = drain(&decant, end, async || vec![fanout]).await;
    assert_eq!(
        decant.report.rows, native.report.rows,
        "both pass the same rows"
    );
    outcome(rows, &native, &decant)
}

/// Publication `half_i` has tables i, i + 1, … i + subscribers - 1, around the end.
async fn create_publications(stage: &Stage, subscribers: usize, tables: usize) {
    let mut sql = String::new();
    for number in 0..subscribers {
        let names = (number..number + subscribers).map(|table| format!("rows_{}", table % tables));
        let names: Vec<String> = names.collect();
        write!(
            sql,
            "create publication half_{number} for table {};",
            names.join(", ")
        )
        .expect("text can be written");
    }
    stage.source.sql(&sql).await;
}

fn plan(server: Server, subscribers: usize) -> Plan {
    let mut plan = Plan::new(server, "half", "", subscribers);
    for (number, subscription) in plan.subscriptions.iter_mut().enumerate() {
        subscription.publication = format!("half_{number}");
    }
    plan
}

fn outcome(rows: u64, native: &Run, decant: &Run) -> Outcome {
    let subscribers = decant.connections;
    let scanned = count(rows * subscribers as u64);
    let per_scanned = |run: &Run| run.server_cpu * 1e6 / scanned;
    let mut table = Table::new(
        &format!("{rows} rows, {subscribers} subscribers"),
        &[
            "who",
            "s",
            "CPU, s",
            "CPU per scanned row and subscriber, us",
            "delivered rows",
        ],
    );
    for (who, run) in [("native", native), ("Decant", decant)] {
        table.row([
            who.into(),
            run.report.seconds.into(),
            run.server_cpu.into(),
            per_scanned(run).into(),
            run.rows().into(),
        ]);
    }
    Outcome {
        about: ABOUT.to_owned(),
        tables: vec![table],
        targets: vec![Target::at_most(
            format!("fanout CPU per scanned row and subscriber, N = {subscribers}"),
            per_scanned(decant),
            0.3,
            "us",
        )],
        notes: vec![NOTE.to_owned()],
        ..Outcome::default()
    }
}
