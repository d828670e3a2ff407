//! A PostgreSQL server of a test's own, in a temporary directory, gone with the test.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use pg_client::{ConnectOptions, Connection, SslMode};
use tempfile::TempDir;

/// A running server.
pub(crate) struct Server {
    directory: TempDir,
    pub(crate) port: u16,
}

impl Server {
    /// Makes a cluster and starts it. `hba` comes behind trust for Unix sockets.
    pub(crate) async fn start(settings: &str, hba: &str) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("pg-client-")
            .tempdir()
            .unwrap();
        give_away(directory.path());
        let server = Self {
            directory,
            port: free_port(),
        };
        let data = server.data();
        server.run(
            "initdb",
            &[
                "-D", &data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8",
            ],
        );
        let configuration = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\nfsync = off\n\
             wal_level = logical\nmax_connections = 30\n{settings}\n",
            server.port,
            server.path("").display()
        );
        server.append("data/postgresql.conf", &configuration);
        fs::write(
            server.path("data/pg_hba.conf"),
            format!("local all all trust\n{hba}"),
        )
        .unwrap();
        server.run_server();
        server
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn data(&self) -> String {
        self.path("data").display().to_string()
    }

    /// Writes a file that the server can read.
    pub(crate) fn give(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        give_away(&path);
    }

    pub(crate) fn append(&self, name: &str, text: &str) {
        let path = self.path(name);
        let before = fs::read_to_string(&path).unwrap();
        fs::write(path, before + text).unwrap();
    }

    fn run_server(&self) {
        let log = self.path("log").display().to_string();
        self.run("pg_ctl", &["start", "-w", "-D", &self.data(), "-l", &log]);
    }

    pub(crate) fn restart(&self) {
        self.stop("fast");
        self.run_server();
    }

    pub(crate) fn stop(&self, mode: &str) {
        self.run("pg_ctl", &["stop", "-w", "-m", mode, "-D", &self.data()]);
    }

    /// Runs a program of PostgreSQL as a user that it accepts.
    fn run(&self, program: &str, arguments: &[&str]) {
        let log = fs::File::create(self.path(program)).unwrap();
        let mut command = Command::new(bin_directory().join(program));
        command
            .args(arguments)
            .current_dir("/")
            .stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        if let Some((uid, gid)) = server_user() {
            command.uid(uid).gid(gid);
        }
        let status = command.status().unwrap();
        let said = || fs::read_to_string(self.path(program)).unwrap();
        assert!(status.success(), "{program} failed: {}", said());
    }

    /// Options over TCP.
    pub(crate) fn options(&self, user: &str) -> ConnectOptions {
        let mut options = ConnectOptions::new("127.0.0.1", self.port, user);
        options.database = Some("postgres".into());
        options.sslmode = SslMode::Disable;
        options.connect_timeout = Duration::from_secs(20);
        options
    }

    /// Options over the Unix socket, as superuser.
    pub(crate) fn admin_options(&self) -> ConnectOptions {
        let mut options = self.options("postgres");
        options.host = self.directory.path().display().to_string();
        options
    }

    pub(crate) async fn admin(&self) -> Connection {
        Connection::connect(&self.admin_options()).await.unwrap()
    }

    pub(crate) async fn execute(&self, sql: &str) {
        self.admin().await.simple_query(sql).await.unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.path("data/postmaster.pid").exists() {
            self.stop("immediate");
        }
    }
}

fn bin_directory() -> PathBuf {
    if let Some(directory) = std::env::var_os("PG_BIN") {
        return directory.into();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").expect("no PostgreSQL: set PG_BIN");
    let directories = versions.map(|version| version.unwrap().path().join("bin"));
    let with_server = directories.filter(|directory| directory.join("initdb").exists());
    with_server.max().expect("no PostgreSQL server: set PG_BIN")
}

/// PostgreSQL refuses to run as root; then it runs as the user `postgres`.
fn server_user() -> Option<(u32, u32)> {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let line = users.lines().find(|line| line.starts_with("postgres:"));
    let fields: Vec<_> = line.expect("no user postgres").split(':').collect();
    Some((fields[2].parse().unwrap(), fields[3].parse().unwrap()))
}

fn give_away(path: &Path) {
    if let Some((uid, gid)) = server_user() {
        chown(path, Some(uid), Some(gid)).unwrap();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
