//! XLogData, keepalive, status update, feedback.

use crate::read::{ReadError, Reader};
use crate::wire::{FRAME_HEAD_LEN, MAX_FRAME_BODY, put_frame};
use crate::{Lsn, PgTimestamp};

/// Bytes of an XLogData before its payload: the kind and three 8-byte fields.
pub const XLOG_DATA_HEADER_LEN: usize = 25;

/// Bytes of a whole CopyData frame with an XLogData before the payload: type, length, and
/// [`XLOG_DATA_HEADER_LEN`].
pub const XLOG_DATA_FRAME_HEAD_LEN: usize = FRAME_HEAD_LEN + XLOG_DATA_HEADER_LEN;

/// Bytes of a whole CopyData frame with a keepalive.
pub const KEEPALIVE_FRAME_LEN: usize = FRAME_HEAD_LEN + 18;

/// Bytes of a whole CopyData frame with a status update.
pub const STATUS_UPDATE_FRAME_LEN: usize = FRAME_HEAD_LEN + 34;

/// The longest payload that fits a frame.
pub const MAX_XLOG_DATA_PAYLOAD: usize = MAX_FRAME_BODY - XLOG_DATA_HEADER_LEN;

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

impl XLogData<'_> {
    /// Appends the content of one CopyData.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_xlog_data_header(self.start, self.end, self.send_time, out);
        out.extend_from_slice(self.payload);
    }

    /// Appends a whole CopyData frame.
    pub fn encode_frame(&self, out: &mut Vec<u8>) {
        put_frame(b'd', out, |out| self.encode(out));
    }
}

fn put_xlog_data_header(start: Lsn, end: Lsn, send_time: PgTimestamp, out: &mut Vec<u8>) {
    out.push(b'w');
    out.extend_from_slice(&start.0.to_be_bytes());
    out.extend_from_slice(&end.0.to_be_bytes());
    out.extend_from_slice(&send_time.0.to_be_bytes());
}

/// Appends the head of a CopyData frame with an XLogData of a payload of `payload_len` bytes, which the
/// caller appends: [`XLOG_DATA_FRAME_HEAD_LEN`] bytes. False, and nothing is appended, if the payload is longer
/// than [`MAX_XLOG_DATA_PAYLOAD`].
#[must_use]
pub fn put_xlog_data_frame_head(
    start: Lsn,
    end: Lsn,
    send_time: PgTimestamp,
    payload_len: usize,
    out: &mut Vec<u8>,
) -> bool {
    let fitting = payload_len <= MAX_XLOG_DATA_PAYLOAD;
    let length = payload_len.saturating_add(4 + XLOG_DATA_HEADER_LEN);
    match u32::try_from(length) {
        Ok(length) if fitting => {
            out.push(b'd');
            out.extend_from_slice(&length.to_be_bytes());
            put_xlog_data_header(start, end, send_time, out);
            true
        }
        _ => false,
    }
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

impl Keepalive {
    /// Appends the content of one CopyData, 18 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(b'k');
        out.extend_from_slice(&self.end.0.to_be_bytes());
        out.extend_from_slice(&self.send_time.0.to_be_bytes());
        out.push(u8::from(self.reply_requested));
    }

    /// Appends a whole CopyData frame, [`KEEPALIVE_FRAME_LEN`] bytes.
    pub fn encode_frame(&self, out: &mut Vec<u8>) {
        put_frame(b'd', out, |out| self.encode(out));
    }
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

    /// Appends a whole CopyData frame, [`STATUS_UPDATE_FRAME_LEN`] bytes.
    pub fn encode_frame(&self, out: &mut Vec<u8>) {
        put_frame(b'd', out, |out| self.encode(out));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_lengths_that_are_promised() {
        let (lsn, time) = (Lsn(0x16_B374_D848), PgTimestamp(-5));
        let mut out = Vec::new();
        let xlog_data = XLogData {
            start: lsn,
            end: lsn,
            send_time: time,
            payload: b"payload",
        };
        xlog_data.encode_frame(&mut out);
        assert_eq!(out.len(), XLOG_DATA_FRAME_HEAD_LEN + 7);
        assert_eq!(
            BackendCopy::decode(&out[5..]),
            Ok(BackendCopy::XLogData(xlog_data))
        );
        let mut head = Vec::new();
        assert!(put_xlog_data_frame_head(lsn, lsn, time, 7, &mut head));
        assert_eq!(out, [&head[..], b"payload"].concat());
        assert!(!put_xlog_data_frame_head(
            lsn,
            lsn,
            time,
            usize::MAX,
            &mut head
        ));

        let keepalive = Keepalive {
            end: lsn,
            send_time: time,
            reply_requested: true,
        };
        out.clear();
        keepalive.encode_frame(&mut out);
        assert_eq!(out.len(), KEEPALIVE_FRAME_LEN);
        assert_eq!(
            BackendCopy::decode(&out[5..]),
            Ok(BackendCopy::Keepalive(keepalive))
        );
    }

    #[test]
    fn a_status_update_comes_back() {
        let status = StatusUpdate {
            write: Lsn(3),
            flush: Lsn(2),
            apply: Lsn(1),
            client_time: PgTimestamp(9),
            reply_requested: true,
        };
        let mut out = Vec::new();
        status.encode_frame(&mut out);
        assert_eq!(out.len(), STATUS_UPDATE_FRAME_LEN);
        assert_eq!(&out[..6], b"d\0\0\0\x26r");
        assert_eq!(
            FrontendCopy::decode(&out[5..]),
            Ok(FrontendCopy::StatusUpdate(status))
        );
        for cut in 5..out.len() {
            assert!(FrontendCopy::decode(&out[5..cut]).is_err());
        }
    }
}
