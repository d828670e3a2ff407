//! The messages inside CopyData of a replication connection, and the grammar of its commands
//! (`walsender.c`, `repl_gram.y`, `repl_scanner.l`).

mod command;
mod copy;
mod grammar;
mod lexer;
mod timeline;

pub use command::{Command, CommandError, CommandOption, OptionValue, SnapshotAction};
pub use copy::{
    BackendCopy, FrontendCopy, HotStandbyFeedback, KEEPALIVE_FRAME_LEN, Keepalive,
    MAX_XLOG_DATA_PAYLOAD, STATUS_UPDATE_FRAME_LEN, StatusUpdate, XLOG_DATA_FRAME_HEAD_LEN,
    XLOG_DATA_HEADER_LEN, XLogData, put_xlog_data_frame_head,
};
pub use grammar::{command_keyword, parse_command};
pub use timeline::left_timeline_at;
