//! A private PostgreSQL server in a temporary folder, on the loopback interface and a Unix socket.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pg_proto::Lsn;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::expect::wait_until;
use crate::ports::free_port;
use crate::postgres::{Installation, server_account};
use crate::process::{Process, run_successfully};
use crate::sql::{Endpoint, Row, Session};

/// Servers write their files for real: what a test kills must come back as in production.
const SETTINGS: &[(&str, &str)] = &[
    ("wal_level", "logical"),
    ("max_wal_senders", "20"),
    ("max_replication_slots", "20"),
    ("max_worker_processes", "32"),
    ("max_logical_replication_workers", "20"),
    ("max_connections", "100"),
    ("max_prepared_transactions", "10"),
    ("shared_buffers", "64MB"),
    ("wal_retrieve_retry_interval", "100ms"),
    // In the data folder, so that a killed server leaves nothing in /dev/shm.
    ("dynamic_shared_memory_type", "mmap"),
    ("log_replication_commands", "on"),
    ("log_line_prefix", "%m [%p] %q%a "),
];

const START_DEADLINE: Duration = Duration::from_secs(60);
const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Sessions are ended, walsenders send what is left.
    Fast,
    /// At once; the next start recovers.
    Immediate,
}

/// One server. Dropped, it is stopped and its files are removed.
#[derive(Debug)]
pub struct Cluster {
    installation: Installation,
    server: Option<Process>,
    port: u16,
    settings: Vec<(String, String)>,
    // After `server`: the files go when the server has gone.
    home: TempDir,
}

impl Cluster {
    /// A new server of a major version.
    pub async fn start_new(major: u32) -> Self {
        Self::start_with(major, &[]).await
    }

    /// A new server with further settings.
    pub async fn start_with(major: u32, settings: &[(&str, &str)]) -> Self {
        let installation = Installation::find(major);
        let home = tempfile::Builder::new()
            .prefix("decant-postgres-")
            .tempdir()
            .expect("a temporary folder");
        give_to_server(home.path());
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut cluster = Self {
            installation,
            server: None,
            port: free_port(),
            settings: SETTINGS.iter().chain(settings).map(owned).collect(),
            home,
        };
        cluster.initialise();
        cluster.start().await;
        cluster
    }

    /// A standby of this server, which is stopped while its files are copied, and started again.
    pub async fn standby(&mut self, settings: &[(&str, &str)]) -> Self {
        let home = tempfile::Builder::new()
            .prefix("decant-postgres-")
            .tempdir()
            .expect("a temporary folder");
        give_to_server(home.path());
        let primary = format!(
            "host=127.0.0.1 port={} user=postgres dbname=postgres",
            self.port
        );
        let mut all = self.settings.clone();
        all.push(("primary_conninfo".to_owned(), primary));
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        all.extend(settings.iter().map(owned));
        self.stop(Stop::Fast).await;
        let mut standby = Self {
            installation: self.installation.clone(),
            server: None,
            port: free_port(),
            settings: all,
            home,
        };
        // With owners and rights: the server looks at both.
        run_successfully(
            Command::new("cp")
                .arg("-a")
                .arg(self.data())
                .arg(standby.data()),
        );
        run_successfully(
            Command::new("cp")
                .arg("-a")
                .arg(self.data().join("PG_VERSION"))
                .arg(standby.data().join("standby.signal")),
        );
        self.start().await;
        standby.start().await;
        standby
    }

    /// Waits until a standby has applied all that this server has written.
    pub async fn wait_for_standby(&self, standby: &Self) {
        let end = self.flush_lsn().await;
        wait_until("the standby follows", START_DEADLINE, async || {
            let sql = "select coalesce(pg_last_wal_replay_lsn(), '0/0')";
            let lsn: Lsn = standby.value(sql).await.parse().expect("a position");
            if lsn >= end {
                Ok(())
            } else {
                Err(lsn.to_string())
            }
        })
        .await;
    }

    /// Takes a standby off its primary: what it has not received it never will. It is started anew.
    pub async fn leave_primary(&mut self) {
        self.stop(Stop::Fast).await;
        self.set("primary_conninfo", "");
        self.start().await;
    }

    /// Makes a standby a server of its own.
    pub async fn promote(&self) {
        self.sql("select pg_promote()").await;
    }

    fn initialise(&self) {
        run_successfully(
            self.installation
                .command("initdb")
                .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"])
                .args(["--no-sync", "-D"])
                .arg(self.data()),
        );
    }

    /// The major version.
    pub fn major(&self) -> u32 {
        self.installation.major
    }

    /// One of its programs.
    pub(crate) fn program(&self, name: &str) -> Command {
        self.installation.command(name)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder with the Unix socket.
    pub fn socket_directory(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// Changes a setting from the next start on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.push((name.to_owned(), value.to_owned()));
    }

    /// Starts the server and waits until it takes connections.
    pub async fn start(&mut self) {
        let mut command = self.installation.command("postgres");
        command.arg("-D").arg(self.data());
        for (name, value) in &self.settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command
            .args(["-c", "listen_addresses=127.0.0.1", "-p"])
            .arg(self.port.to_string())
            .arg("-k")
            .arg(self.home.path());
        let name = format!("PostgreSQL {}", self.major());
        let log = self.home.path().join("log");
        self.server = Some(Process::spawn(&name, command, &log));
        let endpoint = self.endpoint();
        let server = self.server.as_mut().expect("it was just started");
        wait_until(&format!("{name} starts"), START_DEADLINE, async || {
            if let Some(status) = server.exit_status() {
                panic!("{name} ended with {status}:\n{}", server.log_text());
            }
            let session = Session::connect(&endpoint).await;
            session.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }

    /// Stops the server and waits until it is gone.
    pub async fn stop(&mut self, how: Stop) {
        if let Some(mut server) = self.server.take() {
            server.signal(match how {
                Stop::Fast => Signal::INT,
                Stop::Immediate => Signal::QUIT,
            });
            server.wait_for_exit(STOP_DEADLINE).await;
        }
    }

    /// Kills the postmaster and all its processes with SIGKILL, as a power cut of the program.
    pub async fn kill(&mut self) {
        let Some(mut server) = self.server.take() else {
            return;
        };
        // It stands still first: a child that sees it gone ends in good order, and what it had locked others may have.
        signal(server.id(), Signal::STOP);
        let children = children_of(server.id());
        for child in &children {
            signal(*child, Signal::KILL);
        }
        server.kill();
        wait_until("the server's processes end", STOP_DEADLINE, async || {
            let left = children.iter().filter(|child| is_alive(**child)).count();
            if left == 0 {
                Ok(())
            } else {
                Err(format!("{left} processes"))
            }
        })
        .await;
    }

    /// Its postmaster, if it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.server.as_ref().map(Process::id)
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.server.is_some()
    }

    /// What the server has logged.
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// Where to connect: user postgres, database postgres.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::new(self.port)
    }

    /// A new session.
    pub async fn session(&self) -> Session {
        Session::connect(&self.endpoint())
            .await
            .unwrap_or_else(|error| panic!("cannot connect to the server: {error}"))
    }

    /// Runs SQL in a session of its own; the rows of the last statement.
    pub async fn sql(&self, sql: &str) -> Vec<Row> {
        self.session().await.run(sql).await
    }

    /// The only value that a query returns.
    pub async fn value(&self, sql: &str) -> String {
        self.session().await.value(sql).await
    }

    /// The end of the WAL that is flushed.
    pub async fn flush_lsn(&self) -> Lsn {
        let text = self.value("select pg_current_wal_flush_lsn()").await;
        text.parse().expect("the server prints positions")
    }

    /// How many replication slots there are.
    pub async fn slot_count(&self) -> u64 {
        let text = self
            .value("select count(*) from pg_replication_slots")
            .await;
        text.parse().expect("a count is a number")
    }

    /// Bytes of WAL that its replication slots hold back at most.
    pub async fn wal_held_bytes(&self) -> u64 {
        let sql = "select coalesce(max(pg_current_wal_lsn() - confirmed_flush_lsn), 0)::int8 \
                   from pg_replication_slots";
        self.value(sql)
            .await
            .parse()
            .expect("a difference is a number")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // It removes its shared memory when it is stopped so; killed, it would leave that behind.
            server.signal(Signal::QUIT);
            for _ in 0..500 {
                if server.exit_status().is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.remove_shared_memory();
    }
}

impl Cluster {
    /// The small System V segment of a server that was killed and not started again.
    fn remove_shared_memory(&self) {
        let file = std::fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let segment = file
            .lines()
            .nth(6)
            .and_then(|line| line.split_whitespace().nth(1));
        if let Some(segment) = segment {
            let _ = Command::new("ipcrm").args(["-m", segment]).output();
        }
    }
}

pub(crate) fn give_to_server(directory: &Path) {
    if let Some(account) = server_account() {
        std::os::unix::fs::chown(directory, Some(account.uid), Some(account.gid))
            .expect("root may give a folder away");
        // Sockets in it are for programs of other users too.
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory, everybody).expect("an owner sets permissions");
    }
}

/// The processes whose parent is `parent`.
fn children_of(parent: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|id| parent_of(*id) == Some(parent))
        .collect()
}

fn parent_of(id: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name in parentheses may hold blanks.
    let rest = stat.rsplit_once(')')?.1;
    rest.split_whitespace().nth(1)?.parse().ok()
}

fn is_alive(id: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| {
        let state = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest.trim_start());
        !state.starts_with('Z')
    })
}

fn signal(id: u32, signal: Signal) {
    let pid = i32::try_from(id)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, signal);
    }
}
