//! What the hot path needs of a message, without building one.

use super::decode::{self, Framing, decode};
use super::tag;
use crate::read::{ReadError, Reader};
use crate::{Oid, Xid};

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    /// Its first byte, one of [`tag`].
    pub tag: u8,
    /// The (sub)transaction, of the messages that carry one inside a stream.
    pub xid: Option<Xid>,
    /// The relation, of RELATION, INSERT, UPDATE and DELETE.
    pub relation: Option<Oid>,
}

/// Reads a message's head and looks at nothing behind it.
pub fn peek(payload: &[u8], framing: Framing) -> Result<Peek, ReadError> {
    let mut reader = Reader::new(payload);
    let tag = reader.u8("message tag")?;
    let (xid, relation) = match tag {
        tag::INSERT | tag::UPDATE | tag::DELETE | tag::RELATION => (
            framing.take_xid(&mut reader)?,
            Some(Oid(reader.u32("relation oid")?)),
        ),
        tag::TYPE | tag::TRUNCATE | tag::MESSAGE => (framing.take_xid(&mut reader)?, None),
        _ => (None, None),
    };
    Ok(Peek { tag, xid, relation })
}

/// Checks a message whole, as [`decode`] does, and never allocates.
pub fn check(payload: &[u8], framing: Framing) -> Result<Peek, ReadError> {
    let head = peek(payload, framing)?;
    if head.tag == tag::RELATION {
        check_relation(payload, framing)?;
    } else {
        decode(payload, framing)?;
    }
    Ok(head)
}

/// [`decode`] would build the list of columns.
fn check_relation(payload: &[u8], framing: Framing) -> Result<(), ReadError> {
    let mut reader = Reader::new(payload);
    reader.u8("message tag")?;
    let (_, columns) = decode::relation_head(&mut reader, framing)?;
    for _ in 0..columns {
        decode::relation_column(&mut reader)?;
    }
    reader.finish("the message")
}

/// Takes the transaction id out of a message of a streamed block: the id, the tag, and what follows the id.
/// The tag and the rest, put together, are the message in its plain form.
///
/// Only for the tags that carry one there: RELATION, TYPE, INSERT, UPDATE, DELETE, TRUNCATE and MESSAGE.
pub fn split_xid(payload: &[u8]) -> Result<(Xid, u8, &[u8]), ReadError> {
    let mut reader = Reader::new(payload);
    let tag = reader.u8("message tag")?;
    match tag {
        tag::INSERT
        | tag::UPDATE
        | tag::DELETE
        | tag::RELATION
        | tag::TYPE
        | tag::TRUNCATE
        | tag::MESSAGE => Ok((Xid(reader.u32("xid")?), tag, reader.rest())),
        other => Err(reader.invalid("tag of a message with a transaction id", other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_head_only() {
        let head = peek(b"I\0\0\0\x07broken", Framing::Plain).unwrap();
        assert_eq!(
            (head.tag, head.xid, head.relation),
            (b'I', None, Some(Oid(7)))
        );
        let head = peek(b"I\0\0\0\x07\0\0\0\x08broken", Framing::Streamed).unwrap();
        assert_eq!((head.xid, head.relation), (Some(Xid(7)), Some(Oid(8))));
        assert!(check(b"I\0\0\0\x07broken", Framing::Plain).is_err());
        assert!(peek(b"I\0\0", Framing::Plain).is_err());
    }

    #[test]
    fn takes_the_transaction_id_out() {
        let (xid, tag, rest) = split_xid(b"I\0\0\0\x07\0\0\0\x08N\0\0").unwrap();
        assert_eq!((xid, tag, rest), (Xid(7), b'I', &b"\0\0\0\x08N\0\0"[..]));
        assert!(split_xid(b"B\0\0\0\x07").is_err());
    }
}
