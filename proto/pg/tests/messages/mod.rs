//! Arbitrary messages. They borrow for ever: a test is short, and so is what it leaks.

use pg_proto::Oid;
use pg_proto::wire::{
    Authentication, BackendMessage, CopyResponse, ErrorFields, FieldDescription, FrontendMessage,
    TransactionStatus,
};
use proptest::prelude::*;

pub(crate) type Backend = BackendMessage<'static>;

fn leak(bytes: Vec<u8>) -> &'static [u8] {
    bytes.leak()
}

/// Text without a zero byte.
pub(crate) fn text() -> BoxedStrategy<&'static [u8]> {
    "[^\0]{0,12}"
        .prop_map(|text| leak(text.into_bytes()))
        .boxed()
}

/// The same, not empty.
pub(crate) fn name() -> BoxedStrategy<&'static [u8]> {
    "[^\0]{1,12}"
        .prop_map(|text| leak(text.into_bytes()))
        .boxed()
}

pub(crate) fn content() -> BoxedStrategy<&'static [u8]> {
    prop::collection::vec(any::<u8>(), 0..40)
        .prop_map(leak)
        .boxed()
}

fn status() -> BoxedStrategy<Backend> {
    prop_oneof![
        Just(TransactionStatus::Idle),
        Just(TransactionStatus::Transaction),
        Just(TransactionStatus::Failed),
    ]
    .prop_map(BackendMessage::ReadyForQuery)
    .boxed()
}

fn fields() -> BoxedStrategy<Vec<FieldDescription<'static>>> {
    let field = (
        name(),
        any::<u32>(),
        any::<i16>(),
        any::<u32>(),
        any::<i16>(),
        any::<i32>(),
        0_i16..2,
    );
    let field = field.prop_map(
        |(name, table, column, type_oid, type_length, type_modifier, format)| FieldDescription {
            name,
            table: Oid(table),
            column,
            type_oid: Oid(type_oid),
            type_length,
            type_modifier,
            format,
        },
    );
    prop::collection::vec(field, 0..6).boxed()
}

fn error() -> BoxedStrategy<ErrorFields> {
    let field = (
        prop::sample::select(&b"SVCMDHPpqWstcdnFLR"[..]),
        "[^\0]{1,20}",
    );
    prop::collection::vec(field, 1..8)
        .prop_map(|fields| {
            let add = |error: ErrorFields, (kind, text): (u8, String)| error.with(kind, text);
            fields.into_iter().fold(ErrorFields::default(), add)
        })
        .boxed()
}

fn copy() -> BoxedStrategy<CopyResponse> {
    (0_u8..2, prop::collection::vec(0_i16..2, 0..5))
        .prop_map(|(format, columns)| CopyResponse { format, columns })
        .boxed()
}

fn authentication() -> BoxedStrategy<Authentication<'static>> {
    prop_oneof![
        Just(Authentication::Ok),
        Just(Authentication::CleartextPassword),
        any::<[u8; 4]>().prop_map(|salt| Authentication::Md5Password { salt }),
        prop::collection::vec(name(), 1..3)
            .prop_map(|mechanisms| Authentication::Sasl { mechanisms }),
        content().prop_map(Authentication::SaslContinue),
        content().prop_map(Authentication::SaslFinal),
    ]
    .boxed()
}

/// What a server may say.
pub(crate) fn backend() -> BoxedStrategy<Backend> {
    let row = prop::collection::vec(prop::option::of(content()), 0..6);
    prop_oneof![
        authentication().prop_map(BackendMessage::Authentication),
        (name(), text()).prop_map(|(name, value)| BackendMessage::ParameterStatus { name, value }),
        (any::<u32>(), any::<[u8; 4]>()).prop_map(|(pid, key)| BackendMessage::BackendKeyData {
            pid,
            key: leak(key.to_vec()),
        }),
        status(),
        fields().prop_map(BackendMessage::RowDescription),
        row.prop_map(BackendMessage::DataRow),
        name().prop_map(BackendMessage::CommandComplete),
        Just(BackendMessage::EmptyQueryResponse),
        error().prop_map(BackendMessage::ErrorResponse),
        error().prop_map(BackendMessage::NoticeResponse),
        (any::<u32>(), name(), text()).prop_map(|(pid, channel, payload)| {
            BackendMessage::NotificationResponse {
                pid,
                channel,
                payload,
            }
        }),
        copy().prop_map(BackendMessage::CopyBothResponse),
        copy().prop_map(BackendMessage::CopyInResponse),
        copy().prop_map(BackendMessage::CopyOutResponse),
        content().prop_map(BackendMessage::CopyData),
        Just(BackendMessage::CopyDone),
    ]
    .boxed()
}

/// What a client may say, except for what is known by its kind only.
pub(crate) fn frontend() -> BoxedStrategy<FrontendMessage<'static>> {
    prop_oneof![
        text().prop_map(FrontendMessage::Query),
        content().prop_map(FrontendMessage::AuthenticationResponse),
        content().prop_map(FrontendMessage::CopyData),
        Just(FrontendMessage::CopyDone),
        text().prop_map(FrontendMessage::CopyFail),
        Just(FrontendMessage::Terminate),
        Just(FrontendMessage::Sync),
        Just(FrontendMessage::Flush),
    ]
    .boxed()
}
