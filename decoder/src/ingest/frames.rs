//! Whole CopyData frames, one behind the other.

use pg_proto::Reader;
use pg_proto::read::ReadError;
use pg_proto::replication::{BackendCopy, Keepalive, XLogData};

/// Iterates over a batch of frames `'d' length content`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames<'a>(Reader<'a>);

impl<'a> Frames<'a> {
    pub(crate) const fn new(batch: &'a [u8]) -> Self {
        Self(Reader::new(batch))
    }

    /// The next frame's content, decoded.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<BackendCopy<'a>>, ReadError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.0.u8("frame type")?;
        if tag != b'd' {
            return Err(self.0.invalid("frame type in a batch", tag));
        }
        let length = self.0.u32("frame length")?;
        let body_len = usize::try_from(length)
            .ok()
            .and_then(|length| length.checked_sub(4))
            .ok_or_else(|| self.0.invalid("frame length", length))?;
        let body = self.0.bytes(body_len, "frame body")?;
        BackendCopy::decode(body).map(Some)
    }
}

/// What a batch tells without being understood: enough to answer the source at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Glance {
    /// Highest position that was sent.
    pub(crate) received: pg_proto::Lsn,
    /// Whether the source wants an answer now.
    pub(crate) reply_requested: bool,
    /// Whether there is nothing in it but changes inside a transaction, of which nobody learns before its end.
    pub(crate) inside: bool,
}

/// First bytes of pgoutput's messages that neither begin nor end anything.
const INSIDE: &[u8] = b"IUDTRYO";

/// Looks over a batch.
pub(crate) fn glance(batch: &[u8]) -> Result<Glance, ReadError> {
    let mut glance = Glance {
        inside: true,
        ..Glance::default()
    };
    let mut frames = Frames::new(batch);
    while let Some(frame) = frames.next()? {
        match frame {
            BackendCopy::XLogData(XLogData { end, payload, .. }) => {
                glance.received = glance.received.max(end);
                glance.inside &= payload.first().is_some_and(|tag| INSIDE.contains(tag));
            }
            BackendCopy::Keepalive(Keepalive {
                end,
                reply_requested,
                ..
            }) => {
                glance.received = glance.received.max(end);
                glance.reply_requested |= reply_requested;
                glance.inside = false;
            }
        }
    }
    Ok(glance)
}

#[cfg(test)]
mod tests {
    use pg_proto::Lsn;

    use super::*;

    fn keepalive(end: u64, reply: u8) -> Vec<u8> {
        let mut frame = b"d\0\0\0\x16k".to_vec();
        frame.extend_from_slice(&end.to_be_bytes());
        frame.extend_from_slice(&[0; 8]);
        frame.push(reply);
        frame
    }

    #[test]
    fn sees_what_has_to_be_answered() {
        let mut batch = keepalive(9, 0);
        assert!(!glance(&batch).unwrap().reply_requested);
        batch.extend(keepalive(7, 1));
        let expected = Glance {
            received: Lsn(9),
            reply_requested: true,
            inside: false,
        };
        assert_eq!(glance(&batch).unwrap(), expected);
    }

    #[test]
    fn sees_whether_a_transaction_goes_on() {
        let message = |tag: u8| {
            let mut frame = b"d\0\0\0\x1Ew".to_vec();
            frame.extend_from_slice(&[0; 24]);
            frame.push(tag);
            frame
        };
        let rows = [message(b'I'), message(b'U')].concat();
        assert!(glance(&rows).unwrap().inside);
        for end in [message(b'C'), message(b'B'), keepalive(9, 0)] {
            assert!(!glance(&[rows.clone(), end].concat()).unwrap().inside);
        }
    }

    #[test]
    fn refuses_what_is_not_whole() {
        let batch = keepalive(9, 0);
        for end in 1..batch.len() {
            assert!(glance(&batch[..end]).is_err(), "{end}");
        }
        assert!(glance(b"d\0\0\0\x03").is_err());
        assert!(glance(b"E\0\0\0\x04").is_err());
    }
}
