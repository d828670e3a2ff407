//! What can be wrong with a configuration.

use std::path::PathBuf;

/// The configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file can't be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{} is not valid TOML", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A variable or flag names a key in the wrong form.
    #[error("{origin}: expected section.key=value with a section and a key")]
    OverrideForm {
        /// The flag or variable.
        origin: String,
    },
    /// A variable names a section or key that does not exist.
    #[error("environment variable {name} names no setting: its form is DECANT_<SECTION>_<KEY>")]
    UnknownVariable {
        /// The variable.
        name: String,
    },
    /// A section or key is unknown, or a value has the wrong type.
    #[error("configuration ({origins})")]
    Value {
        /// What was read.
        origins: String,
        /// Which key and why.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A value is out of its range.
    #[error("configuration: {key} {problem}")]
    Invalid {
        /// `section.key`.
        key: &'static str,
        /// What is wrong with it and what would be right.
        problem: String,
    },
}
