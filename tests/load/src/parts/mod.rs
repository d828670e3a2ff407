//! What is measured: one file for each part, which sets up what it needs and leaves nothing behind.

mod catch_up;
mod distinct;
mod equality;
mod fan_out;
mod grpc;
mod idle;
mod ingest;
mod large;
mod latency;
mod seek;
mod selective;
mod storage;
mod walstream;

use crate::machine;
use crate::outcome::Outcome;
use crate::scale::Scale;
use crate::stage;

/// All parts, in the order in which they are run and shown.
pub const NAMES: [&str; 12] = [
    "fan_out",
    "ingest",
    "selective",
    "distinct",
    "equality",
    "latency",
    "large",
    "catch_up",
    "idle",
    "storage",
    "seek",
    "grpc",
];

/// Runs one part.
pub async fn run(name: &str, scale: Scale) -> Outcome {
    let load_before = machine::load_average();
    let mut outcome = match name {
        "fan_out" => Box::pin(fan_out::run(scale)).await,
        "ingest" => Box::pin(ingest::run(scale)).await,
        "selective" => Box::pin(selective::run(scale)).await,
        "distinct" => Box::pin(distinct::run(scale)).await,
        "equality" => Box::pin(equality::run(scale)).await,
        "latency" => Box::pin(latency::run(scale)).await,
        "large" => Box::pin(large::run(scale)).await,
        "catch_up" => Box::pin(catch_up::run(scale)).await,
        "idle" => Box::pin(idle::run(scale)).await,
        "storage" => Box::pin(storage::run(scale)).await,
        "seek" => Box::pin(seek::run(scale)).await,
        "grpc" => Box::pin(grpc::run(scale)).await,
        _ => panic!("there is no part {name}"),
    };
    outcome.run = format!(
        "{}; PostgreSQL {}; scale {}; load of the machine before: {load_before}",
        machine::describe(),
        stage::major(),
        scale.factor()
    );
    outcome
}
