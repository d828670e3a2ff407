//! Another consumer of the source's stream: the crate `pg_walstream`, in a program of its own, which is no part of this
//! workspace (`tests/load/walstream`).

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use pg_proto::Lsn;

use crate::measure::say;
use crate::stage::Stage;

/// Names the program. Without it nothing is measured.
const PROGRAM: &str = "BENCH_WALSTREAM";
/// Its slot at the source, which the caller makes before there is a backlog, is the first of these.
pub(super) const SLOTS: &str = "walstream";
const DEADLINE: Duration = Duration::from_secs(600);

/// What it said of itself.
pub(super) struct Walstream {
    pub(super) rows: u64,
    pub(super) seconds: f64,
    pub(super) cpu: f64,
    pub(super) peak_bytes: u64,
}

/// Lets it receive the stream of publication `decant` up to a position.
pub(super) async fn take(stage: &Stage, end: Lsn) -> Option<Walstream> {
    let program = PathBuf::from(std::env::var_os(PROGRAM)?);
    if !program.is_file() {
        return None;
    }
    say("the crate pg_walstream");
    let conninfo = format!(
        "{} replication=database",
        stage.source.endpoint().conninfo()
    );
    let slot = format!("{SLOTS}_0");
    let arguments = [conninfo, slot, "decant".to_owned(), end.0.to_string()];
    let mut command = Command::new(&program);
    command.args(arguments);
    // It takes as long as it takes: not on a thread of the runtime.
    let run = tokio::task::spawn_blocking(move || command.output());
    let output = tokio::time::timeout(DEADLINE, run).await;
    let output = output.unwrap_or_else(|_| panic!("{}: {DEADLINE:?}", program.display()));
    let output = output.expect("no panic in there");
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    let found = parse(&text);
    assert!(found.is_some(), "{}: {text:?} {errors}", program.display());
    found
}

/// Rows, seconds, CPU seconds, peak memory in KB.
fn parse(line: &str) -> Option<Walstream> {
    let mut fields = line.split_whitespace();
    Some(Walstream {
        rows: fields.next()?.parse().ok()?,
        seconds: fields.next()?.parse().ok()?,
        cpu: fields.next()?.parse().ok()?,
        peak_bytes: fields.next()?.parse::<u64>().ok()? * 1024,
    })
}
