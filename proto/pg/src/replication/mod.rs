//! The messages inside CopyData of a replication connection, and the grammar of its commands
//! (`walsender.c`, `repl_gram.y`, `repl_scanner.l`).

mod command;
mod copy;

pub use command::{
    Command, CommandError, CommandOption, OptionValue, SnapshotAction, parse_command,
};
pub use copy::{
    BackendCopy, FrontendCopy, HotStandbyFeedback, Keepalive, StatusUpdate, XLOG_DATA_HEADER_LEN,
    XLogData,
};
