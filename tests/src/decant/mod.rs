//! One log: its configuration, the decoder, fanouts and `decctl`.

mod control;
mod fanout;
mod faults;
mod metrics;
mod program;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use pg_proto::Lsn;
use proto::v1::control_client::ControlClient;
use proto::v1::{GetStatusResponse, SourceState};
use tempfile::TempDir;
use tonic::transport::Channel;

pub use self::fanout::Fanout;
pub use self::program::text_of;

use self::control::{connect, try_status};
use self::program::to_toml;
use crate::cluster::Cluster;
use crate::expect::wait_until;
use crate::ports::{free_port, preferably};
use crate::process::{Process, run};
use crate::scale::patience;

const START_DEADLINE: Duration = Duration::from_secs(60);
const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// A log directory and the programs that work on it. Dropped, they are killed and the files removed.
#[derive(Debug)]
pub struct Decant {
    decoder: Option<Process>,
    fanouts: Vec<Fanout>,
    settings: BTreeMap<String, String>,
    control_port: u16,
    /// Chooses a fanout's port, given the default of the first one.
    choose_port: fn(u16) -> u16,
    /// Whether the programs look for faults that are asked for.
    may_fail: bool,
    home: TempDir,
}

impl Decant {
    /// Writes a configuration for a source; nothing is started yet. Segments are small, so that tests see many.
    pub fn new(source: &Cluster) -> Self {
        let home = tempfile::Builder::new()
            .prefix("decant-log-")
            .tempdir()
            .expect("a temporary folder");
        let control_port = free_port();
        let mut decant = Self {
            decoder: None,
            fanouts: Vec::new(),
            settings: BTreeMap::new(),
            control_port,
            choose_port: |_| free_port(),
            may_fail: false,
            home,
        };
        decant.set("source.host", "127.0.0.1");
        decant.set("source.port", source.port());
        decant.set("log.directory", decant.log_directory().display());
        decant.set("log.segment_bytes", 4 << 20);
        decant.set("decoder.control", format_args!("127.0.0.1:{control_port}"));
        decant.set("decoder.http", format_args!("127.0.0.1:{}", free_port()));
        decant.set("decoder.catalog_poll_ms", 200);
        // Subscribers without a slot may be slow: nothing goes while they read.
        decant.set("retention.keep_seconds", 86_400);
        let control = decant.control_url();
        decant.set("fanout.decoder", control);
        decant
    }

    /// Listens where the programs do by default, as far as that is free.
    pub fn prefer_default_ports(&mut self) {
        self.control_port = preferably(7400);
        let control = format!("127.0.0.1:{}", self.control_port);
        self.set("decoder.control", control);
        self.set(
            "decoder.http",
            format_args!("127.0.0.1:{}", preferably(7401)),
        );
        let control = self.control_url();
        self.set("fanout.decoder", control);
        self.choose_port = preferably;
    }

    /// Where a program is.
    pub fn program_path(&self, program: &str) -> PathBuf {
        program::program_path(program)
    }

    /// Another one on the same log directory and source, for what must not work.
    pub fn rival(&self) -> Self {
        let mut rival = Self {
            decoder: None,
            fanouts: Vec::new(),
            settings: self.settings.clone(),
            control_port: free_port(),
            choose_port: self.choose_port,
            may_fail: false,
            home: tempfile::tempdir().expect("a temporary folder"),
        };
        let control = format!("127.0.0.1:{}", rival.control_port);
        rival.set("decoder.control", control);
        rival.set("decoder.http", format_args!("127.0.0.1:{}", free_port()));
        let control = rival.control_url();
        rival.set("fanout.decoder", control);
        rival
    }

    /// Changes a setting for programs that are started from now on: `section.key`.
    pub fn set(&mut self, key: &str, value: impl std::fmt::Display) {
        self.settings.insert(key.to_owned(), value.to_string());
        let path = self.config_path();
        std::fs::write(&path, to_toml(&self.settings))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// The log directory.
    pub fn log_directory(&self) -> PathBuf {
        self.settings
            .get("log.directory")
            .map_or_else(|| self.home.path().join("log"), PathBuf::from)
    }

    /// A folder of this test's own.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    fn config_path(&self) -> PathBuf {
        self.home.path().join("decant.toml")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = program::command(program, &self.config_path());
        if self.may_fail {
            command.env("FAULTS", self.faults_path());
        }
        command
    }

    /// Runs `decctl`.
    pub fn decctl(&self, arguments: &[&str]) -> Output {
        run(self.command("decctl").args(arguments))
    }

    /// Runs `decctl` whenever it is called, also beside what else happens.
    pub fn decctl_again(&self, arguments: &[&str]) -> impl Fn() -> Output + Send + 'static {
        let config = self.config_path();
        let arguments: Vec<String> = arguments.iter().map(|&one| one.to_owned()).collect();
        move || run(program::command("decctl", &config).args(&arguments))
    }

    /// Runs `decctl`, which must succeed; its standard output.
    pub fn decctl_successfully(&self, arguments: &[&str]) -> String {
        let output = self.decctl(arguments);
        assert!(
            output.status.success(),
            "decctl {arguments:?}: {}\n{}",
            output.status,
            text_of(&output)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs `decctl`, which must fail with exit status 1; all that it printed.
    pub fn decctl_unsuccessfully(&self, arguments: &[&str]) -> String {
        let output = self.decctl(arguments);
        let text = text_of(&output);
        assert_eq!(
            output.status.code(),
            Some(1),
            "decctl {arguments:?}:\n{text}"
        );
        text
    }

    /// `decctl init`, then a decoder that has reached the source. pgbench's history has no replica identity, and
    /// needs none.
    pub async fn initialise_and_start(&mut self) {
        self.decctl_successfully(&["init", "--allow-missing-identity"]);
        self.start_decoder().await;
    }

    /// Starts the decoder and waits until it streams from the source.
    pub async fn start_decoder(&mut self) {
        self.spawn_decoder();
        self.wait_until_streaming().await;
    }

    /// Starts the decoder, whatever becomes of it; one that runs is killed.
    pub fn spawn_decoder(&mut self) {
        self.decoder = None;
        let log = self.home.path().join("decoder.log");
        self.decoder = Some(Process::spawn("decoder", self.command("decoder"), &log));
    }

    /// Starts the decoder so that it stops, as by SIGSTOP, when it meets a failpoint for the first time.
    pub fn spawn_decoder_to_stop_at(&mut self, failpoint: &str) {
        self.decoder = None;
        let log = self.home.path().join("decoder.log");
        let mut command = self.command("decoder");
        command.env("FAILPOINT", format!("{failpoint}:1:stop"));
        self.decoder = Some(Process::spawn("decoder", command, &log));
    }

    /// Starts the decoder so that it dies, as by `kill -9`, when it meets a failpoint for the `count`-th time.
    pub fn spawn_decoder_to_die_at(&mut self, failpoint: &str, count: u32) {
        self.decoder = None;
        let log = self.home.path().join("decoder.log");
        let mut command = self.command("decoder");
        command.env("FAILPOINT", format!("{failpoint}:{count}"));
        self.decoder = Some(Process::spawn("decoder", command, &log));
    }

    /// Waits until the decoder streams from the source.
    pub async fn wait_until_streaming(&mut self) {
        let url = self.control_url();
        let decoder = self.decoder.as_mut().expect("the decoder was started");
        wait_until("the decoder streams", START_DEADLINE, async || {
            if let Some(status) = decoder.exit_status() {
                panic!("the decoder ended with {status}:\n{}", decoder.log_text());
            }
            let status = try_status(&url).await?;
            let source = status.source.unwrap_or_default();
            if source.state() == SourceState::Streaming {
                Ok(())
            } else {
                Err(format!("{:?} {}", source.state(), source.last_error))
            }
        })
        .await;
    }

    /// Starts the decoder, which must refuse to run: exit status 1; what it logged.
    pub async fn decoder_error(&mut self) -> String {
        self.spawn_decoder();
        let mut decoder = self.decoder.take().expect("it was just started");
        let status = decoder.wait_for_exit(START_DEADLINE).await;
        let text = decoder.log_text();
        assert_eq!(
            status.code(),
            Some(1),
            "the decoder ended with {status}:\n{text}"
        );
        text
    }

    /// Waits until the decoder that runs has given up: exit status 1; what it logged.
    pub async fn decoder_failure(&mut self) -> String {
        let mut decoder = self.decoder.take().expect("the decoder runs");
        let status = decoder.wait_for_exit(patience()).await;
        let text = decoder.log_text();
        assert_eq!(
            status.code(),
            Some(1),
            "the decoder ended with {status}:\n{text}"
        );
        text
    }

    /// The decoder's process.
    pub fn decoder(&mut self) -> &mut Process {
        self.decoder.as_mut().expect("the decoder runs")
    }

    /// Kills the decoder with SIGKILL.
    pub fn kill_decoder(&mut self) {
        self.decoder().kill();
        self.decoder = None;
    }

    /// A metric of the decoder as its endpoint prints it: the value in the line that begins with `name`, labels included.
    pub async fn metric(&self, name: &str) -> u64 {
        let address = self.settings.get("decoder.http").expect("it is set");
        metrics::metric(address.trim_matches('"'), name).await
    }

    /// Ends the decoder with SIGTERM; it must exit with status 0.
    pub async fn stop_decoder(&mut self) {
        self.decoder().terminate(STOP_DEADLINE).await;
        self.decoder = None;
    }

    /// Starts one more fanout and waits until it serves; its number.
    pub async fn start_fanout(&mut self) -> usize {
        let number = self.add_fanout();
        self.restart_fanout(number).await;
        number
    }

    /// One more fanout, not started yet; its number.
    pub fn add_fanout(&mut self) -> usize {
        let number = self.fanouts.len();
        self.fanouts.push(Fanout {
            name: format!("fanout-{number}"),
            process: None,
            postgres_port: (self.choose_port)(6432),
            grpc_port: (self.choose_port)(7410),
            http_port: (self.choose_port)(7411),
        });
        number
    }

    /// Starts a fanout again; one that runs is killed.
    pub async fn restart_fanout(&mut self, number: usize) {
        self.spawn_fanout(number);
        self.wait_until_serving(number).await;
    }

    /// Waits until a fanout that was started takes connections.
    pub async fn wait_until_serving(&mut self, number: usize) {
        let fanout = &mut self.fanouts[number];
        let what = format!("{} serves", fanout.name);
        wait_until(&what, START_DEADLINE, async || {
            if let Some(status) = fanout.process().exit_status() {
                let log = fanout.process().log_text();
                panic!("the fanout ended with {status}:\n{log}");
            }
            for port in [fanout.postgres_port, fanout.grpc_port] {
                tokio::net::TcpStream::connect(("127.0.0.1", port))
                    .await
                    .map_err(|error| format!("port {port}: {error}"))?;
            }
            Ok(())
        })
        .await;
    }

    /// Starts a fanout, whatever becomes of it. If it runs it is killed before: the new one needs its ports.
    pub fn spawn_fanout(&mut self, number: usize) {
        self.fanouts[number].process = None;
        let mut command = self.command("fanout");
        let fanout = &self.fanouts[number];
        for (key, value) in [
            ("name", fanout.name.clone()),
            ("postgres", format!("127.0.0.1:{}", fanout.postgres_port)),
            ("grpc", format!("127.0.0.1:{}", fanout.grpc_port)),
            ("http", format!("127.0.0.1:{}", fanout.http_port)),
        ] {
            command.arg("--set").arg(format!("fanout.{key}={value}"));
        }
        let log = self.home.path().join(format!("{}.log", fanout.name));
        let process = Process::spawn(&fanout.name, command, &log);
        self.fanouts[number].process = Some(process);
    }

    /// A fanout.
    pub fn fanout(&mut self, number: usize) -> &mut Fanout {
        &mut self.fanouts[number]
    }

    /// Kills a fanout with SIGKILL.
    pub fn kill_fanout(&mut self, number: usize) {
        self.fanouts[number].process().kill();
        self.fanouts[number].process = None;
    }

    /// Ends a fanout with SIGTERM; it must exit with status 0.
    pub async fn stop_fanout(&mut self, number: usize) {
        self.fanouts[number]
            .process()
            .terminate(STOP_DEADLINE)
            .await;
        self.fanouts[number].process = None;
    }

    /// The decoder's gRPC address.
    pub fn control_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.control_port)
    }

    /// A client of the decoder's control service.
    pub async fn control(&self) -> ControlClient<Channel> {
        ControlClient::new(connect(&self.control_url()).await)
    }

    /// The decoder's state.
    pub async fn status(&self) -> GetStatusResponse {
        try_status(&self.control_url())
            .await
            .unwrap_or_else(|error| panic!("no status of the decoder: {error}"))
    }

    /// Waits until the log holds all up to a position, fsynced.
    pub async fn wait_until_durable(&self, lsn: Lsn) {
        let url = self.control_url();
        let what = format!("the log is durable up to {lsn}");
        wait_until(&what, crate::scale::patience(), async || {
            let log = try_status(&url).await?.log.unwrap_or_default();
            if log.durable_lsn >= lsn.0 {
                Ok(())
            } else {
                Err(Lsn(log.durable_lsn).to_string())
            }
        })
        .await;
    }

    /// Names of the files in the log directory's folder of segments, in order.
    pub fn segment_files(&self) -> Vec<String> {
        let folder = self.log_directory().join("segments");
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .map(|entries| {
                entries
                    .flatten()
                    .map(|entry| entry.file_name().to_string_lossy().into_owned())
                    .collect()
            })
            .unwrap_or_default();
        names.sort();
        names
    }
}
