//! `make bench`: runs the benchmark, all parts or those that are named.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use load::results::Results;
use load::scale::Scale;
use load::{parts, report};

/// Native walsenders and Decant, measured side by side.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Arguments {
    /// Parts to run; all if none is named.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(parts::NAMES))]
    parts: Vec<String>,
    /// A factor on all sizes, 0 to 1. Targets are about 1.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// The results file; what it has of other parts stays.
    #[arg(long, default_value = "target/bench/results.json")]
    results: PathBuf,
    /// The text that is made of it, with its charts beside it.
    #[arg(long, default_value = "target/bench/RESULTS.md")]
    report: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            runtime.block_on(run(&arguments));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) {
    let named = |name: &&&str| {
        arguments.parts.is_empty() || arguments.parts.iter().any(|part| part == **name)
    };
    for name in parts::NAMES.iter().filter(named) {
        eprintln!("==> {name}");
        let outcome = parts::run(name, Scale::new(arguments.scale)).await;
        // After each part: what was measured is not lost with the next one.
        let mut results = Results::read(&arguments.results);
        results.put(name, outcome);
        results.write(&arguments.results);
        report::write(&results, &arguments.report);
    }
    println!("{}", arguments.results.display());
    println!("{}", arguments.report.display());
}
