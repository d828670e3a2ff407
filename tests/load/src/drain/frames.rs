//! Splits a stream of frames and counts what is in it.

use pg_proto::pgoutput::tag;
use pg_proto::wire::{ErrorFields, FRAME_HEAD_LEN};
use pg_proto::{Lsn, PgTimestamp, ReadError, Reader};

/// What one connection has received.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Inserts, updates, deletes, truncates.
    pub rows: u64,
    /// COMMITs.
    pub commits: u64,
    /// All bytes of the stream.
    pub bytes: u64,
    /// When the first row came.
    pub first_row: Option<PgTimestamp>,
    /// Everything that commits below this is here.
    pub position: Lsn,
    /// The other side waits for a status update.
    pub reply_requested: bool,
    /// Microseconds from each commit to its receipt, if those are wanted.
    pub latencies: Option<Vec<u32>>,
    /// What the next commit is measured with.
    now: Option<PgTimestamp>,
}

/// The stream can't be understood, or the other side says that it failed.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A message is not what it should be.
    #[error("a message of the stream is malformed")]
    Malformed(#[from] ReadError),
    /// An error of the other side.
    #[error("the server says: {0}")]
    Server(String),
    /// The stream ended.
    #[error("the server ended the stream")]
    Ended,
}

/// Whole frames at the front of some bytes.
#[derive(Debug)]
pub struct Frames<'a> {
    bytes: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Of these bytes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// What is left behind the whole frames.
    pub const fn rest(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, _) = self.bytes.split_first_chunk::<FRAME_HEAD_LEN>()?;
        let [kind, length @ ..] = *head;
        let length = usize::try_from(u32::from_be_bytes(length)).ok()? + 1;
        let (frame, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some((kind, frame.get(FRAME_HEAD_LEN..)?))
    }
}

impl Tally {
    /// Nothing yet. `latencies`: whether they are noted.
    pub fn new(latencies: bool) -> Self {
        Self {
            latencies: latencies.then(Vec::new),
            ..Self::default()
        }
    }

    /// Counts the whole frames at the front of `bytes`; how long they are.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, FrameError> {
        // One look at the clock for all that came with one read.
        let wants_time = self.latencies.is_some() || self.first_row.is_none();
        self.now = wants_time.then(PgTimestamp::now);
        let mut frames = Frames::new(bytes);
        for (kind, body) in &mut frames {
            self.frame(kind, body)?;
        }
        let taken = bytes.len() - frames.rest().len();
        self.bytes += taken as u64;
        Ok(taken)
    }

    fn frame(&mut self, kind: u8, body: &[u8]) -> Result<(), FrameError> {
        match (kind, body) {
            // XLogData: its kind, three 8-byte fields, the message.
            (b'd', [b'w', rest @ ..]) => match rest.get(24..) {
                Some([message, rest @ ..]) => self.message(*message, rest),
                _ => Ok(()),
            },
            (b'd', [b'k', rest @ ..]) => self.keepalive(rest),
            (b'E', body) => Err(FrameError::Server(match ErrorFields::decode(body) {
                Ok(fields) => fields.to_string(),
                Err(_) => "an error that can't be read".to_owned(),
            })),
            (b'c' | b'C' | b'Z', _) => Err(FrameError::Ended),
            _ => Ok(()),
        }
    }

    fn message(&mut self, message: u8, rest: &[u8]) -> Result<(), FrameError> {
        match message {
            tag::INSERT | tag::UPDATE | tag::DELETE | tag::TRUNCATE => {
                self.rows += 1;
                if self.first_row.is_none() {
                    self.first_row = self.now;
                }
                Ok(())
            }
            tag::COMMIT => self.commit(rest),
            // The transaction id comes first.
            tag::STREAM_COMMIT => self.commit(rest.get(4..).unwrap_or_default()),
            _ => Ok(()),
        }
    }

    /// Flags, the commit's position, its end, its time.
    fn commit(&mut self, rest: &[u8]) -> Result<(), FrameError> {
        let mut reader = Reader::new(rest);
        reader.bytes(9, "commit")?;
        let end = Lsn(reader.u64("end of the commit")?);
        let time = reader.i64("time of the commit")?;
        self.commits += 1;
        self.position = self.position.max(end);
        if let (Some(latencies), Some(now)) = (&mut self.latencies, self.now) {
            // A clock that was set back is no latency.
            latencies.push(u32::try_from(now.0 - time).unwrap_or(0));
        }
        Ok(())
    }

    fn keepalive(&mut self, rest: &[u8]) -> Result<(), FrameError> {
        let mut reader = Reader::new(rest);
        let end = Lsn(reader.u64("end of the WAL")?);
        reader.i64("time")?;
        self.position = self.position.max(end);
        self.reply_requested |= reader.u8("reply requested")? != 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pg_proto::replication::{Keepalive, XLogData};

    use super::*;

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let (start, end) = (Lsn(1), Lsn(1));
        XLogData {
            start,
            end,
            send_time: PgTimestamp(0),
            payload,
        }
        .encode_frame(&mut out);
        out
    }

    fn commit(end: u64) -> Vec<u8> {
        let mut payload = vec![b'C', 0];
        for field in [end - 8, end, 0] {
            payload.extend_from_slice(&field.to_be_bytes());
        }
        frame(&payload)
    }

    #[test]
    fn counts_the_same_however_the_bytes_come() {
        let mut bytes = [frame(b"B"), frame(b"I row"), frame(b"U row"), commit(64)].concat();
        Keepalive {
            end: Lsn(80),
            send_time: PgTimestamp(0),
            reply_requested: true,
        }
        .encode_frame(&mut bytes);
        for step in 1..bytes.len() {
            let mut tally = Tally::new(true);
            let mut held = Vec::new();
            for piece in bytes.chunks(step) {
                held.extend_from_slice(piece);
                let taken = tally.take(&held).unwrap();
                held.drain(..taken);
            }
            assert!(held.is_empty());
            assert_eq!((tally.rows, tally.commits), (2, 1));
            assert_eq!((tally.position, tally.reply_requested), (Lsn(80), true));
            assert_eq!(tally.bytes, bytes.len() as u64);
            assert_eq!(tally.latencies.unwrap().len(), 1);
        }
    }

    #[test]
    fn an_error_of_the_server_ends_it() {
        let error = Tally::default().take(b"E\0\0\0\x09MXY\0\0").unwrap_err();
        assert!(error.to_string().contains("XY"), "{error}");
        assert!(matches!(
            Tally::default().take(b"c\0\0\0\x04"),
            Err(FrameError::Ended)
        ));
    }
}
