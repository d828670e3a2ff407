//! One message of a transaction, classified.

use pg_proto::pgoutput::{self, Framing, LogicalMessage, Message, Truncate, tag};
use pg_proto::read::ReadError;
use pg_proto::{Lsn, Oid, PgTimestamp};
use storage_format::record::RecordKind;

/// A message as it comes out of one XLogData.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    /// `dataStart`.
    pub(crate) start: Lsn,
    /// `sendTime`.
    pub(crate) send_time: PgTimestamp,
    /// The pgoutput message.
    pub(crate) payload: &'a [u8],
}

/// The relations that a record touches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Touched<'a> {
    None,
    One(Oid),
    /// Those of a TRUNCATE.
    Many(&'a Truncate<'a>),
}

/// A record that belongs to a transaction, its payload in protocol-1 form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) kind: RecordKind,
    pub(crate) touched: Touched<'a>,
    pub(crate) start: Lsn,
    pub(crate) payload: &'a [u8],
}

/// What a message in protocol-1 form is, checked whole.
#[derive(Debug)]
pub(crate) enum Class<'a> {
    /// A record that touches no relation or one.
    Plain(RecordKind, Option<Oid>),
    Truncate(Truncate<'a>),
    Message(LogicalMessage<'a>),
}

/// Classifies what may stand inside a transaction. `None`: it may not.
pub(crate) fn classify(payload: &[u8]) -> Result<Option<Class<'_>>, ReadError> {
    let head = pgoutput::check(payload, Framing::Plain)?;
    let plain = |kind| Ok(Some(Class::Plain(kind, head.relation)));
    match head.tag {
        tag::INSERT => plain(RecordKind::Insert),
        tag::UPDATE => plain(RecordKind::Update),
        tag::DELETE => plain(RecordKind::Delete),
        tag::RELATION => plain(RecordKind::Relation),
        tag::TYPE => plain(RecordKind::Type),
        tag::ORIGIN => plain(RecordKind::Origin),
        tag::TRUNCATE | tag::MESSAGE => match pgoutput::decode(payload, Framing::Plain)? {
            Message::Truncate(truncate) => Ok(Some(Class::Truncate(truncate))),
            Message::LogicalMessage(message) => Ok(Some(Class::Message(message))),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}
