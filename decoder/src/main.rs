//! The decoder's process.

use std::process::ExitCode;

use clap::Parser;
use decoder::{DecoderError, Prepared};
use service::cli::ConfigArgs;

/// Decodes one PostgreSQL database's write-ahead log once, into a log of segment files that fanouts serve
#[derive(Parser)]
#[command(name = "decoder", version = service::VERSION, about)]
struct Arguments {
    #[command(flatten)]
    config: ConfigArgs,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => service::cli::report("decoder", &error),
    }
}

/// What can fail without a network comes first, then the runtime.
fn run(arguments: &Arguments) -> Result<(), DecoderError> {
    let config = arguments.config.load()?;
    service::telemetry::init(&config.telemetry)?;
    service::limits::raise_open_files();
    // Fails only if there is one already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let prepared = Prepared::open(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("decoder")
        .build()
        .map_err(|source| DecoderError::System {
            what: "start the runtime",
            source,
        })?;
    runtime.block_on(prepared.run())
}
