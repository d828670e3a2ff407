//! Log output, always on standard error: standard output belongs to data.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Format, Telemetry};

/// The setting `telemetry.log` is no list of directives.
#[derive(Debug, thiserror::Error)]
#[error(
    "telemetry.log is \"{directives}\": expected a level (error, warn, info, debug, trace) or target=level pairs"
)]
pub struct InvalidDirectives {
    directives: String,
    #[source]
    source: tracing_subscriber::filter::ParseError,
}

/// Starts the log output of this process. A second call in the same process changes nothing.
pub fn init(settings: &Telemetry) -> Result<(), InvalidDirectives> {
    let filter = EnvFilter::try_new(&settings.log).map_err(|source| InvalidDirectives {
        directives: settings.log.clone(),
        source,
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // Ignored: it fails only if a subscriber is there already, as in tests.
    let _ = match settings.format {
        Format::Text => builder
            .with_ansi(std::io::stderr().is_terminal())
            .try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}
