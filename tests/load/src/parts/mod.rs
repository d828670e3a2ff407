//! What is measured: one file for each part, which sets up what it needs and leaves nothing behind.

mod fan_out;

use crate::machine;
use crate::outcome::Outcome;
use crate::scale::Scale;
use crate::stage;

/// All parts, in the order in which they are run and shown.
pub const NAMES: [&str; 1] = ["fan_out"];

/// Runs one part.
pub async fn run(name: &str, scale: Scale) -> Outcome {
    let load_before = machine::load_average();
    let mut outcome = match name {
        "fan_out" => Box::pin(fan_out::run(scale)).await,
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
