//! Subscribers that all want something else.

use std::fmt::Write as _;

use crate::backlog::ROWS;
use crate::drain::{Plan, Server};
use crate::measure::{Run, count, drain, say};
use crate::outcome::{Outcome, Table, Target};
use crate::scale::Scale;
use crate::stage::{ROWS_PER_TRANSACTION, Stage, major, wait_until_durable};

const ABOUT: &str = "N subscribers of one table, each with a publication of its own: no two have the same row filter, each filter passes about half of \
    the rows, and every second publication has a column list, too. Filters compare integers, numerics and text, and calculate. A scanned \
    row is one of the log, whether it passes or not. *The same* is N subscribers of one of these publications.";

const SUBSCRIBERS: [usize; 1] = [16];
const SHARE: u64 = 2;
/// Row filters and column lists.
const LEAST_MAJOR: u32 = 15;

pub(super) async fn run(scale: Scale) -> Outcome {
    assert!(
        major() >= LEAST_MAJOR,
        "the source needs row filters: PostgreSQL {LEAST_MAJOR} or later (BENCH_POSTGRES)"
    );
    let subscribers = scale.subscribers(&SUBSCRIBERS)[0];
    let rows = scale.rows(ROWS / SHARE);
    say(&format!("{rows} rows"));
    let mut stage = Stage::start(1).await;
    create_publications(&stage, subscribers).await;
    stage.create_native_slots("half", subscribers).await;
    stage.create_decant_slots("half", subscribers).await;
    let end = stage.fill(0, 0, rows, ROWS_PER_TRANSACTION).await;
    wait_until_durable(&stage.decant, end).await;
    say(&format!("{subscribers} native"));
    let native = plan(stage.native(), subscribers);
    let native = drain(&native, end, async || stage.native_walsenders().await).await;
    say(&format!("{subscribers} through Decant"));
    let fanout = stage.decant.fanout(0).process().id();
    let different = plan(stage.fanout(0), subscribers);
    let different = drain(&different, end, async || vec![fanout]).await;
    assert_eq!(
        different.report.rows, native.report.rows,
        "both pass the same rows"
    );
    say(&format!("{subscribers} of the same publication"));
    let same = Plan::new(stage.fanout(0), "half", "half_1", subscribers);
    let same = drain(&same, end, async || vec![fanout]).await;
    outcome(rows, [&native, &different, &same])
}

/// The filter of publication `number`: about half of the rows, and no other publication has the same one.
fn filter(number: usize) -> String {
    let turn = number / 4;
    match number % 4 {
        0 => format!("account >= {turn} and account < {}", turn + 500),
        1 => format!("amount < {}", 500 + turn),
        2 => format!("note collate \"C\" > '8{turn:02}'"),
        _ => format!("(id + {turn}) % 2 = 0"),
    }
}

/// Publications `half_0 …`. They publish inserts only: for the others the filter's columns would have to be in the key.
async fn create_publications(stage: &Stage, subscribers: usize) {
    let mut sql = String::new();
    for number in 0..subscribers {
        let columns = match number % 8 {
            1 | 6 => " (id, amount, at)",
            3 | 4 => " (id, note)",
            _ => "",
        };
        let filter = filter(number);
        write!(
            sql,
            "create publication half_{number} for table rows_0{columns} where ({filter}) \
             with (publish = 'insert');"
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

fn outcome(rows: u64, [native, different, same]: [&Run; 3]) -> Outcome {
    let subscribers = different.connections;
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
    for (who, run) in [
        ("native", native),
        ("Decant", different),
        ("Decant, all the same", same),
    ] {
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
            per_scanned(different),
            0.3,
            "us",
        )],
        notes: vec![format!(
            "What is made of a block is shared by those who asked for the same. That and one filter instead of {subscribers} save {:.0} % of the \
             fanout's CPU; the rest goes into the sockets of each.",
            (1.0 - same.server_cpu / different.server_cpu) * 100.0
        )],
        ..Outcome::default()
    }
}
