//! The messages of protocol 3: there and back, cut, damaged.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in helper functions too"
)]

mod messages;

use pg_proto::wire::{
    BackendMessage, Frame, FrontendMessage, MAX_FRAME_BODY, NegotiateProtocolVersion,
    ProtocolVersion, SaslInitialResponse, Split, StartupMessage, StartupPacket, password_text,
    put_frame, split_frame, split_startup,
};
use proptest::prelude::*;

fn frame(bytes: &[u8]) -> Frame<'_> {
    match split_frame(bytes, MAX_FRAME_BODY) {
        Ok(Split::Whole { frame, len }) if len == bytes.len() => frame,
        other => panic!("not one whole frame: {other:?}"),
    }
}

/// A copy of the frame with only so much of the body, and a head that says so.
fn cut(whole: Frame<'_>, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_frame(whole.tag, &mut bytes, |out| {
        out.extend_from_slice(&whole.body[..length])
    });
    bytes
}

/// Kinds of which every beginning is also whole: they have no inner structure.
const SHAPELESS: &[u8] = b"dpF";

fn startup() -> BoxedStrategy<StartupPacket> {
    let parameters = prop::collection::vec(("[^\0]{1,9}", "[^\0]{0,9}"), 0..5);
    prop_oneof![
        Just(StartupPacket::SslRequest),
        Just(StartupPacket::GssEncRequest),
        (any::<u32>(), prop::collection::vec(any::<u8>(), 4..40))
            .prop_map(|(pid, key)| StartupPacket::CancelRequest { pid, key }),
        (0_u16..3, parameters).prop_map(|(minor, parameters)| {
            let version = ProtocolVersion { major: 3, minor };
            StartupPacket::Startup(StartupMessage {
                version,
                parameters,
            })
        }),
    ]
    .boxed()
}

fn negotiation() -> BoxedStrategy<NegotiateProtocolVersion> {
    (0_u32..3, prop::collection::vec("_pq_\\.[a-z]{1,9}", 0..4))
        .prop_map(|(newest_minor, unrecognized)| NegotiateProtocolVersion {
            newest_minor,
            unrecognized,
        })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn backend_messages_come_back(message in messages::backend()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let frame = frame(&bytes);
        prop_assert_eq!(&BackendMessage::decode(frame).unwrap(), &message);
        for length in 0..frame.body.len() {
            let bytes = cut(frame, length);
            let decoded = BackendMessage::decode(self::frame(&bytes));
            // Authentication data ends with its message, and a key of 4 bytes and more is a key.
            let open = SHAPELESS.contains(&frame.tag)
                || frame.tag == b'R' && length >= 4 && frame.body[3] > 10;
            prop_assert!(open || decoded.is_err(), "{} of {:?}", length, message);
        }
    }

    #[test]
    fn negotiations_come_back(negotiation in negotiation()) {
        let message = BackendMessage::NegotiateProtocolVersion(negotiation);
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        prop_assert_eq!(BackendMessage::decode(frame(&bytes)).unwrap(), message);
    }

    #[test]
    fn frontend_messages_come_back(message in messages::frontend()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let frame = frame(&bytes);
        prop_assert_eq!(FrontendMessage::decode(frame).unwrap(), message);
        for length in 0..frame.body.len() {
            let bytes = cut(frame, length);
            let decoded = FrontendMessage::decode(self::frame(&bytes));
            prop_assert!(SHAPELESS.contains(&frame.tag) || decoded.is_err());
        }
    }

    #[test]
    fn authentication_answers_come_back(
        mechanism in messages::name(),
        data in prop::option::of(messages::content()),
        password in messages::text(),
    ) {
        let response = SaslInitialResponse { mechanism, data };
        let mut bytes = Vec::new();
        response.encode(&mut bytes);
        let body = frame(&bytes).body;
        prop_assert_eq!(SaslInitialResponse::decode(body).unwrap(), response);
        for length in 0..body.len() {
            prop_assert!(SaslInitialResponse::decode(&body[..length]).is_err());
        }
        bytes.clear();
        FrontendMessage::encode_password(password, &mut bytes);
        prop_assert_eq!(password_text(frame(&bytes).body).unwrap(), password);
    }

    #[test]
    fn startup_packets_come_back(packet in startup()) {
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        for length in 0..bytes.len() {
            let split = split_startup(&bytes[..length]);
            prop_assert!(matches!(split, Ok(Split::Partial { .. })), "{:?}", split);
        }
        let Ok(Split::Whole { frame, len }) = split_startup(&bytes) else {
            panic!("{bytes:?}");
        };
        prop_assert_eq!(len, bytes.len());
        prop_assert_eq!(&StartupPacket::decode(frame).unwrap(), &packet);
        if matches!(packet, StartupPacket::Startup(_)) {
            for length in 0..frame.len() {
                prop_assert!(StartupPacket::decode(&frame[..length]).is_err());
            }
        }
    }

    #[test]
    fn damaged_messages_do_no_harm(
        message in messages::backend(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(Split::Whole { frame, .. }) = split_frame(&bytes, MAX_FRAME_BODY) {
            let _ = BackendMessage::decode(frame);
            let _ = FrontendMessage::decode(frame);
        }
        let _ = StartupPacket::decode(&bytes);
    }

    #[test]
    fn any_bytes_do_no_harm(tag: u8, body in prop::collection::vec(any::<u8>(), 0..64)) {
        let frame = Frame { tag, body: &body };
        let _ = BackendMessage::decode(frame);
        let _ = FrontendMessage::decode(frame);
        let _ = SaslInitialResponse::decode(&body);
        let _ = StartupPacket::decode(&body);
        let _ = split_frame(&body, 1000);
        let _ = split_startup(&body);
    }
}

#[test]
fn the_bytes_of_common_messages() {
    let bytes = |message: BackendMessage<'_>| {
        let mut out = Vec::new();
        message.encode(&mut out);
        out
    };
    assert_eq!(
        bytes(BackendMessage::CommandComplete(b"COPY 0")),
        b"C\0\0\0\x0BCOPY 0\0"
    );
    assert_eq!(
        bytes(BackendMessage::CopyBothResponse(Default::default())),
        b"W\0\0\0\x07\0\0\0"
    );
    assert_eq!(
        bytes(BackendMessage::DataRow(vec![None, Some(b"x")])),
        b"D\0\0\0\x0F\0\x02\xFF\xFF\xFF\xFF\0\0\0\x01x"
    );
    let mut ssl = Vec::new();
    StartupPacket::SslRequest.encode(&mut ssl);
    assert_eq!(ssl, b"\0\0\0\x08\x04\xD2\x16\x2F");
}
