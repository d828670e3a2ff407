//! What every program of Decant is started with: its configuration, its log output, its reaction to signals,
//! and its HTTP address for metrics and health.
//!
//! | module | what |
//! |---|---|
//! | [`config`] | `decant.toml`, overridden by `DECANT_*` variables, overridden by flags |
//! | [`source`] | the configured source as a place to connect to |
//! | [`cli`] | the flags that all programs share |
//! | [`telemetry`] | log output on standard error |
//! | [`accept`] | taking connections, also when there is no descriptor for a while |
//! | [`shutdown`] | SIGTERM and SIGINT become one token |
//! | [`limits`] | as many open files as the system allows |
//! | [`http`] | `/metrics`, `/healthz`, `/readyz` |

pub mod accept;
pub mod cli;
pub mod config;
pub mod http;
pub mod limits;
pub mod shutdown;
pub mod source;
pub mod telemetry;

/// Version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
