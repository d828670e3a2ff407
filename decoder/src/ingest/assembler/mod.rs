//! The state machine between the source's stream and the log.
//!
//! It decides what a message means where it stands, and nothing else: what becomes of it is the [`Sink`]'s business.
//!
//! * A transaction whose commit lies before the position that the stream was asked for is in the log already and is
//!   dropped; a non-transactional message too, by its own position.
//! * An empty transaction (version 14 sends them all, later ones some) leaves only a position. So BEGIN, and an
//!   ORIGIN behind it, are held back until there is something to begin.
//! * A part of an in-progress transaction is staged, record by record, under the subtransaction it belongs to; its
//!   records lose their transaction id, so that at commit they are what a plain transaction would have been.
//! * A transaction that ends with PREPARE is staged, too, whether it comes in pieces or whole; see [`prepared`].
//! * A keepalive's position counts where no transaction is open: everything that commits below it was sent.

mod checks;
mod prepared;

use std::sync::Arc;

use pg_proto::pgoutput::{self, Begin, LogicalMessage, Message, StreamCommit, tag};
use pg_proto::{Lsn, PgTimestamp, Xid};
use storage_format::catalog::PublicationState;
use storage_format::record::RecordKind;
use storage_format::staging::Rollback;

use super::error::StreamError;
use super::record::{Class, Incoming, Record, Touched, classify};
use super::sink::{Place, Sink};
use crate::catalog::{Recognised, Recogniser};
use crate::state::DecoderState;

/// BEGIN is this long.
const BEGIN_LEN: usize = 21;

/// Turns the stream of one connection into calls of a [`Sink`].
pub(crate) struct Assembler {
    recogniser: Arc<Recogniser>,
    shared: Arc<DecoderState>,
    /// What commits before this is in the log.
    resume: Lsn,
    /// Everything that commits before this was seen on this connection or before it.
    position: Lsn,
    state: State,
    /// A streamed record without its transaction id.
    plain: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// Outside all transactions.
    Between,
    /// BEGIN came, and nothing that would be worth one.
    Begun(Box<Begun>),
    /// Inside a transaction that the sink has begun.
    Open(Begin),
    /// Inside a transaction that the log has already.
    Skipping(Begin),
    /// Inside a part of an in-progress transaction.
    Streaming(Xid),
    /// Inside a transaction that comes whole and ends with PREPARE.
    Preparing { xid: Xid, prepare_lsn: Lsn },
    /// The same, when the log has it already.
    SkippingPrepared,
}

#[derive(Debug)]
struct Begun {
    begin: Begin,
    start: Lsn,
    send_time: PgTimestamp,
    payload: [u8; BEGIN_LEN],
    origin: Option<(Lsn, Vec<u8>)>,
}

impl Assembler {
    /// For a stream that was asked for from `resume` on.
    pub(crate) fn new(resume: Lsn, recogniser: Arc<Recogniser>, shared: Arc<DecoderState>) -> Self {
        Self {
            recogniser,
            shared,
            resume,
            position: resume,
            state: State::Between,
            plain: Vec::new(),
        }
    }

    /// Takes a keepalive.
    pub(crate) fn keepalive<S: Sink>(&mut self, end: Lsn, sink: &mut S) -> Result<(), S::Error> {
        if matches!(self.state, State::Between) {
            self.advance(end, sink)?;
        }
        Ok(())
    }

    /// Takes a message.
    #[inline]
    pub(crate) fn message<S: Sink>(
        &mut self,
        incoming: &Incoming<'_>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        match self.state {
            State::Open(_) => self.in_transaction(incoming, sink),
            State::Skipping(begin) => self.while_skipping(begin, incoming, sink),
            State::Streaming(top) => self.in_stream(top, incoming, sink),
            State::Preparing { xid, prepare_lsn } => {
                self.while_preparing(xid, prepare_lsn, incoming, sink)
            }
            State::SkippingPrepared => self.while_skipping_prepared(incoming),
            State::Between => self.between(incoming, sink),
            State::Begun(_) => self.after_begin(incoming, sink),
        }
    }

    fn between<S: Sink>(&mut self, incoming: &Incoming<'_>, sink: &mut S) -> Result<(), S::Error> {
        match self.decode(incoming)? {
            Message::Begin(begin) => Ok(self.begin(begin, incoming)?),
            Message::LogicalMessage(message) if !message.transactional => {
                self.lone_message(&message, incoming, sink)
            }
            Message::StreamStart(start) => {
                if start.first_segment {
                    sink.stage_begin(start.xid, incoming)?;
                } else if !sink.is_staged(start.xid) {
                    return Err(self.unknown_stream(start.xid).into());
                }
                self.state = State::Streaming(start.xid);
                Ok(())
            }
            Message::StreamCommit(commit) => self.stream_commit(&commit, sink),
            Message::StreamAbort(abort) => {
                // Versions before 16 say the position only outside the message, and no time.
                let (lsn, time) = abort.abort.unwrap_or((incoming.start, PgTimestamp(0)));
                sink.stage_abort(abort.xid, abort.subxid, Rollback { lsn, time })
            }
            Message::BeginPrepare(begin) => self.begin_prepare(&begin, incoming, sink),
            Message::StreamPrepare(prepare) => self.stream_prepare(&prepare, sink),
            Message::CommitPrepared(end) => self.commit_prepared(&end, sink),
            Message::RollbackPrepared(end) => self.rollback_prepared(&end, incoming, sink),
            _ => Err(self.misplaced(incoming, "outside a transaction").into()),
        }
    }

    fn begin(&mut self, begin: Begin, incoming: &Incoming<'_>) -> Result<(), StreamError> {
        if begin.final_lsn < self.resume {
            self.state = State::Skipping(begin);
            return Ok(());
        }
        self.check_order(begin.final_lsn)?;
        let payload = <[u8; BEGIN_LEN]>::try_from(incoming.payload)
            .map_err(|_| self.misplaced(incoming, "with an unexpected length"))?;
        self.state = State::Begun(Box::new(Begun {
            begin,
            start: incoming.start,
            send_time: incoming.send_time,
            payload,
            origin: None,
        }));
        Ok(())
    }

    fn after_begin<S: Sink>(
        &mut self,
        incoming: &Incoming<'_>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let State::Begun(mut begun) = std::mem::replace(&mut self.state, State::Between) else {
            return Ok(());
        };
        match incoming.payload.first() {
            Some(&tag::COMMIT) => {
                let commit = self.commit_of(begun.begin, incoming)?;
                self.advance(commit.end_lsn, sink)
            }
            Some(&tag::ORIGIN) if begun.origin.is_none() => {
                self.decode(incoming)?;
                begun.origin = Some((incoming.start, incoming.payload.to_vec()));
                self.state = State::Begun(begun);
                Ok(())
            }
            _ => {
                self.open(&begun, sink)?;
                self.in_transaction(incoming, sink)
            }
        }
    }

    /// Begins in the sink what was held back.
    fn open<S: Sink>(&mut self, begun: &Begun, sink: &mut S) -> Result<(), S::Error> {
        let message = Incoming {
            start: begun.start,
            send_time: begun.send_time,
            payload: &begun.payload,
        };
        sink.begin(&begun.begin, &message)?;
        self.state = State::Open(begun.begin);
        if let Some((start, payload)) = &begun.origin {
            let record = Record {
                kind: RecordKind::Origin,
                touched: Touched::None,
                start: *start,
                payload,
            };
            sink.record(Place::Open, &record)?;
        }
        Ok(())
    }

    #[inline]
    fn in_transaction<S: Sink>(
        &mut self,
        incoming: &Incoming<'_>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        if incoming.payload.first() != Some(&tag::COMMIT) {
            return self.record(Place::Open, incoming.start, incoming.payload, sink);
        }
        if let State::Open(begin) = self.state {
            let commit = self.commit_of(begin, incoming)?;
            sink.commit(&commit, incoming)?;
            self.position = commit.end_lsn;
            self.state = State::Between;
        }
        Ok(())
    }

    fn while_skipping<S: Sink>(
        &mut self,
        begin: Begin,
        incoming: &Incoming<'_>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        if incoming.payload.first() == Some(&tag::COMMIT) {
            let commit = self.commit_of(begin, incoming)?;
            self.state = State::Between;
            self.advance(commit.end_lsn, sink)?;
        }
        Ok(())
    }

    fn in_stream<S: Sink>(
        &mut self,
        top: Xid,
        incoming: &Incoming<'_>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        match incoming.payload.first() {
            Some(&tag::STREAM_STOP) => {
                self.decode(incoming)?;
                self.state = State::Between;
                sink.stage_stop(top)
            }
            // The only one without a transaction id.
            Some(&tag::ORIGIN) => {
                let place = Place::Staged { top, sub: top };
                self.record(place, incoming.start, incoming.payload, sink)
            }
            _ => {
                let (sub, tag, rest) = pgoutput::split_xid(incoming.payload)
                    .map_err(|source| self.malformed(incoming.start, incoming.payload, source))?;
                let mut plain = std::mem::take(&mut self.plain);
                plain.clear();
                plain.push(tag);
                plain.extend_from_slice(rest);
                let place = Place::Staged { top, sub };
                let result = self.record(place, incoming.start, &plain, sink);
                self.plain = plain;
                result
            }
        }
    }

    fn stream_commit<S: Sink>(
        &mut self,
        stream: &StreamCommit,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        if stream.commit.commit_lsn < self.resume {
            sink.stage_discard(stream.xid);
        } else {
            self.check_order(stream.commit.commit_lsn)?;
            if !sink.is_staged(stream.xid) {
                return Err(self.unknown_stream(stream.xid).into());
            }
            sink.stage_commit(stream)?;
        }
        self.advance(stream.commit.end_lsn, sink)
    }

    #[inline]
    fn record<S: Sink>(
        &mut self,
        place: Place,
        start: Lsn,
        payload: &[u8],
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let class = classify(payload).map_err(|source| self.malformed(start, payload, source))?;
        let record = |kind, touched| Record {
            kind,
            touched,
            start,
            payload,
        };
        match class {
            Some(Class::Plain(kind, relation)) => {
                let touched = relation.map_or(Touched::None, Touched::One);
                sink.record(place, &record(kind, touched))
            }
            Some(Class::Truncate(truncate)) => sink.record(
                place,
                &record(RecordKind::Truncate, Touched::Many(&truncate)),
            ),
            Some(Class::Message(message)) => {
                match self.recognise(&message, Some(self.xid_at(place))) {
                    Some((publications, subxid)) => {
                        let place = of_subtransaction(place, subxid);
                        sink.publications(place, message.lsn, publications)
                    }
                    None => sink.record(place, &record(RecordKind::Message, Touched::None)),
                }
            }
            None => {
                let incoming = Incoming {
                    start,
                    send_time: PgTimestamp::default(),
                    payload,
                };
                Err(self.misplaced(&incoming, "inside a transaction").into())
            }
        }
    }

    /// The publications, if the message is Decant's own. A message that only claims to be is counted; it stays an
    /// ordinary message. `xid`: the top-level transaction it stands in.
    fn recognise(
        &self,
        message: &LogicalMessage<'_>,
        xid: Option<Xid>,
    ) -> Option<(Arc<PublicationState>, Xid)> {
        let xid = xid.filter(|_| message.transactional);
        match self
            .recogniser
            .recognise(message.prefix, message.content, xid)
        {
            Recognised::Foreign => None,
            Recognised::Publications { state, subxid } => Some((state, subxid)),
            Recognised::Forged { reason } => {
                self.shared.counters().forged_messages.add(1);
                tracing::warn!(
                    lsn = %message.lsn,
                    reason,
                    "a logical message with Decant's prefix is not Decant's; it is kept as any other message"
                );
                None
            }
        }
    }

    const fn xid_at(&self, place: Place) -> Xid {
        match (place, &self.state) {
            (Place::Staged { top, .. }, _) => top,
            (Place::Open, State::Open(begin)) => begin.xid,
            (Place::Open, _) => Xid(0),
        }
    }

    fn lone_message<S: Sink>(
        &mut self,
        message: &LogicalMessage<'_>,
        incoming: &Incoming<'_>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        if message.lsn <= self.resume {
            return Ok(());
        }
        // Called for its warning: it can't be a publications message.
        let _ = self.recognise(message, None);
        sink.lone_message(message.lsn, incoming)?;
        // Decoding passed this record, so every commit below it has been sent.
        self.position = self.position.max(message.lsn);
        Ok(())
    }

    fn advance<S: Sink>(&mut self, to: Lsn, sink: &mut S) -> Result<(), S::Error> {
        if to > self.position {
            self.position = to;
            sink.advance(to)?;
        }
        Ok(())
    }
}

/// Where a message of Decant's belongs. In a stream before the commit pgoutput sends a message with the number of the
/// top-level transaction (`pgoutput_message`), also if a subtransaction wrote it, which may yet be rolled back.
const fn of_subtransaction(place: Place, subxid: Xid) -> Place {
    match place {
        Place::Staged { top, .. } => Place::Staged { top, sub: subxid },
        Place::Open => Place::Open,
    }
}
