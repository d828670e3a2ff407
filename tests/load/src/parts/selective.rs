//! Many tables, and for each one subscriber.

use crate::backlog::ROWS;
use crate::cpu;
use crate::drain::{Plan, Server};
use crate::measure::{Run, count, drain, say};
use crate::outcome::{Chart, Outcome, Table, Target};
use crate::scale::Scale;
use crate::stage::{ROWS_PER_TRANSACTION, Stage, wait_until_durable};

const ABOUT: &str = "N tables whose transactions alternate, and N subscribers, each with a publication of one table. Every native \
    walsender decodes everything and throws away what is not its own. CPU of Decant is that of decoder and fanout together, from the \
    first commit to the last receipt.";

const TABLES: [usize; 3] = [4, 16, 64];
/// Of a full backlog; with 64 walsenders each row is decoded 64 times.
const SHARE: u64 = 4;

/// Both sides with one number of tables.
struct Measured {
    tables: usize,
    native: Run,
    decant: Run,
    decoder_cpu: f64,
}

impl Measured {
    fn decant_cpu(&self) -> f64 {
        self.decoder_cpu + self.decant.server_cpu
    }
}

pub(super) async fn run(scale: Scale) -> Outcome {
    let rows = scale.rows(ROWS / SHARE);
    let mut all = Vec::new();
    for tables in scale.subscribers(&TABLES) {
        all.push(measure(tables, rows).await);
    }
    outcome(&all, rows)
}

async fn measure(tables: usize, rows: u64) -> Measured {
    say(&format!("{tables} tables, {rows} rows"));
    let mut stage = Stage::start(tables).await;
    stage.create_native_slots("one", tables).await;
    stage.create_decant_slots("one", tables).await;
    let decoder = stage.decant.decoder().id();
    let before = cpu::of_process(decoder);
    let end = stage.mix(tables, rows, ROWS_PER_TRANSACTION).await;
    wait_until_durable(&stage.decant, end).await;
    let decoder_cpu = cpu::of_process(decoder) - before;
    say(&format!("{tables} native"));
    let native = plan(stage.native(), tables);
    let native = drain(&native, end, async || stage.native_walsenders().await).await;
    say(&format!("{tables} through Decant"));
    let decant = plan(stage.fanout(0), tables);
    let fanout = stage.decant.fanout(0).process().id();
    let decant = drain(&decant, end, async || vec![fanout]).await;
    for run in [&native, &decant] {
        assert_eq!(run.report.rows, rows, "every row has one subscriber");
    }
    Measured {
        tables,
        native,
        decant,
        decoder_cpu,
    }
}

/// One subscriber for each table's publication.
fn plan(server: Server, tables: usize) -> Plan {
    let mut plan = Plan::new(server, "one", "", tables);
    for (number, subscription) in plan.subscriptions.iter_mut().enumerate() {
        subscription.publication = format!("rows_{number}");
    }
    plan
}

fn outcome(all: &[Measured], rows: u64) -> Outcome {
    let mut table = Table::new(
        &format!("{rows} rows in all"),
        &[
            "N",
            "native, s",
            "Decant, s",
            "native walsenders' CPU, s",
            "decoder CPU, s",
            "fanout CPU, s",
            "native / Decant CPU",
        ],
    );
    for run in all {
        table.row([
            run.tables.into(),
            run.native.report.seconds.into(),
            run.decant.report.seconds.into(),
            run.native.server_cpu.into(),
            run.decoder_cpu.into(),
            run.decant.server_cpu.into(),
            (run.native.server_cpu / run.decant_cpu()).into(),
        ]);
    }
    let line = |pick: fn(&Measured) -> f64| -> Vec<(f64, f64)> {
        all.iter()
            .map(|run| (count(run.tables as u64), pick(run)))
            .collect()
    };
    let last = all.last().expect("there was a run");
    Outcome {
        about: ABOUT.to_owned(),
        tables: vec![table],
        charts: vec![
            Chart::new(
                "cost_by_tables",
                "Cost with one subscriber for each table",
                "tables and subscribers",
                "servers' CPU, s",
            )
            .with("native walsenders", line(|run| run.native.server_cpu))
            .with("decoder and fanout", line(Measured::decant_cpu)),
        ],
        targets: vec![Target::at_least(
            format!(
                "CPU of the native walsenders / decoder and fanout, {} tables",
                last.tables
            ),
            last.native.server_cpu / last.decant_cpu(),
            50.0,
            "",
        )],
        ..Outcome::default()
    }
}
