//! The messages of the logical decoding plugin pgoutput, protocol versions 1 to 4 (`proto.c`).
//!
//! A message is the payload of one [`XLogData`](crate::replication::XLogData). Inside a block between STREAM
//! START and STREAM STOP (protocol 2 and later) relation, type, change, truncate and logical messages carry
//! the transaction id of the (sub)transaction they belong to; outside they do not. The two forms can't be
//! told apart by their bytes, so the caller says which it has: [`Framing`].

mod decode;
mod encode;
mod message;
mod peek;
mod tuple;

pub use decode::{Framing, decode};
pub use encode::encode;
pub use message::{
    Begin, BeginPrepare, Change, Commit, CommitPrepared, LogicalMessage, Message, OldTuple, Origin,
    Prepare, Relation, RelationColumn, ReplicaIdentity, RollbackPrepared, StreamAbort,
    StreamCommit, StreamStart, Truncate, Type,
};
pub use peek::{Peek, check, peek, split_xid};
pub use tuple::{ColumnValue, Columns, Tuple, TupleBuf};

/// The first byte of each message (`LogicalRepMsgType` in `logicalproto.h`).
pub mod tag {
    /// BEGIN.
    pub const BEGIN: u8 = b'B';
    /// COMMIT.
    pub const COMMIT: u8 = b'C';
    /// ORIGIN.
    pub const ORIGIN: u8 = b'O';
    /// RELATION.
    pub const RELATION: u8 = b'R';
    /// TYPE.
    pub const TYPE: u8 = b'Y';
    /// INSERT.
    pub const INSERT: u8 = b'I';
    /// UPDATE.
    pub const UPDATE: u8 = b'U';
    /// DELETE.
    pub const DELETE: u8 = b'D';
    /// TRUNCATE.
    pub const TRUNCATE: u8 = b'T';
    /// A logical message.
    pub const MESSAGE: u8 = b'M';
    /// STREAM START.
    pub const STREAM_START: u8 = b'S';
    /// STREAM STOP.
    pub const STREAM_STOP: u8 = b'E';
    /// STREAM COMMIT.
    pub const STREAM_COMMIT: u8 = b'c';
    /// STREAM ABORT.
    pub const STREAM_ABORT: u8 = b'A';
    /// BEGIN PREPARE.
    pub const BEGIN_PREPARE: u8 = b'b';
    /// PREPARE.
    pub const PREPARE: u8 = b'P';
    /// COMMIT PREPARED.
    pub const COMMIT_PREPARED: u8 = b'K';
    /// ROLLBACK PREPARED.
    pub const ROLLBACK_PREPARED: u8 = b'r';
    /// STREAM PREPARE.
    pub const STREAM_PREPARE: u8 = b'p';
}
