//! Why the decoder ends with exit status 1.

use storage_format::FormatError;

use crate::ingest::IngestError;
use crate::registry::RegistryError;
use crate::source::SourceError;

/// The decoder can't start, or can't go on.
#[derive(Debug, thiserror::Error)]
pub enum DecoderError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] service::config::ConfigError),
    /// The log output's setting.
    #[error(transparent)]
    Telemetry(#[from] service::telemetry::InvalidDirectives),
    /// The log can't be opened or written.
    #[error("the log in {directory} can't be used")]
    Log {
        /// The log directory.
        directory: String,
        /// Why.
        #[source]
        source: FormatError,
    },
    /// The log's registry of slots can't be opened.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The source can't be followed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// What the source sends can't be stored.
    #[error(transparent)]
    Ingest(#[from] IngestError),
    /// An address can't be listened on.
    #[error(transparent)]
    Bind(#[from] service::http::BindError),
    /// The operating system refuses what every process needs.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A thread ended with a panic, which it has reported itself.
    #[error("the {name} thread panicked; the log is as it was at its last sync")]
    Panicked {
        /// Which.
        name: &'static str,
    },
}

impl DecoderError {
    /// For `map_err`: the operating system refused.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
