//! The configuration of all programs: one file, `decant.toml`.
//!
//! A value comes from the first of these that gives it: `--set section.key=value` and other flags, the variable
//! `DECANT_<SECTION>_<KEY>`, the file, the default. An unknown section or key is an error wherever it stands, so
//! that a misspelt limit is not a limit that silently does not hold.

mod error;
mod load;
mod sections;

pub use error::ConfigError;
pub use load::{DEFAULT_FILE, Override};
pub use sections::{
    Config, Decoder, Fanout, Format, Log, Retention, Serve, Source, SslMode, Telemetry, Tls,
    TwoPhase,
};
