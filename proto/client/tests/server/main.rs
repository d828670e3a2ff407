//! The client against real servers.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in helper functions too"
)]

mod authentication;
mod encryption;
mod queries;
mod replication;
mod support;
