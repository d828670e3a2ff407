//! For the fuzzer.

use pg_proto::replication::Command;

pub use super::sql::read_statement;
use super::version::ServerVersion;
use super::{slot_options, start_options};

/// Checks a command's options as every version does.
pub fn check_options(command: &Command) {
    let versions = ["14.0", "15.0", "16.0", "17.0", "18.0"];
    for version in versions.into_iter().filter_map(ServerVersion::parse) {
        // An error goes to the client.
        match command {
            Command::StartLogical { slot, options, .. } => {
                let _ = start_options::parse(version, slot, options);
            }
            Command::CreateLogicalSlot { options, .. } => {
                let _ = slot_options::create(version, options);
            }
            Command::AlterSlot { options, .. } => {
                let _ = slot_options::alter(version, options);
            }
            _ => {}
        }
    }
}
