//! pgoutput messages: built here byte by byte after PostgreSQL's documentation, decoded, encoded back.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in helper functions too"
)]

use pg_proto::pgoutput::{Framing, Message, check, decode, encode, peek};
use proptest::prelude::*;

/// A message's bytes and the framing it belongs to.
type Sample = (Vec<u8>, Framing);

fn name() -> BoxedStrategy<Vec<u8>> {
    prop::collection::vec(1_u8..=255, 0..12)
        .prop_map(|mut name| {
            name.push(0);
            name
        })
        .boxed()
}

fn int(bytes: usize) -> BoxedStrategy<Vec<u8>> {
    prop::collection::vec(any::<u8>(), bytes).boxed()
}

/// A position that must not be zero.
fn lsn() -> BoxedStrategy<Vec<u8>> {
    (1..=u64::MAX)
        .prop_map(|lsn| lsn.to_be_bytes().to_vec())
        .boxed()
}

fn fixed(bytes: &'static [u8]) -> BoxedStrategy<Vec<u8>> {
    Just(bytes.to_vec()).boxed()
}

fn one_of(bytes: &'static [u8]) -> BoxedStrategy<Vec<u8>> {
    prop::sample::select(bytes)
        .prop_map(|byte| vec![byte])
        .boxed()
}

fn all(parts: Vec<BoxedStrategy<Vec<u8>>>) -> BoxedStrategy<Vec<u8>> {
    parts.prop_map(|parts| parts.concat()).boxed()
}

/// A 4-byte length and that many bytes.
fn content() -> BoxedStrategy<Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..20)
        .prop_map(|bytes| {
            let length = u32::try_from(bytes.len()).unwrap();
            [&length.to_be_bytes()[..], &bytes].concat()
        })
        .boxed()
}

/// A 2-byte count and that many items.
fn counted(item: BoxedStrategy<Vec<u8>>) -> BoxedStrategy<Vec<u8>> {
    prop::collection::vec(item, 0..6)
        .prop_map(|items| {
            let count = u16::try_from(items.len()).unwrap();
            [&count.to_be_bytes()[..], &items.concat()].concat()
        })
        .boxed()
}

fn tuple(kinds: &'static [u8]) -> BoxedStrategy<Vec<u8>> {
    let value = prop_oneof![one_of(b"nu"), all(vec![one_of(b"tb"), content()])];
    all(vec![one_of(kinds), counted(value.boxed())])
}

fn columns() -> BoxedStrategy<Vec<u8>> {
    counted(all(vec![one_of(&[0, 1]), name(), int(4), int(4)]))
}

fn truncated() -> BoxedStrategy<Vec<u8>> {
    (one_of(&[0, 1, 2, 3]), prop::collection::vec(int(4), 0..6))
        .prop_map(|(flags, oids)| {
            let count = u32::try_from(oids.len()).unwrap().to_be_bytes();
            [count.to_vec(), flags, oids.concat()].concat()
        })
        .boxed()
}

/// Messages that have an xid behind their tag inside a stream.
fn framed() -> BoxedStrategy<Sample> {
    let message = prop_oneof![
        (Just(b'I'), all(vec![int(4), tuple(b"N")])),
        (Just(b'U'), all(vec![int(4), tuple(b"N")])),
        (Just(b'U'), all(vec![int(4), tuple(b"KO"), tuple(b"N")])),
        (Just(b'D'), all(vec![int(4), tuple(b"KO")])),
        (Just(b'T'), truncated()),
        (Just(b'Y'), all(vec![int(4), name(), name()])),
        (
            Just(b'R'),
            all(vec![int(4), name(), name(), one_of(b"dnfi"), columns()])
        ),
        (
            Just(b'M'),
            all(vec![one_of(&[0, 1]), int(8), name(), content()])
        ),
    ];
    (message, prop::option::of(int(4)))
        .prop_map(|((tag, body), xid)| match xid {
            Some(xid) => ([vec![tag], xid, body].concat(), Framing::Streamed),
            None => ([vec![tag], body].concat(), Framing::Plain),
        })
        .boxed()
}

fn unframed() -> BoxedStrategy<Sample> {
    let prepare = || all(vec![lsn(), lsn(), int(8), int(4), name()]);
    prop_oneof![
        all(vec![fixed(b"B"), lsn(), int(8), int(4)]),
        all(vec![fixed(b"C\0"), int(24)]),
        all(vec![fixed(b"O"), int(8), name()]),
        all(vec![fixed(b"S"), int(4), one_of(&[0, 1])]),
        fixed(b"E"),
        all(vec![fixed(b"c"), int(4), fixed(b"\0"), int(24)]),
        all(vec![fixed(b"A"), int(8)]),
        all(vec![fixed(b"A"), int(24)]),
        all(vec![fixed(b"b"), prepare()]),
        all(vec![fixed(b"P\0"), prepare()]),
        all(vec![fixed(b"p\0"), prepare()]),
        all(vec![fixed(b"K\0"), int(24), int(4), name()]),
        all(vec![fixed(b"r\0"), lsn(), lsn(), int(16), int(4), name()]),
    ]
    .prop_map(|bytes| (bytes, Framing::Plain))
    .boxed()
}

fn sample() -> BoxedStrategy<Sample> {
    prop_oneof![framed(), unframed()].boxed()
}

/// STREAM ABORT has a short form, which a cut of the long one may give.
fn is_whole_when_cut(bytes: &[u8], length: usize) -> bool {
    bytes.first() == Some(&b'A') && length == 9
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn encodes_what_it_decodes((bytes, framing) in sample()) {
        let message = decode(&bytes, framing).unwrap();
        let mut again = Vec::new();
        encode(&message, &mut again);
        prop_assert_eq!(&again, &bytes);
        let head = check(&bytes, framing).unwrap();
        prop_assert_eq!(head, peek(&bytes, framing).unwrap());
        if let Message::Change(change) = message {
            prop_assert_eq!(head.relation, Some(change.relation()));
            prop_assert_eq!(head.xid, change.xid());
        }
    }

    #[test]
    fn refuses_every_truncation((bytes, framing) in sample()) {
        for length in (0..bytes.len()).filter(|&length| !is_whole_when_cut(&bytes, length)) {
            prop_assert!(decode(&bytes[..length], framing).is_err(), "{} bytes", length);
            prop_assert!(check(&bytes[..length], framing).is_err(), "{} bytes", length);
        }
        let longer = [&bytes[..], b"\0"].concat();
        prop_assert!(decode(&longer, framing).is_err());
    }

    #[test]
    fn survives_a_changed_byte(
        (mut bytes, framing) in sample(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let at = at.index(bytes.len());
        bytes[at] = value;
        let checked = check(&bytes, framing);
        match decode(&bytes, framing) {
            Ok(message) => {
                prop_assert!(checked.is_ok());
                let mut again = Vec::new();
                encode(&message, &mut again);
                prop_assert_eq!(again, bytes);
            }
            Err(error) => prop_assert_eq!(checked.unwrap_err(), error),
        }
    }

    #[test]
    fn survives_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64), streamed: bool) {
        let framing = if streamed { Framing::Streamed } else { Framing::Plain };
        prop_assert_eq!(decode(&bytes, framing).is_ok(), check(&bytes, framing).is_ok());
    }
}

#[test]
fn a_claimed_count_reserves_no_memory() {
    for message in [
        &b"R\0\0\0\x01\0\0d\xFF\xFF"[..],
        b"T\xFF\xFF\xFF\xFF\0",
        b"I\0\0\0\x01N\0\x01t\x7F\xFF\xFF\xFF",
        b"I\0\0\0\x01N\0\x01t\xFF\xFF\xFF\xFF",
        b"M\0\0\0\0\0\0\0\0\x01p\0\xFF\xFF\xFF\xFF",
    ] {
        assert!(decode(message, Framing::Plain).is_err(), "{message:?}");
    }
}
