//! The decoder: from the source's stream into the log.

use std::time::Duration;

use pg_proto::Lsn;
use tests::Decant;
use tokio::time::Instant;

use super::walstream::{self, Walstream};
use crate::backlog::ROWS;
use crate::cpu;
use crate::drain::Plan;
use crate::measure::{Run, count, drain, say};
use crate::outcome::{Outcome, Table, Target};
use crate::player::{Player, Recording};
use crate::scale::Scale;
use crate::stage::{ROWS_PER_TRANSACTION, Stage, wait_until_durable};

const ABOUT: &str = "The decoder takes a backlog into its log, which is durable at the end of the measured time: *live* from the \
    source's walsender, and *recorded*, from a recording of the same stream that is sent as fast as it is taken. The receivers' \
    program and the crate pg_walstream on the same stream show how fast the walsender can send.";

/// pgoutput's options as the decoder gives them.
const OPTIONS: &str = "streaming 'on', messages 'true'";

/// The decoder's threads: who reads the stream, who makes blocks of it, who writes them, who compresses what is full.
const THREADS: [&str; 4] = ["source", "ingest", "appender", "sealer"];

/// What one way of taking the stream cost.
struct Taken {
    who: &'static str,
    seconds: f64,
    cpu: f64,
    /// Of that, each thread's.
    threads: [f64; THREADS.len()],
    walsender_cpu: f64,
    peak_bytes: u64,
    fsyncs: u64,
}

pub(super) async fn run(scale: Scale) -> Outcome {
    let rows = scale.rows(ROWS);
    let mut stage = Stage::without_programs(1).await;
    stage.create_native_slots("copy", 1).await;
    stage.create_native_slots(walstream::SLOTS, 1).await;
    stage.decant.decctl_successfully(&["init"]);
    say(&format!("a backlog of {rows} rows"));
    let end = stage.fill(0, 0, rows, ROWS_PER_TRANSACTION).await;
    let file = stage.decant.home().join("recording");
    let mut plan = Plan::new(stage.native(), "copy", "decant", 1);
    plan.proto_version = 2;
    OPTIONS.clone_into(&mut plan.options);
    plan.record = Some(file.clone());
    say("recording the stream");
    drain(&plan, end, async || Vec::new()).await;
    plan.record = None;
    say("the receivers' program");
    let receivers = drain(&plan, end, async || stage.native_walsenders().await).await;
    assert_eq!(receivers.report.rows, rows);
    let other = walstream::take(&stage, end).await;
    let frames = std::fs::read(&file).expect("the stream was recorded");
    stage.drop_native_slots(walstream::SLOTS).await;
    let recorded = recorded(&stage, Recording { frames, end }).await;
    let live = live(&mut stage, end).await;
    if let Some(other) = &other {
        assert_eq!(other.rows, rows, "pg_walstream receives every row once");
    }
    outcome(rows, &receivers, other.as_ref(), [&recorded, &live])
}

async fn recorded(stage: &Stage, recording: Recording) -> Taken {
    say("the decoder, recorded");
    let end = recording.end;
    let player = Player::start(stage.source.port(), recording);
    let mut decant = stage.decant.rival();
    decant.set("source.port", player.port());
    decant.set("log.directory", decant.home().join("log").display());
    decant.start_decoder().await;
    // Its catalog task has asked the source by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let id = decant.decoder().id();
    let (begin, before) = (Instant::now(), cpu::of_process(id));
    player.go();
    let taken = take(&mut decant, end, begin, before).await;
    Taken {
        who: "decoder, recorded",
        ..taken
    }
}

async fn live(stage: &mut Stage, end: Lsn) -> Taken {
    say("the decoder, live");
    let begin = Instant::now();
    stage.decant.spawn_decoder();
    stage.decant.wait_until_streaming().await;
    let taken = take(&mut stage.decant, end, begin, 0.0).await;
    Taken {
        who: "decoder, live",
        walsender_cpu: cpu::of_processes(&stage.decoder_walsender().await),
        ..taken
    }
}

async fn take(decant: &mut Decant, end: Lsn, begin: Instant, before: f64) -> Taken {
    let durable = wait_until_durable(decant, end).await;
    let id = decant.decoder().id();
    Taken {
        who: "",
        seconds: durable.duration_since(begin).as_secs_f64(),
        cpu: cpu::of_process(id) - before,
        threads: THREADS.map(|name| cpu::of_threads(id, name)),
        walsender_cpu: 0.0,
        peak_bytes: decant.decoder().memory().peak,
        fsyncs: decant.status().await.log.unwrap_or_default().fsyncs,
    }
}

fn outcome(
    rows: u64,
    receivers: &Run,
    other: Option<&Walstream>,
    [recorded, live]: [&Taken; 2],
) -> Outcome {
    let mut table = Table::new(
        &format!("{rows} rows into the log"),
        &[
            "who",
            "rows/s",
            "CPU, us/row",
            "walsender CPU, us/row",
            "peak memory, MB",
            "fsyncs/s",
        ],
    );
    let per_row = |seconds: f64| seconds * 1e6 / count(rows);
    table.row([
        "receivers' program, live".into(),
        receivers.rows_per_second().into(),
        receivers.receiver_us().into(),
        receivers.server_us().into(),
        "".into(),
        "".into(),
    ]);
    if let Some(other) = other {
        table.row([
            "pg_walstream, live".into(),
            (count(rows) / other.seconds).into(),
            per_row(other.cpu).into(),
            "".into(),
            (count(other.peak_bytes) / 1e6).into(),
            "".into(),
        ]);
    }
    for taken in [recorded, live] {
        table.row([
            taken.who.into(),
            (count(rows) / taken.seconds).into(),
            per_row(taken.cpu).into(),
            per_row(taken.walsender_cpu).into(),
            (count(taken.peak_bytes) / 1e6).into(),
            (count(taken.fsyncs) / taken.seconds).into(),
        ]);
    }
    let mut notes = vec![
        "*Live* includes the decoder's start; the source and the decoder share the machine's processors.".to_owned(),
        "Full segments are compressed meanwhile (*sealer*); what is compressed after the measured time is in neither figure.".to_owned(),
    ];
    notes.push(match other {
        Some(_) => "*pg_walstream* takes each message apart and keeps nothing; the decoder has everything on disk.".to_owned(),
        None => "The crate pg_walstream was not measured: BENCH_WALSTREAM names no program. `make bench` builds it.".to_owned(),
    });
    Outcome {
        about: ABOUT.to_owned(),
        tables: vec![table, by_threads(rows, [recorded, live])],
        targets: vec![
            Target::at_most(
                "decoder CPU per row, recorded",
                per_row(recorded.cpu),
                0.4,
                "us",
            ),
            Target::at_most("decoder CPU per row, live", per_row(live.cpu), 0.4, "us"),
            Target::at_least(
                "decoder's rows/s, recorded / the walsender's with the receivers' program",
                receivers.report.seconds / recorded.seconds,
                1.0,
                "",
            ),
        ],
        notes,
        ..Outcome::default()
    }
}

fn by_threads(rows: u64, all: [&Taken; 2]) -> Table {
    let mut columns = vec!["who"];
    columns.extend(THREADS);
    let mut table = Table::new("CPU of the decoder by its threads, us/row", &columns);
    for taken in all {
        let mut cells = vec![taken.who.into()];
        let per_row = |seconds: f64| (seconds * 1e6 / count(rows)).into();
        cells.extend(taken.threads.map(per_row));
        table.row(cells);
    }
    table
}
