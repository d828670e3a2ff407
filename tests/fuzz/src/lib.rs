//! Every parser of bytes that come from a disk or a network, as a target: whatever the bytes are, it gives an answer
//! within bounded memory.
//!
//! `make fuzz` lets libFuzzer look for bytes that lead further, for a time. `make test` runs the seeds, which are made of
//! recordings of real servers, the findings of former days, and some thousand mutations of both.

mod build;
mod mutate;
pub mod targets;

use std::path::PathBuf;

pub use mutate::Mutator;
pub use targets::TARGETS;

/// A parser.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, also that of its folder of findings.
    pub name: &'static str,
    /// Parses; whether the bytes were understood. A panic is a finding.
    pub run: fn(&[u8]) -> bool,
    /// What it begins with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Memory that it may take at a time, beside a multiple of its input's size.
    pub memory_bytes: usize,
}

impl Target {
    /// The target with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// What was found once.
    #[must_use]
    pub fn regressions(&self) -> Vec<Vec<u8>> {
        let folder = root().join("tests/fuzz/regressions").join(self.name);
        files_in(&folder)
    }
}

/// The repository.
fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The contents of a folder's files, in the order of their names; nothing, if there is no folder.
fn files_in(folder: &std::path::Path) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let contents = paths.iter().map(std::fs::read);
    contents.filter_map(Result::ok).collect()
}
