//! Two independent implementations of the protocol read what is encoded here.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in helper functions too"
)]

mod messages;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use pg_proto::Oid;
use pg_proto::wire::{
    Authentication, BackendMessage, ErrorFields, FieldDescription, FrontendMessage,
    ProtocolVersion, StartupMessage, StartupPacket,
};
use pgwire::messages::{DecodeContext, PgWireBackendMessage, PgWireFrontendMessage};
use postgres_protocol::message::backend::{self, Message};
use proptest::prelude::*;

fn encoded(message: &BackendMessage<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn context(after_startup: bool) -> DecodeContext {
    let mut context = DecodeContext::default();
    context.awaiting_ssl = false;
    context.awaiting_startup = !after_startup;
    context
}

/// What postgres-protocol read is what was meant.
fn assert_same(theirs: &Message, ours: &BackendMessage<'_>) {
    match (theirs, ours) {
        (Message::ParameterStatus(body), BackendMessage::ParameterStatus { name, value }) => {
            assert_eq!(body.name().unwrap().as_bytes(), *name);
            assert_eq!(body.value().unwrap().as_bytes(), *value);
        }
        (Message::BackendKeyData(body), BackendMessage::BackendKeyData { pid, key }) => {
            assert_eq!(body.process_id().to_be_bytes(), pid.to_be_bytes());
            assert_eq!(body.secret_key().to_be_bytes(), **key);
        }
        (Message::ReadyForQuery(body), BackendMessage::ReadyForQuery(status)) => {
            assert_eq!(body.status(), *status as u8);
        }
        (Message::RowDescription(body), BackendMessage::RowDescription(fields)) => {
            assert_same_columns(body, fields);
        }
        (Message::DataRow(body), BackendMessage::DataRow(values)) => {
            let value = |range: Option<_>| Ok(range.map(|range| &body.buffer()[range]));
            let theirs: Vec<_> = body.ranges().map(value).collect().unwrap();
            assert_eq!(&theirs, values);
        }
        (Message::CommandComplete(body), BackendMessage::CommandComplete(tag)) => {
            assert_eq!(body.tag().unwrap().as_bytes(), *tag);
        }
        (Message::ErrorResponse(body), BackendMessage::ErrorResponse(error)) => {
            assert_same_fields(body.fields(), error);
        }
        (Message::NoticeResponse(body), BackendMessage::NoticeResponse(notice)) => {
            assert_same_fields(body.fields(), notice);
        }
        (
            Message::NotificationResponse(body),
            BackendMessage::NotificationResponse {
                pid,
                channel,
                payload,
            },
        ) => {
            assert_eq!(body.process_id().to_be_bytes(), pid.to_be_bytes());
            assert_eq!(body.channel().unwrap().as_bytes(), *channel);
            assert_eq!(body.message().unwrap().as_bytes(), *payload);
        }
        (Message::CopyData(body), BackendMessage::CopyData(content)) => {
            assert_eq!(body.data(), *content);
        }
        (Message::CopyInResponse(body), BackendMessage::CopyInResponse(copy)) => {
            assert_eq!(body.format(), copy.format);
        }
        (Message::CopyOutResponse(body), BackendMessage::CopyOutResponse(copy)) => {
            assert_eq!(body.format(), copy.format);
        }
        (Message::CopyDone, BackendMessage::CopyDone)
        | (Message::EmptyQueryResponse, BackendMessage::EmptyQueryResponse) => {}
        (theirs, BackendMessage::Authentication(request)) => {
            assert_same_request(theirs, request);
        }
        (_, ours) => panic!("{ours:?} was read as another message"),
    }
}

fn assert_same_request(theirs: &Message, ours: &Authentication<'_>) {
    match (theirs, ours) {
        (Message::AuthenticationOk, Authentication::Ok)
        | (Message::AuthenticationCleartextPassword, Authentication::CleartextPassword) => {}
        (Message::AuthenticationMd5Password(body), Authentication::Md5Password { salt }) => {
            assert_eq!(body.salt(), *salt);
        }
        (Message::AuthenticationSasl(body), Authentication::Sasl { mechanisms }) => {
            let theirs: Vec<_> = body.mechanisms().collect().unwrap();
            let theirs: Vec<_> = theirs.iter().map(|name| name.as_bytes()).collect();
            assert_eq!(&theirs, mechanisms);
        }
        (Message::AuthenticationSaslContinue(body), Authentication::SaslContinue(data)) => {
            assert_eq!(body.data(), *data);
        }
        (Message::AuthenticationSaslFinal(body), Authentication::SaslFinal(data)) => {
            assert_eq!(body.data(), *data);
        }
        (_, ours) => panic!("{ours:?} was read as another request"),
    }
}

fn assert_same_columns(theirs: &backend::RowDescriptionBody, ours: &[FieldDescription<'_>]) {
    let theirs: Vec<_> = theirs.fields().collect().unwrap();
    assert_eq!(theirs.len(), ours.len());
    for (theirs, ours) in theirs.iter().zip(ours) {
        let read = FieldDescription {
            name: theirs.name().as_bytes(),
            table: Oid(theirs.table_oid()),
            column: theirs.column_id(),
            type_oid: Oid(theirs.type_oid()),
            type_length: theirs.type_size(),
            type_modifier: theirs.type_modifier(),
            format: theirs.format(),
        };
        assert_eq!(&read, ours);
    }
}

fn assert_same_fields(theirs: backend::ErrorFields<'_>, ours: &ErrorFields) {
    let field = |field: backend::ErrorField<'_>| Ok((field.type_(), field.value_bytes().to_vec()));
    let theirs: Vec<_> = theirs.map(field).collect().unwrap();
    let ours: Vec<_> = ours
        .iter()
        .map(|(kind, text)| (kind, text.as_bytes().to_vec()))
        .collect();
    assert_eq!(theirs, ours);
}

/// Of what pgwire knows differently: it sends CopyFail with the type of CopyDone.
fn frontend() -> BoxedStrategy<FrontendMessage<'static>> {
    let known = |message: &FrontendMessage<'_>| !matches!(message, FrontendMessage::CopyFail(_));
    messages::frontend().prop_filter("known", known).boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn postgres_protocol_reads_what_a_server_says(messages in prop::collection::vec(messages::backend(), 1..8)) {
        // It does not know CopyBothResponse.
        let known = |message: &BackendMessage<'_>| !matches!(message, BackendMessage::CopyBothResponse(_));
        let messages: Vec<_> = messages.into_iter().filter(known).collect();
        let mut stream: BytesMut = messages.iter().flat_map(encoded).collect();
        for message in &messages {
            let theirs = Message::parse(&mut stream).unwrap().expect("a whole message");
            assert_same(&theirs, message);
        }
        prop_assert!(stream.is_empty());
    }

    #[test]
    fn pgwire_reads_and_writes_what_a_server_says(message in messages::backend()) {
        let bytes = encoded(&message);
        let mut stream = BytesMut::from(&bytes[..]);
        let theirs = PgWireBackendMessage::decode(&mut stream, &context(true)).unwrap();
        prop_assert!(stream.is_empty());
        let mut again = BytesMut::new();
        theirs.expect("a whole message").encode(&mut again).unwrap();
        prop_assert_eq!(&again[..], &bytes[..]);
    }

    #[test]
    fn pgwire_reads_and_writes_what_a_client_says(message in frontend()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let mut stream = BytesMut::from(&bytes[..]);
        let theirs = PgWireFrontendMessage::decode(&mut stream, &context(true)).unwrap();
        prop_assert!(stream.is_empty());
        let mut again = BytesMut::new();
        theirs.expect("a whole message").encode(&mut again).unwrap();
        prop_assert_eq!(&again[..], &bytes[..]);
    }

    #[test]
    fn pgwire_reads_and_writes_how_a_client_begins(
        parameters in prop::collection::btree_map("[^\0]{1,9}", "[^\0]{0,9}", 0..6),
    ) {
        let packet = StartupPacket::Startup(StartupMessage {
            version: ProtocolVersion::V3_0,
            parameters: parameters.into_iter().collect(),
        });
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        let mut stream = BytesMut::from(&bytes[..]);
        let theirs = PgWireFrontendMessage::decode(&mut stream, &context(false)).unwrap();
        prop_assert!(stream.is_empty());
        let mut again = BytesMut::new();
        theirs.expect("a whole message").encode(&mut again).unwrap();
        prop_assert_eq!(&again[..], &bytes[..]);
    }
}
