//! A client of the replication protocol that puts together what comes in pieces.
//!
//! Two servers may cut a streamed transaction at different places, send it at different times, and send or not send what is
//! rolled back of it. What a client can rely on is what is left when all of that is put together, and so this is what two
//! streams are compared by.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pg_proto::pgoutput::{Framing, Message, decode, split_xid, tag};
use pg_proto::replication::BackendCopy;
use pg_proto::{Lsn, Xid};

use super::replication;
use crate::sql::{Endpoint, Session, SqlError};

/// How often the server is asked where it stands.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// One message: XLogData start position, the subtransaction if it was streamed, and the message without that.
#[derive(Clone, PartialEq, Eq)]
pub struct Piece {
    /// dataStart.
    pub start: Lsn,
    /// Who wrote it, in a streamed transaction.
    pub xid: Option<Xid>,
    /// The message in the form of protocol version 1.
    pub payload: Bytes,
}

impl std::fmt::Debug for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tag = char::from(self.payload.first().copied().unwrap_or(b'?'));
        let shown = self.payload.len().min(60);
        write!(f, "{tag}@{}", self.start)?;
        if let Some(xid) = self.xid {
            write!(f, "/{xid}")?;
        }
        write!(f, " \"{}\"", self.payload[1..shown.max(1)].escape_ascii())
    }
}

/// What belongs together: a transaction from its first message to its last, or one message that stands alone.
pub type Unit = Vec<Piece>;

/// One connection in the copy-both phase.
#[derive(Debug)]
pub struct PieceClient {
    session: Session,
    promised: Lsn,
    open: Unit,
    streams: BTreeMap<Xid, Unit>,
    /// Inside a part of this one.
    inside: Option<Xid>,
    /// What was streamed before its transaction ended, in this session.
    pub before_end: u64,
    /// STREAM ABORTs of whole transactions.
    pub aborts: u64,
    /// STREAM ABORTs of subtransactions: with the position of the abort, if it was told.
    pub subtransaction_aborts: Vec<Option<Lsn>>,
}

impl PieceClient {
    /// Connects and starts `slot` with pgoutput options such as `proto_version '1'`.
    pub async fn start(
        to: &Endpoint,
        slot: &str,
        from: Lsn,
        options: &str,
    ) -> Result<Self, SqlError> {
        let session = replication::start(to, slot, from, options).await?;
        Ok(Self::new(session))
    }

    fn new(session: Session) -> Self {
        Self {
            session,
            promised: Lsn::INVALID,
            open: Unit::new(),
            streams: BTreeMap::new(),
            inside: None,
            before_end: 0,
            aborts: 0,
            subtransaction_aborts: Vec::new(),
        }
    }

    /// Receives until all that commits below `end` is here.
    pub async fn receive_until(&mut self, end: Lsn, deadline: Duration) -> Vec<Unit> {
        let started = Instant::now();
        let mut units = Vec::new();
        while self.promised < end {
            assert!(
                started.elapsed() < deadline,
                "the stream stands at {}, not at {end}",
                self.promised
            );
            units.extend(self.next().await);
        }
        units
    }

    /// Takes one message, or asks where the server stands.
    pub async fn next(&mut self) -> Option<Unit> {
        match tokio::time::timeout(ASK_EVERY, self.session.copy_data()).await {
            Ok(Ok(Some(content))) => self.take(&content).await,
            Ok(Ok(None)) => panic!("the server ended the stream"),
            Ok(Err(error)) => panic!("the stream failed: {error}"),
            Err(_) => {
                self.send_status(Lsn::INVALID, true).await;
                None
            }
        }
    }

    /// Tells the server that everything up to `flush` is safe here.
    pub async fn send_status(&mut self, flush: Lsn, reply_requested: bool) {
        replication::send_status(&mut self.session, flush, reply_requested).await;
    }

    /// Takes messages while `pending` says so; what has ended meanwhile.
    pub async fn receive_while(
        &mut self,
        what: &str,
        deadline: Duration,
        mut pending: impl FnMut(&Self) -> bool,
    ) -> Vec<Unit> {
        let started = Instant::now();
        let mut units = Vec::new();
        while pending(self) {
            assert!(started.elapsed() < deadline, "not in {deadline:?}: {what}");
            units.extend(self.next().await);
        }
        units
    }

    async fn take(&mut self, content: &Bytes) -> Option<Unit> {
        match BackendCopy::decode(content).expect("a CopyData of a server") {
            BackendCopy::Keepalive(keepalive) => {
                self.promised = self.promised.max(keepalive.end);
                if keepalive.reply_requested {
                    self.send_status(Lsn::INVALID, false).await;
                }
                None
            }
            BackendCopy::XLogData(data) => {
                self.message(data.start, content.slice_ref(data.payload))
            }
        }
    }

    fn message(&mut self, start: Lsn, payload: Bytes) -> Option<Unit> {
        if let Some(top) = self.inside {
            self.part(top, start, &payload);
            return None;
        }
        let piece = Piece {
            start,
            xid: None,
            payload: payload.clone(),
        };
        match decode(&payload, Framing::Plain).expect("a pgoutput message") {
            Message::StreamStart(part) => {
                if part.first_segment {
                    self.streams.insert(part.xid, Unit::new());
                }
                assert!(
                    self.streams.contains_key(&part.xid),
                    "a part without a beginning"
                );
                assert!(self.open.is_empty(), "a part inside a transaction");
                self.inside = Some(part.xid);
                None
            }
            Message::StreamAbort(abort) if abort.xid == abort.subxid => {
                self.streams.remove(&abort.xid);
                self.aborts += 1;
                None
            }
            Message::StreamAbort(abort) => {
                let at = abort.abort.map(|(lsn, _)| lsn);
                self.subtransaction_aborts.push(at);
                let unit = self.streams.get_mut(&abort.xid).expect("it is streamed");
                unit.retain(|piece| piece.xid != Some(abort.subxid) || is_schema(&piece.payload));
                None
            }
            Message::StreamCommit(commit) => Some(self.ended(commit.xid, piece)),
            Message::StreamPrepare(prepare) => Some(self.ended(prepare.xid, piece)),
            Message::Begin(_) | Message::BeginPrepare(_) => {
                assert!(self.open.is_empty(), "a BEGIN inside a transaction");
                self.open.push(piece);
                None
            }
            Message::Commit(_) | Message::Prepare(_) => {
                let mut unit = std::mem::take(&mut self.open);
                assert!(!unit.is_empty(), "an end without a beginning");
                unit.push(piece);
                Some(unit)
            }
            Message::CommitPrepared(_) | Message::RollbackPrepared(_) => Some(vec![piece]),
            Message::LogicalMessage(message) if !message.transactional => Some(vec![piece]),
            _ => {
                assert!(!self.open.is_empty(), "{piece:?} outside a transaction");
                self.open.push(piece);
                None
            }
        }
    }

    fn part(&mut self, top: Xid, start: Lsn, payload: &Bytes) {
        let unit = self.streams.get_mut(&top).expect("it has begun");
        match payload[0] {
            tag::STREAM_STOP => self.inside = None,
            tag::ORIGIN => unit.push(Piece {
                start: Lsn::INVALID,
                xid: Some(top),
                payload: payload.clone(),
            }),
            _ => {
                let (xid, tag, rest) = split_xid(payload).expect("a streamed message");
                let plain = [&[tag], rest].concat();
                decode(&plain, Framing::Plain).expect("a pgoutput message");
                self.before_end += 1;
                unit.push(Piece {
                    start,
                    xid: Some(xid),
                    payload: plain.into(),
                });
            }
        }
    }

    fn ended(&mut self, top: Xid, end: Piece) -> Unit {
        let mut unit = self.streams.remove(&top).expect("it was streamed");
        unit.push(end);
        unit
    }
}

/// Whether it is a RELATION or TYPE.
pub fn is_schema(payload: &[u8]) -> bool {
    matches!(payload.first(), Some(&(tag::RELATION | tag::TYPE)))
}
