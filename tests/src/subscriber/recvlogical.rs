//! `pg_recvlogical`, PostgreSQL's own client program for replication slots.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pg_proto::Lsn;

use crate::postgres::client;
use crate::process::{Process, run_successfully};
use crate::sql::Endpoint;

/// A slot and the file that receives its stream.
#[derive(Debug)]
pub struct RecvLogical {
    to: Endpoint,
    slot: String,
    publications: String,
    file: PathBuf,
}

impl RecvLogical {
    /// Creates the slot with `pg_recvlogical --create-slot`.
    pub fn create(to: &Endpoint, slot: &str, publications: &str, directory: &Path) -> Self {
        let this = Self {
            to: to.clone(),
            slot: slot.to_owned(),
            publications: publications.to_owned(),
            file: directory.join(format!("{slot}.out")),
        };
        run_successfully(this.command().args(["--create-slot", "--plugin=pgoutput"]));
        this
    }

    /// Starts to receive; with `end` the program ends by itself when it has reached that position.
    pub fn start(&self, end: Option<Lsn>) -> Process {
        let mut command = self.command();
        command
            .args(["--start", "--no-loop", "-o", "proto_version=1", "-o"])
            .arg(format!("publication_names={}", self.publications))
            .arg("-f")
            .arg(&self.file);
        if let Some(end) = end {
            command.arg(format!("--endpos={end}"));
        }
        let log = self.file.with_extension("log");
        Process::spawn("pg_recvlogical", command, &log)
    }

    /// Receives up to a position.
    pub async fn receive_until(&self, end: Lsn, deadline: Duration) {
        let mut process = self.start(Some(end));
        let status = process.wait_for_exit(deadline).await;
        assert!(status.success(), "pg_recvlogical: {}", process.log_text());
    }

    /// Drops the slot.
    pub fn drop_slot(&self) {
        run_successfully(self.command().arg("--drop-slot"));
    }

    /// What was received so far: the messages, each followed by a line feed.
    pub fn received(&self) -> Vec<u8> {
        std::fs::read(&self.file).unwrap_or_default()
    }

    fn command(&self) -> Command {
        let mut command = client("pg_recvlogical");
        command
            .arg("-d")
            .arg(self.to.conninfo())
            .arg(format!("--slot={}", self.slot));
        command
    }
}
