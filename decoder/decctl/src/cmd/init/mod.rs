//! `decctl init`: checks the source database and prepares it.
//!
//! The checks come first and all of them are made, so that an operator sees everything that is missing at once. Nothing
//! is changed if one fails, or with `--check`. What is there already stays as it is: running `init` again is safe.
//!
//! The order of the preparation matters: the publication must exist before the slot, since up to version 17 a slot's
//! stream fails for ever at a change older than its publication (`get_rel_sync_entry` in `pgoutput.c`); the event triggers
//! come before the slot, so that no change of a publication goes unreported.
//!
//! If the source is a standby, the slot is made there, and everything else at its primary.

mod checks;
mod findings;
mod prepare;
mod standby;

use service::config::Config;

use self::findings::Findings;
use crate::cli::InitArgs;
use crate::cmd::source::Source;
use crate::error::Error;

/// Runs `decctl init`.
pub(super) async fn run(config: &Config, args: &InitArgs) -> Result<(), Error> {
    let mut findings = Findings::new(args.output.json);
    let mut source = Source::connect(config).await?;
    let checked = checks::run(&mut source, config, args, &mut findings).await?;
    if findings.failed() == 0 && !args.check {
        prepare::run(source, checked, config, args, &mut findings).await?;
    }
    findings.finish()
}
