//! A program that a test started, with its output in a file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::expect::wait_until;

/// How much of a log is printed when a test fails.
const TAIL_BYTES: usize = 6_000;

/// A running program. Dropped, it is killed; in a failing test the end of its log is printed first.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Resident now.
    pub resident: u64,
    /// The most that was ever resident.
    pub peak: u64,
    /// Resident now and not backed by a file: without the mapped log.
    pub anonymous: u64,
}

impl Process {
    /// Starts `command`; its output is appended to `log`.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Self {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .unwrap_or_else(|error| panic!("{}: {error}", log.display()));
        let errors = output.try_clone().expect("a file can be cloned");
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, if it still runs.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("a process id is positive");
        if let Some(pid) = Pid::from_raw(id) {
            // Not there any more: nothing to do.
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills it at once, as a crash does, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// How it ended, if it has.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits until it ends by itself.
    pub async fn wait_for_exit(&mut self, deadline: Duration) -> ExitStatus {
        let what = format!("{} ends", self.name);
        wait_until(&what, deadline, async || {
            self.exit_status().ok_or_else(|| "it still runs".to_owned())
        })
        .await
    }

    /// Asks it to end (SIGTERM) and checks that it does so with exit status 0.
    pub async fn terminate(&mut self, deadline: Duration) {
        self.signal(Signal::TERM);
        let status = self.wait_for_exit(deadline).await;
        assert!(
            status.success(),
            "{} ended with {status} after SIGTERM:\n{}",
            self.name,
            self.log_tail()
        );
    }

    /// All that it has written since the log file was made.
    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    fn log_tail(&self) -> String {
        let text = self.log_text();
        let mut from = text.len().saturating_sub(TAIL_BYTES);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        text[from..].to_owned()
    }

    /// Its memory, from `/proc`.
    pub fn memory(&self) -> Memory {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{} is gone: {path}: {error}", self.name));
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name))
                .and_then(|rest| rest.split_whitespace().next())
                .and_then(|kilobytes| kilobytes.parse::<u64>().ok())
                .unwrap_or(0)
                * 1024
        };
        Memory {
            resident: field("VmRSS:"),
            peak: field("VmHWM:"),
            anonymous: field("RssAnon:"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let (name, log) = (&self.name, self.log.display());
            eprintln!(
                "---- end of the log of {name} ({log})\n{}----",
                self.log_tail()
            );
        }
    }
}

/// Runs a program to its end.
pub fn run(command: &mut Command) -> std::process::Output {
    command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}

/// Runs a program to its end and checks that it succeeded; its standard output.
pub fn run_successfully(command: &mut Command) -> String {
    let output = run(command);
    assert!(
        output.status.success(),
        "{command:?} ended with {}:\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
