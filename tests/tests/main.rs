//! Integration tests on real servers. One binary, so that it is linked once.

#[path = "main/harness.rs"]
mod harness;
