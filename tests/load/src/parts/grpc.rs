//! Many subscribers of everything, through gRPC.

use crate::backlog::{Backlog, ROWS};
use crate::drain::Server;
use crate::measure::{Run, drain, say};
use crate::outcome::{Outcome, Table, Target};
use crate::scale::Scale;
use crate::stage::Stage;

const ABOUT: &str = "The backlog of `fan_out`, read through gRPC: *raw* with each row as the message that PostgreSQL made of it, *columns* with \
    each row taken apart. The receivers walk the responses to count rows and build nothing.";

const SUBSCRIBERS: [usize; 2] = [1, 16];

/// The three ways with one number of subscribers.
struct Measured {
    native: Run,
    raw: Run,
    columns: Run,
}

pub(super) async fn run(scale: Scale) -> Outcome {
    let numbers = scale.subscribers(&SUBSCRIBERS);
    let most = *numbers.last().expect("there is a number");
    let mut stage = Stage::start(1).await;
    let backlog = Backlog::make(&stage, "all", &mut 0, scale.rows(ROWS), most).await;
    let mut all = Vec::new();
    for subscribers in numbers {
        all.push(Measured {
            native: backlog.native(&stage, subscribers).await,
            raw: through_grpc(&mut stage, &backlog, subscribers, "raw").await,
            columns: through_grpc(&mut stage, &backlog, subscribers, "").await,
        });
    }
    outcome(&all)
}

async fn through_grpc(stage: &mut Stage, backlog: &Backlog, subscribers: usize, how: &str) -> Run {
    say(&format!("{subscribers} through gRPC {how}"));
    let url = stage.decant.fanout(0).grpc_url();
    let mut plan = backlog.plan(Server::Grpc { url }, subscribers);
    how.clone_into(&mut plan.options);
    let fanout = stage.decant.fanout(0).process().id();
    backlog.check(drain(&plan, backlog.end, async || vec![fanout]).await)
}

fn outcome(all: &[Measured]) -> Outcome {
    let mut table = Table::new(
        "rows/s of all subscribers together, CPU per delivered row",
        &[
            "N",
            "how",
            "rows/s",
            "/ native",
            "server CPU, us",
            "receivers' CPU, us",
            "MB/s",
        ],
    );
    for found in all {
        let native = found.native.rows_per_second();
        for (how, run) in [
            ("native", &found.native),
            ("gRPC, raw", &found.raw),
            ("gRPC, columns", &found.columns),
        ] {
            table.row([
                run.connections.into(),
                how.into(),
                run.rows_per_second().into(),
                (run.rows_per_second() / native).into(),
                run.server_us().into(),
                run.receiver_us().into(),
                run.megabytes_per_second().into(),
            ]);
        }
    }
    let last = all.last().expect("there was a run");
    let ratio = |run: &Run| run.rows_per_second() / last.native.rows_per_second();
    let target = |how: &str, run: &Run| {
        let name = format!(
            "rows/s in sum, gRPC {how} / native, N = {}",
            run.connections
        );
        Target::at_least(name, ratio(run), 5.0, "")
    };
    Outcome {
        about: ABOUT.to_owned(),
        tables: vec![table],
        targets: vec![target("raw", &last.raw), target("columns", &last.columns)],
        notes: vec![
            "A row's bytes are copied once on their way to the socket: from the log's memory into the message that HTTP/2 sends, for all \
             subscribers together that asked for the same and are near each other. A row that a column list makes smaller is made once before."
                .to_owned(),
        ],
        ..Outcome::default()
    }
}
