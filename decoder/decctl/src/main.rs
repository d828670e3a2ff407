//! `decctl`: the operator's command line.
//!
//! Data goes to standard output, everything else to standard error. Exit status: 0, 1 (failed), 2 (usage).
//! Offline commands (`segments`, `dump`, `verify`) read the log directory; the others ask the decoder or a fanout over gRPC, and
//! `init` talks to the source database.

mod cli;
mod cmd;
mod error;
mod output;
mod rpc;
mod time;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_output() => ExitCode::SUCCESS,
        Err(error) => service::cli::report("decctl", &error),
    }
}

fn run(cli: Cli) -> Result<(), error::Error> {
    let config = cli.config.load()?;
    service::telemetry::init(&config.telemetry)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(cmd::run(cli, config))
}
