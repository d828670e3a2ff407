//! XLogData, keepalive, status update, feedback.

use crate::read::{ReadError, Reader};
use crate::{Lsn, PgTimestamp};

/// Bytes of an XLogData before its payload: the kind and three 8-byte fields.
pub const XLOG_DATA_HEADER_LEN: usize = 25;

/// 'w': a piece of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XLogData<'a> {
    /// The message's own position; `0/0` for RELATION, TYPE and what comes before an ORIGIN.
    pub start: Lsn,
    /// The same, with pgoutput.
    pub end: Lsn,
    /// The server's clock when it sent this.
    pub send_time: PgTimestamp,
    /// The message.
    pub payload: &'a [u8],
}

/// 'k': every transaction whose commit is below `end` has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Position up to which all has been sent.
    pub end: Lsn,
    /// The server's clock.
    pub send_time: PgTimestamp,
    /// Whether the client should answer at once.
    pub reply_requested: bool,
}

/// What a server sends inside CopyData.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendCopy<'a> {
    /// 'w'.
    XLogData(XLogData<'a>),
    /// 'k'.
    Keepalive(Keepalive),
}

impl<'a> BackendCopy<'a> {
    /// Decodes the content of one CopyData.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, ReadError> {
        let mut reader = Reader::new(bytes);
        match reader.u8("copy message kind")? {
            b'w' => Ok(Self::XLogData(XLogData {
                start: Lsn(reader.u64("dataStart")?),
                end: Lsn(reader.u64("walEnd")?),
                send_time: PgTimestamp(reader.i64("sendTime")?),
                payload: reader.rest(),
            })),
            b'k' => {
                let keepalive = Keepalive {
                    end: Lsn(reader.u64("walEnd")?),
                    send_time: PgTimestamp(reader.i64("sendTime")?),
                    reply_requested: reader.u8("replyRequested")? != 0,
                };
                reader.finish("keepalive")?;
                Ok(Self::Keepalive(keepalive))
            }
            other => Err(reader.invalid("copy message kind", other)),
        }
    }
}

/// 'r': what the client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusUpdate {
    /// Position after the last byte received.
    pub write: Lsn,
    /// Position after the last byte that is safe at the client.
    pub flush: Lsn,
    /// Position after the last byte applied.
    pub apply: Lsn,
    /// The client's clock.
    pub client_time: PgTimestamp,
    /// Whether the server should answer at once.
    pub reply_requested: bool,
}

impl StatusUpdate {
    /// Appends the content of one CopyData, 34 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(b'r');
        for field in [self.write.0, self.flush.0, self.apply.0] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.extend_from_slice(&self.client_time.0.to_be_bytes());
        out.push(u8::from(self.reply_requested));
    }
}

/// 'h': a physical standby's horizon; logical clients do not send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotStandbyFeedback;

/// What a client sends inside CopyData.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontendCopy {
    /// 'r'.
    StatusUpdate(StatusUpdate),
    /// 'h'.
    HotStandbyFeedback(HotStandbyFeedback),
}

impl FrontendCopy {
    /// Decodes the content of one CopyData.
    pub fn decode(bytes: &[u8]) -> Result<Self, ReadError> {
        let mut reader = Reader::new(bytes);
        match reader.u8("copy message kind")? {
            b'r' => {
                let status = StatusUpdate {
                    write: Lsn(reader.u64("write")?),
                    flush: Lsn(reader.u64("flush")?),
                    apply: Lsn(reader.u64("apply")?),
                    client_time: PgTimestamp(reader.i64("clientTime")?),
                    reply_requested: reader.u8("replyRequested")? != 0,
                };
                reader.finish("status update")?;
                Ok(Self::StatusUpdate(status))
            }
            b'h' => {
                reader.bytes(24, "hot standby feedback")?;
                reader.finish("hot standby feedback")?;
                Ok(Self::HotStandbyFeedback(HotStandbyFeedback))
            }
            other => Err(reader.invalid("copy message kind", other)),
        }
    }
}
