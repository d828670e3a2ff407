//! One file per command.

mod dump;
mod gc;
mod init;
mod publication;
mod segments;
mod slot;
mod source;
mod status;
mod table_name;
mod tail;
mod verify;

use service::config::Config;

use crate::cli::{Cli, Command};
use crate::error::Error;

/// Runs the command that was asked for.
pub(crate) async fn run(cli: Cli, config: Config) -> Result<(), Error> {
    match cli.command {
        Command::Init(args) => init::run(&config, &args).await,
        Command::Status(args) => status::run(&config, &args).await,
        Command::Segments(args) => segments::run(&config, &args),
        Command::Dump(args) => dump::run(&config, &args),
        Command::Tail(args) => tail::run(&config, &args).await,
        Command::Slot(command) => slot::run(&config, command).await,
        Command::Publication(command) => publication::run(&config, command).await,
        Command::Gc(args) => gc::run(&config, &args).await,
        Command::Verify(args) => verify::run(&config, &args).await,
    }
}
