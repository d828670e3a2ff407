//! Frames of PostgreSQL's protocol.

use pg_proto::Oid;
use pg_proto::wire::{
    BackendMessage, ErrorFields, ExtendedQuery, Frame, FrontendMessage, SaslInitialResponse, Split,
    StartupPacket, parameters_only, password_text, put_data_row, put_frame, split_frame,
    split_startup,
};

/// Longest body that is taken here.
const BODY_MAX: usize = 1 << 20;

fn frames(mut bytes: &[u8], mut each: impl FnMut(Frame<'_>)) {
    while let Ok(Split::Whole { frame, len }) = split_frame(bytes, BODY_MAX) {
        each(frame);
        bytes = bytes.get(len..).unwrap_or_default();
    }
}

pub(super) fn run_backend(bytes: &[u8]) -> bool {
    let mut understood = false;
    frames(bytes, |frame| {
        if let Ok(message) = BackendMessage::decode(frame) {
            understood = true;
            let mut again = Vec::new();
            message.encode(&mut again);
        }
        // Only an ErrorResponse has one.
        let _ = ErrorFields::decode(frame.body);
    });
    understood
}

pub(super) fn seeds_of_backend() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let mut error = Vec::new();
    let fields = ErrorFields::error("42P01", "no such table").with_hint("look again");
    put_frame(b'E', &mut error, |out| fields.encode_body(out));
    seeds.push(error);
    let mut row = Vec::new();
    put_data_row([Some(&b"one"[..]), None, Some(b"")], &mut row);
    seeds.push(row);
    for (tag, body) in [
        (
            b'R',
            &b"\0\0\0\x0aSCRAM-SHA-256\0SCRAM-SHA-256-PLUS\0\0"[..],
        ),
        (b'R', b"\0\0\0\0"),
        (b'R', b"\0\0\0\x0br=nonce,s=c2FsdA==,i=4096"),
        (b'S', b"server_version\x0018.0\0"),
        (b'K', b"\0\0\x12\x34\x56\x78\x9a\xbc"),
        (b'Z', b"I"),
        (
            b'T',
            b"\0\x01name\0\0\0\x40\x01\0\x01\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0",
        ),
        (b'C', b"SELECT 1\0"),
        (b'W', b"\0\0\0"),
        (b'H', b"\0\0\x02\0\0\0\0"),
        (b'A', b"\0\0\0\x01channel\0payload\0"),
        (b'v', b"\0\x03\0\0\0\0\0\x01_pq_.x\0"),
        (b'1', b""),
    ] {
        let mut frame = Vec::new();
        put_frame(tag, &mut frame, |out| out.extend_from_slice(body));
        seeds.push(frame);
    }
    seeds
}

pub(super) fn run_frontend(bytes: &[u8]) -> bool {
    let mut understood = false;
    frames(bytes, |frame| {
        // What is no message is an error to the client, whatever it is.
        understood |= FrontendMessage::decode(frame).is_ok();
        let _ = SaslInitialResponse::decode(frame.body);
        let _ = password_text(frame.body);
        if let Some(Ok(query)) = ExtendedQuery::decode(frame) {
            let mut again = Vec::new();
            query.encode(&mut again);
            if let ExtendedQuery::Bind { values, .. } = query {
                let _ = parameters_only(values);
            }
        }
    });
    understood
}

pub(super) fn seeds_of_frontend() -> Vec<Vec<u8>> {
    let oid = Oid(25).0.to_be_bytes();
    let parse = [&b"s\0select $1\0\0\x01"[..], &oid].concat();
    let frames = [
        (b'Q', &b"IDENTIFY_SYSTEM\0"[..]),
        (b'p', b"SCRAM-SHA-256\0\0\0\0\x1an,,n=,r=abcdefghijklmnopqr"),
        (b'P', &parse),
        (b'B', b"\0s\0\0\x01\0\0\0\x01\0\0\0\x01x\0\x01\0\0"),
        (b'D', b"Ss\0"),
        (b'E', b"\0\0\0\0\0"),
        (b'C', b"Ps\0"),
        (b'S', b""),
        (b'd', b"r\0\0\0\0\0\0\0\x01"),
        (b'f', b"reason\0"),
        (b'X', b""),
    ];
    let all = frames.map(|(tag, body)| {
        let mut frame = Vec::new();
        put_frame(tag, &mut frame, |out| out.extend_from_slice(body));
        frame
    });
    all.to_vec()
}

pub(super) fn run_startup(bytes: &[u8]) -> bool {
    let Ok(Split::Whole { frame, .. }) = split_startup(bytes) else {
        return false;
    };
    let Ok(packet) = StartupPacket::decode(frame) else {
        return false;
    };
    if let StartupPacket::Startup(startup) = packet {
        // Each is right or wrong; neither panics.
        let _ = startup.replication();
        let _ = startup.negotiate(2);
        let options = startup.parameter("options").unwrap_or_default();
        let _ = pg_proto::wire::option_settings(options);
    }
    true
}

pub(super) fn seeds_of_startup() -> Vec<Vec<u8>> {
    let contents = [
        &b"\0\x03\0\0user\0decant\0database\0shop\0replication\0database\0\0"[..],
        b"\0\x03\0\x02user\0x\0options\0-c datestyle=ISO -c\\ x=y --a=b\0_pq_.z\x001\0\0",
        b"\x04\xd2\x16\x2f",
        b"\x04\xd2\x16\x2e\0\0\0\x01\0\0\0\x02",
    ];
    let packets = contents.map(|content| {
        let length = u32::try_from(content.len() + 4).unwrap_or_default();
        [&length.to_be_bytes()[..], content].concat()
    });
    packets.to_vec()
}
