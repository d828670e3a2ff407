//! Deterministic simulation: the decoder's core, the log and its readers on a simulated disk, clock and source, with
//! faults, by seed. The same seed gives the same trace.
//!
//! ```text
//!  source (history, stream) ──► decoder::simulation::Core ──► disk ──► storage_format::log ──► readers
//!        ▲                              │                      │
//!        └──────── confirmed ───────────┘        crash, power loss, failed and short writes, full disk
//! ```
//!
//! What runs is the product's own code: assembling, staging, appending, sealing, recovery, prepared transactions, the
//! watermark, the registry, retention, and the reader. One thread does everything, in an order that chance decides, so
//! every interleaving of what are threads and processes in reality can be had again.
//!
//! # What is checked
//!
//! - Every reader finds every transaction that committed, once, whole, in commit order, with its very bytes; and
//!   prepared transactions, their ends, and messages that stand alone, in their places.
//! - What the source was told to be safe, and what a reader of durable data was shown, is there after whatever happens.
//! - A position promises that everything before it was given.
//! - In the end `decctl verify` finds every file as it has to be, but for an index that was lost with the power.
//! - Nobody is refused a position that its slot keeps.
//! - A decoder ends by itself only if the disk has failed; and when nothing fails any more, everything comes to its end.

pub mod decoder;
pub mod disk;
pub mod machine;
pub mod plan;
pub mod random;
pub mod reader;
pub mod source;
pub mod store;
pub mod trace;
pub mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use plan::Plant;

use machine::Machine;
use world::World;

/// What came of a seed.
#[derive(Debug)]
pub struct Outcome {
    /// The same for the same seed.
    pub trace_hash: u64,
    /// What is wrong.
    pub wrong: Option<String>,
    /// The last events.
    pub trace_end: String,
}

/// Runs a seed. `aloud`: all events are printed.
#[must_use]
pub fn run(seed: u64, plant: Plant, aloud: bool) -> Outcome {
    let world = World::new(seed, aloud);
    let machine = Machine::new(&world, plant);
    let result = catch_unwind(AssertUnwindSafe(|| machine.run()));
    let wrong = match result {
        Ok(Ok(())) => None,
        Ok(Err(wrong)) => Some(wrong),
        Err(panic) => Some(panic_message(&*panic)),
    };
    Outcome {
        trace_hash: world.trace_hash(),
        wrong,
        trace_end: world.trace_end(),
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a panic: {}", text.unwrap_or("without a text"))
}
