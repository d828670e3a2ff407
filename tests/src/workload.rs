//! What is done at the source, and how contents of databases are compared.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::expect::wait_until;
use crate::postgres::client;
use crate::process::{Process, run_successfully};
use crate::sql::{Row, Session};

/// The tables of pgbench.
pub const PGBENCH_TABLES: [&str; 4] = [
    "pgbench_accounts",
    "pgbench_branches",
    "pgbench_history",
    "pgbench_tellers",
];

/// A session that lost its client ends with its statement.
const SETTLE_DEADLINE: Duration = Duration::from_secs(30);
/// Steps of `pgbench -i`: drop and create the tables, with primary keys but without rows.
const SCHEMA_STEPS: &str = "dtp";
/// Fill the tables: TRUNCATE of all and COPY, in one transaction.
const DATA_STEPS: &str = "g";

fn pgbench(port: u16) -> Command {
    let mut command = client("pgbench");
    command
        .args(["-h", "127.0.0.1", "-U", "postgres", "-p"])
        .arg(port.to_string());
    command
}

fn initialise(cluster: &Cluster, steps: &str, scale: u32) {
    let mut command = pgbench(cluster.port());
    command
        .args(["-q", "-i", "-I", steps, "-s"])
        .arg(scale.to_string())
        .arg("postgres");
    run_successfully(&mut command);
}

/// Makes pgbench's tables, empty.
pub fn create_pgbench_tables(cluster: &Cluster) {
    initialise(cluster, SCHEMA_STEPS, 1);
}

/// Fills pgbench's tables; 100,000 accounts per `scale`.
pub fn fill_pgbench_tables(cluster: &Cluster, scale: u32) {
    initialise(cluster, DATA_STEPS, scale);
}

/// A pgbench run in the background.
#[derive(Debug)]
pub struct Pgbench(Process);

impl Pgbench {
    /// Starts `clients` that together run about `transactions` transactions.
    pub fn start(cluster: &Cluster, clients: u32, transactions: u32) -> Self {
        let mut command = pgbench(cluster.port());
        command
            .args(["-n", "-c", &clients.to_string(), "-j", "2", "-t"])
            .arg((transactions / clients).to_string())
            .arg("postgres");
        Self::spawn(command, cluster)
    }

    /// Starts `clients` that go on until they are stopped or lose their connections.
    pub fn start_endless(cluster: &Cluster, clients: u32) -> Self {
        let mut command = pgbench(cluster.port());
        command
            .args(["-n", "-c", &clients.to_string(), "-j", "2", "-T", "3600"])
            .arg("postgres");
        Self::spawn(command, cluster)
    }

    /// Starts `clients` that go on for a time.
    pub fn start_for(cluster: &Cluster, clients: u32, duration: Duration) -> Self {
        let mut command = pgbench(cluster.port());
        command
            .args(["-n", "-c", &clients.to_string(), "-j", "2", "-T"])
            .arg(duration.as_secs().to_string())
            .arg("postgres");
        Self::spawn(command, cluster)
    }

    /// Starts `clients` that run a script of their own until they are stopped or lose their connections.
    pub fn start_script(cluster: &Cluster, clients: u32, script: &str) -> Self {
        let file = cluster.socket_directory().join("script.sql");
        std::fs::write(&file, script).expect("a script is written");
        let mut command = pgbench(cluster.port());
        command
            .args([
                "-n",
                "-c",
                &clients.to_string(),
                "-j",
                "2",
                "-T",
                "3600",
                "-f",
            ])
            .arg(file)
            .arg("postgres");
        Self::spawn(command, cluster)
    }

    fn spawn(command: Command, cluster: &Cluster) -> Self {
        let log = cluster.socket_directory().join("pgbench.log");
        Self(Process::spawn("pgbench", command, &log))
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.0.exit_status().is_some()
    }

    /// Waits for the end of a run that must succeed.
    pub async fn finish(mut self, deadline: Duration) {
        let status = self.0.wait_for_exit(deadline).await;
        assert!(status.success(), "pgbench failed:\n{}", self.0.log_text());
    }

    /// Ends it, wherever it is.
    pub fn stop(mut self) {
        self.0.kill();
    }

    /// Ends it, and waits until its last transactions have ended too: they may commit after it was killed.
    pub async fn stop_and_settle(self, cluster: &Cluster) {
        self.stop();
        wait_until("pgbench's sessions end", SETTLE_DEADLINE, async || {
            let sql = "select count(*) from pg_stat_activity where application_name = 'pgbench'";
            match cluster.value(sql).await.as_str() {
                "0" => Ok(()),
                left => Err(left.to_owned()),
            }
        })
        .await;
    }
}

/// Number of rows and a checksum over all values of a table, the same on every server with the same rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The table.
    pub table: String,
    /// Rows.
    pub rows: u64,
    /// Sum of the rows' 64-bit hashes.
    pub checksum: String,
}

/// The contents of some tables.
pub async fn contents(session: &mut Session, tables: &[&str]) -> Vec<Contents> {
    let mut all = Vec::new();
    for table in tables {
        let sql = format!(
            "select count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) from {table} t"
        );
        let rows = session.run(&sql).await;
        let [Some(count), Some(checksum)] = rows[0].as_slice() else {
            panic!("unexpected result {rows:?}");
        };
        all.push(Contents {
            table: (*table).to_owned(),
            rows: count.parse().expect("a count is a number"),
            checksum: checksum.clone(),
        });
    }
    all
}

/// All rows of a table.
pub async fn rows_of(session: &mut Session, table: &str) -> Vec<Row> {
    session.run(&format!("select * from {table}")).await
}

/// The contents that some rows are; comparable only with what this function gives.
pub fn contents_of(table: &str, rows: &[Row]) -> Contents {
    let hash = |row: &Row| {
        let mut hasher = DefaultHasher::new();
        row.hash(&mut hasher);
        hasher.finish()
    };
    // A sum, since rows have no order.
    let sum = rows.iter().map(hash).fold(0, u64::wrapping_add);
    Contents {
        table: table.to_owned(),
        rows: rows.len() as u64,
        checksum: format!("{sum:016x}"),
    }
}

/// Bytes of all files below a folder.
pub fn bytes_in(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_in(&entry.path()),
            Ok(metadata) => metadata.len(),
            // Removed meanwhile.
            Err(_) => 0,
        })
        .sum()
}
