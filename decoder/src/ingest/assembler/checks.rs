//! What is demanded of the stream, and the errors that say where it was broken.

use pg_proto::pgoutput::{self, Begin, Commit, Framing, Message};
use pg_proto::read::ReadError;
use pg_proto::{Lsn, Xid};

use super::Assembler;
use crate::ingest::error::StreamError;
use crate::ingest::record::Incoming;

impl Assembler {
    pub(super) fn commit_of(
        &self,
        begin: Begin,
        incoming: &Incoming<'_>,
    ) -> Result<Commit, StreamError> {
        match self.decode(incoming)? {
            Message::Commit(commit) if commit.commit_lsn == begin.final_lsn => Ok(commit),
            Message::Commit(commit) => Err(StreamError::Mismatch {
                begun: begin.final_lsn,
                ended: commit.commit_lsn,
            }),
            _ => Err(self.misplaced(incoming, "in place of a commit")),
        }
    }

    pub(super) const fn check_order(&self, commit: Lsn) -> Result<(), StreamError> {
        if commit.0 < self.position.0 {
            return Err(StreamError::OutOfOrder {
                commit,
                position: self.position,
            });
        }
        Ok(())
    }

    pub(super) fn decode<'a>(&self, incoming: &Incoming<'a>) -> Result<Message<'a>, StreamError> {
        pgoutput::decode(incoming.payload, Framing::Plain)
            .map_err(|source| self.malformed(incoming.start, incoming.payload, source))
    }

    pub(super) fn malformed(&self, start: Lsn, payload: &[u8], source: ReadError) -> StreamError {
        StreamError::Malformed {
            tag: payload.first().copied().unwrap_or_default(),
            start,
            position: self.position,
            source,
        }
    }

    pub(super) fn misplaced(&self, incoming: &Incoming<'_>, place: &'static str) -> StreamError {
        StreamError::Misplaced {
            tag: char::from(incoming.payload.first().copied().unwrap_or_default()),
            start: incoming.start,
            place,
            position: self.position,
        }
    }

    pub(super) const fn unknown_stream(&self, xid: Xid) -> StreamError {
        StreamError::UnknownStream {
            xid,
            position: self.position,
        }
    }
}
