//! The flags that all programs share.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::config::{Config, ConfigError, Override};

/// Where the configuration comes from. Flatten this into a program's own flags.
#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// Configuration file; without it ./decant.toml, if there is one
    #[arg(long, value_name = "FILE", env = "DECANT_CONFIG", global = true)]
    pub config: Option<PathBuf>,
    /// Overrides a setting of the file; may be repeated; stands before a command
    // Not global: clap would drop those before the command when there are others behind it.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub overrides: Vec<Override>,
}

impl ConfigArgs {
    /// Reads and checks the configuration.
    pub fn load(&self) -> Result<Config, ConfigError> {
        Config::load(self.config.as_deref(), &self.overrides)
    }
}

/// Prints an error with its causes to standard error, in one line, as a program's last words, and gives the exit
/// status for "failed".
#[must_use]
pub fn report(program: &str, error: &(dyn std::error::Error + 'static)) -> ExitCode {
    eprintln!("{program}: {}", causes(error));
    ExitCode::FAILURE
}

/// An error and its causes in one line. A cause that its error already quotes is not said twice.
#[must_use]
pub fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(cause_text.trim_end());
        }
        next = cause.source();
    }
    text
}
