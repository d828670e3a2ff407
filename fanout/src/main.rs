//! The program `fanout`: see the README for its configuration.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use service::cli::ConfigArgs;
use service::config::Config;

/// Serves Decant's log to subscribers, over gRPC and over PostgreSQL's replication protocol.
#[derive(Debug, Parser)]
#[command(name = "fanout", version = service::VERSION)]
struct Args {
    #[command(flatten)]
    config: ConfigArgs,
}

fn main() -> ExitCode {
    match setup().and_then(start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => service::cli::report("fanout", &*error),
    }
}

/// Everything that can be found wrong before anything runs.
fn setup() -> Result<Config, Box<dyn Error>> {
    let config = Args::parse().config.load()?;
    service::telemetry::init(&config.telemetry)?;
    service::limits::raise_open_files();
    // Fails only if there is one already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Ok(config)
}

fn start(config: Config) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(fanout::runtime::run(config))?)
}
