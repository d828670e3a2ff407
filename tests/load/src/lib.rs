//! The benchmark: native walsenders and Decant, on the same data, in the same run, on the same machine.
//!
//! | module | what |
//! |---|---|
//! | [`parts`] | what is measured, one file each |
//! | [`stage`] | a source with data, and Decant beside it |
//! | [`drain`] | the receivers, a program of their own |
//! | [`drainer`] | that program as the benchmark sees it |
//! | [`loopback`] | the least that a sender can do: what the machine itself can carry |
//! | [`cpu`], [`instructions`], [`machine`], [`scale`] | measuring and its circumstances |
//! | [`outcome`], [`results`], [`report`] | figures, the results file, `RESULTS.md` |
//!
//! What is wrong panics: this is test code.

#![allow(
    clippy::missing_panics_doc,
    reason = "a benchmark that fails panics, everywhere"
)]

pub mod backlog;
pub mod cpu;
pub mod drain;
pub mod drainer;
pub mod instructions;
pub mod loopback;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod outcome;
pub mod parts;
pub mod player;
pub mod report;
pub mod results;
pub mod scale;
pub mod stage;
pub mod writer;
