//! Runs seeds of the simulation on all processors.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use simulation::{Plant, run};

/// Runs seeds of the simulation; the first that finds something is shown with the end of its trace.
#[derive(Debug, Parser)]
struct Arguments {
    /// One seed, with its whole trace.
    #[arg(long, env = "SEED")]
    seed: Option<u64>,
    /// How many seeds, from `first` on.
    #[arg(long, env = "SEEDS", default_value_t = 100_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, env = "FIRST", default_value_t = 0)]
    first: u64,
    /// A mistake to plant.
    #[arg(long, value_enum, default_value_t = Plant::Nothing)]
    plant: Plant,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A panic is one of the things that a seed can find, and is reported with it.
    std::panic::set_hook(Box::new(|_| {}));
    match arguments.seed {
        Some(seed) => one(seed, arguments.plant),
        None => many(&arguments),
    }
}

fn one(seed: u64, plant: Plant) -> ExitCode {
    let outcome = run(seed, plant, true);
    println!("seed {seed}: trace {:016x}", outcome.trace_hash);
    match outcome.wrong {
        None => ExitCode::SUCCESS,
        Some(wrong) => {
            eprintln!("seed {seed}: {wrong}");
            ExitCode::FAILURE
        }
    }
}

fn many(arguments: &Arguments) -> ExitCode {
    let begun = Instant::now();
    let next = AtomicU64::new(arguments.first);
    let end = arguments.first + arguments.seeds;
    let found = AtomicU64::new(u64::MAX);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || found.load(Ordering::Relaxed) < seed {
                        return;
                    }
                    if run(seed, arguments.plant, false).wrong.is_some() {
                        found.fetch_min(seed, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let found = found.into_inner();
    if found == u64::MAX {
        println!(
            "{} seeds, nothing found, {:?}",
            arguments.seeds,
            begun.elapsed()
        );
        return ExitCode::SUCCESS;
    }
    let outcome = run(found, arguments.plant, false);
    eprintln!("{}", outcome.trace_end);
    eprintln!("seed {found}: {}", outcome.wrong.unwrap_or_default());
    eprintln!("all of it: SEED={found} make sim");
    ExitCode::FAILURE
}
