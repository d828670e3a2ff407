//! The simulation in a small number, and the simulation itself: it repeats itself, and it finds what is planted.

use simulation::{Plant, run};

/// More are run by `make sim`.
const SEEDS: u64 = 400;

/// Within so many seeds every planted mistake is found.
const PLANTED_SEEDS: u64 = 2000;

#[test]
fn nothing_is_found() {
    for seed in 0..SEEDS {
        let outcome = run(seed, Plant::Nothing, false);
        if let Some(wrong) = outcome.wrong {
            panic!(
                "{}\nseed {seed}: {wrong}\nall of it: SEED={seed} make sim",
                outcome.trace_end
            );
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let mut last = 0;
    for seed in 0..60 {
        let hash = run(seed, Plant::Nothing, false).trace_hash;
        let again = run(seed, Plant::Nothing, false).trace_hash;
        assert_eq!(hash, again, "seed {seed}");
        assert_ne!(hash, last);
        last = hash;
    }
}

#[test]
fn planted_mistakes_are_found() {
    for plant in Plant::ALL {
        let found = (0..PLANTED_SEEDS).find(|seed| run(*seed, plant, false).wrong.is_some());
        assert!(found.is_some(), "{plant:?} was not found");
    }
}
