//! Clients that others wrote, unmodified: each makes a slot, streams, leaves, comes back and goes on.

use std::path::{Path, PathBuf};
use std::process::Command;

use tests::decant::text_of;
use tests::postgres::target_directory;
use tests::process::run;

use super::stage::{PUBLICATION, Stage};

const TABLE: &str =
    "create table t (id int primary key, v text, at text default clock_timestamp()::text)";

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

fn pg_logical_replication() -> Command {
    let folder = installed("node/node_modules");
    let mut command = Command::new("node");
    command.arg(folder.with_file_name("replicate.js"));
    command
}

/// Runs a client until it has these many rows; the rows.
fn rows(command: Command, port: u16, slot: &str, mode: &str, count: usize) -> Vec<String> {
    let mut command = command;
    let port = port.to_string();
    command.args([&port, slot, PUBLICATION, mode, &count.to_string()]);
    let output = run(&mut command);
    assert!(output.status.success(), "{slot}: {}", text_of(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

async fn of_source(stage: &Stage, from: u32) -> Vec<String> {
    let sql = format!(
        "select concat_ws(E'\\t', id, coalesce(v, ''), at) from t where id >= {from} order by id"
    );
    let rows = stage.source.sql(&sql).await;
    rows.into_iter()
        .filter_map(|mut row| row.remove(0))
        .collect()
}

/// The client makes its slot while the source is written to, so what it gets is a suffix of the table.
async fn follows(slot: &'static str, client: fn() -> Command) {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let port = stage.decant.fanout(0).port();
    let streaming = tokio::task::spawn_blocking(move || rows(client(), port, slot, "create", 50));
    let insert = async |id: u32| {
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
    let first: u32 = received[0].split('\t').next().unwrap().parse().unwrap();
    assert!(received.len() >= 50);

    // What was confirmed does not come again, what was not does.
    for _ in 0..50 {
        last += 1;
        insert(last).await;
    }
    let left = usize::try_from(last - first).unwrap() + 1 - received.len();
    received.extend(rows(client(), port, slot, "resume", left));
    assert_eq!(received, of_source(&stage, first).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn psycopg2_follows() {
    follows("psycopg", psycopg2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pglogrepl_follows() {
    follows("pglogrepl", pglogrepl).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pg_logical_replication_follows() {
    follows("node", pg_logical_replication).await;
}
