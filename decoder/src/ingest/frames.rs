//! Whole CopyData frames, one behind the other.

use std::time::Duration;

use pg_proto::Reader;
use pg_proto::pgoutput::{self, Framing, Message};
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
    /// How long the last transaction that begins in it had been committed when the source sent it, by the source's clock.
    pub(crate) lag: Option<Duration>,
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
            BackendCopy::XLogData(data) => {
                glance.received = glance.received.max(data.end);
                let tag = data.payload.first();
                glance.inside &= tag.is_some_and(|tag| INSIDE.contains(tag));
                if tag == Some(&pgoutput::tag::BEGIN) {
                    glance.lag = lag(&data);
                }
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

/// That of a BEGIN. Whoever takes the message apart says what is wrong with it.
fn lag(begin: &XLogData<'_>) -> Option<Duration> {
    let Ok(Message::Begin(decoded)) = pgoutput::decode(begin.payload, Framing::Plain) else {
        return None;
    };
    let micros = begin.send_time.0.saturating_sub(decoded.commit_time.0);
    Some(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
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
            lag: None,
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
    fn sees_how_late_transactions_are() {
        let begin = |sent: i64, committed: i64| {
            let mut frame = b"d\0\0\0\x32w".to_vec();
            frame.extend_from_slice(&[0; 16]);
            frame.extend_from_slice(&sent.to_be_bytes());
            frame.push(b'B');
            frame.extend_from_slice(&7_u64.to_be_bytes());
            frame.extend_from_slice(&committed.to_be_bytes());
            frame.extend_from_slice(&3_u32.to_be_bytes());
            frame
        };
        let lag = |batch: &[Vec<u8>]| glance(&batch.concat()).unwrap().lag;
        assert_eq!(lag(&[keepalive(9, 0)]), None);
        let late = begin(5_000, 2_000);
        let micros = |micros| Some(Duration::from_micros(micros));
        assert_eq!(lag(std::slice::from_ref(&late)), micros(3_000));
        assert_eq!(lag(&[late, begin(6_000, 5_999)]), micros(1));
        // Its clock was set back.
        assert_eq!(lag(&[begin(6_000, 7_000)]), micros(0));
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
