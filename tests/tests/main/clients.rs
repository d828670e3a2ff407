//! Clients that others wrote, unmodified: each makes a slot, streams, leaves, comes back and goes on.

use std::path::{Path, PathBuf};
use std::process::Command;

use tests::decant::text_of;
use tests::postgres::target_directory;
use tests::process::run;

use super::stage::{PUBLICATION, Stage};

const TABLE: &str =
    "create table t (id int primary key, v text, at text default clock_timestamp()::text)";

const SLOT: &str = "client";

/// Where `tests/scripts/install-clients` put them.
fn installed(name: &str) -> PathBuf {
    let folder = std::env::var_os("DECANT_CLIENTS_DIR").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| target_directory().join("clients"));
    let path = folder.join(name);
    assert!(
        path.exists(),
        "{} is not there: `make clients` installs it",
        path.display()
    );
    path
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("clients")
        .join(name)
}

fn psycopg2() -> Command {
    let mut command = Command::new(installed("python/bin/python"));
    command.arg(source("python/replicate.py"));
    command
}

fn pglogrepl() -> Command {
    Command::new(installed("replicate"))
}

/// A program in Java, with the classes that `install-clients` compiled.
fn java(program: &str) -> Command {
    let folder = installed("java");
    let [classes, libraries] = ["classes", "lib/*"].map(|part| folder.join(part));
    let path = format!(
        "{}:{}:{}",
        folder.display(),
        classes.display(),
        libraries.display()
    );
    let mut command = Command::new("java");
    // What starts soonest and takes least.
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]);
    command.args(["-cp", &path, program]);
    command
}

fn pgjdbc() -> Command {
    java("Pgjdbc")
}

fn debezium(offsets: &Path, autocreate: &str) -> Command {
    let mut command = java("Debezium");
    command.arg(offsets).arg(autocreate);
    command
}

fn pg_logical_replication() -> Command {
    let folder = installed("node/node_modules");
    let mut command = Command::new("node");
    command.arg(folder.with_file_name("replicate.js"));
    command
}

/// Runs a client until it has streamed these many rows; the rows.
fn rows(
    command: Command,
    (port, publication): (u16, &str),
    mode: &str,
    count: usize,
) -> Vec<String> {
    let mut command = command;
    let port = port.to_string();
    command.args([&port, SLOT, publication, mode, &count.to_string()]);
    let output = run(&mut command);
    assert!(output.status.success(), "{}", text_of(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

async fn of_source(stage: &Stage, from: i32) -> Vec<String> {
    let sql = format!(
        "select concat_ws(E'\\t', id, coalesce(v, ''), at) from t where id >= {from} order by id"
    );
    let rows = stage.source.sql(&sql).await;
    rows.into_iter()
        .filter_map(|mut row| row.remove(0))
        .collect()
}

/// The client makes its slot while the source is written to, so what it gets is a suffix of the table.
async fn follows(client: fn() -> Command) {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let first = comes_back(&mut stage, client, PUBLICATION, "create").await;
    assert!(first > 0);
}

/// The client copies under the snapshot of its slot what was there before, so it gets the whole table.
async fn copies_and_follows(
    mut stage: Stage,
    client: impl Fn() -> Command + Clone + Send + 'static,
    publication: &'static str,
) {
    stage
        .source
        .sql("insert into t select -i, 'old' from generate_series(200, 1, -1) i")
        .await;
    let first = comes_back(&mut stage, client, publication, "snapshot").await;
    assert_eq!(first, -200);
}

/// Runs a client, and once more, while the source is written to; the first row that it got.
async fn comes_back(
    stage: &mut Stage,
    client: impl Fn() -> Command + Clone + Send + 'static,
    publication: &'static str,
    mode: &'static str,
) -> i32 {
    let place = (stage.decant.fanout(0).port(), publication);
    let begin = client.clone();
    let streaming = tokio::task::spawn_blocking(move || rows(begin(), place, mode, 50));
    let insert = async |id: i32| {
        let sql = format!(
            "insert into t values ({id}, nullif('value ' || {id}, 'value {}'))",
            id / 7 * 7
        );
        stage.source.sql(&sql).await;
    };
    let mut last = 0;
    while !streaming.is_finished() {
        last += 1;
        insert(last).await;
    }
    let mut received = streaming.await.unwrap();
    let first: i32 = received[0].split('\t').next().unwrap().parse().unwrap();
    assert!(received.len() >= 50);

    // What was confirmed does not come again, what was not does.
    for _ in 0..50 {
        last += 1;
        insert(last).await;
    }
    let expected = of_source(stage, first).await;
    let left = expected.len() - received.len();
    received.extend(rows(client(), place, "resume", left));
    assert_eq!(received, expected);
    first
}

#[tokio::test(flavor = "multi_thread")]
async fn psycopg2_follows() {
    follows(psycopg2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pglogrepl_follows() {
    follows(pglogrepl).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pg_logical_replication_follows() {
    follows(pg_logical_replication).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn psycopg_copies_under_a_snapshot_and_follows() {
    let stage = Stage::new(15, 1, TABLE).await;
    copies_and_follows(stage, psycopg2, PUBLICATION).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pgjdbc_copies_under_a_snapshot_and_follows() {
    let stage = Stage::new(15, 1, TABLE).await;
    copies_and_follows(stage, pgjdbc, PUBLICATION).await;
}

/// Debezium's engine with its own publication, which it makes through the fanout.
#[tokio::test(flavor = "multi_thread")]
async fn debezium_copies_and_follows_with_a_publication_that_it_makes() {
    let stage = Stage::new(18, 1, TABLE).await;
    let offsets = stage.decant.home().join("offsets");
    let client = move || debezium(&offsets, "filtered");
    copies_and_follows(stage, client, "made_by_debezium").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn debezium_copies_and_follows_with_a_publication_that_is_there() {
    let stage = Stage::new(15, 1, TABLE).await;
    let offsets = stage.decant.home().join("offsets");
    let client = move || debezium(&offsets, "disabled");
    copies_and_follows(stage, client, PUBLICATION).await;
}
