//! Logical replication messages, alone and as a stream into the decoder.

use bytes::Bytes;
use pg_proto::pgoutput::{Framing, check, decode, encode, peek, split_xid};
use pg_proto::replication::{BackendCopy, FrontendCopy, Keepalive, StatusUpdate};
use pg_proto::{Lsn, wire};
use storage_format::catalog::ServerParameters;

use crate::build::{Machine, TIME, messages_of, recording_of};

/// The first byte says whether the message stands in a streamed block.
pub(super) fn run(bytes: &[u8]) -> bool {
    let Some((form, message)) = bytes.split_first() else {
        return false;
    };
    let framing = if form & 1 == 0 {
        Framing::Plain
    } else {
        Framing::Streamed
    };
    let checked = check(message, framing).is_ok();
    let decoded = decode(message, framing);
    if let Ok(decoded) = &decoded {
        assert!(checked, "decoded, but not checked");
        let mut again = Vec::new();
        encode(decoded, &mut again);
        let twice = decode(&again, framing).expect("what was encoded is decoded");
        assert_eq!(&twice, decoded);
    }
    // What they say of bytes that are no message does not matter.
    let _ = peek(message, framing);
    let _ = split_xid(message);
    let _ = FrontendCopy::decode(message);
    let _ = BackendCopy::decode(message);
    decoded.is_ok()
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (form, recording) in [
        (0, "18-v1.bin"),
        (0, "18-v1-binary.bin"),
        (1, "18-v4-parallel.bin"),
    ] {
        for message in messages_of(recording) {
            seeds.push([&[form], &message[..]].concat());
        }
    }
    let mut status = vec![0];
    let update = StatusUpdate {
        write: Lsn(3),
        flush: Lsn(2),
        apply: Lsn(1),
        client_time: TIME,
        reply_requested: true,
    };
    update.encode(&mut status);
    seeds.push(status);
    seeds
}

/// Frames of a connection, through the decoder into a log.
pub(super) fn run_stream(bytes: &[u8]) -> bool {
    let machine = Machine::new();
    machine.run_stream(bytes)
}

impl Machine {
    fn run_stream(&self, bytes: &[u8]) -> bool {
        let Ok((mut core, _)) = self.core() else {
            return false;
        };
        let begun = core
            .reset()
            .and_then(|_| core.begin(ServerParameters::default(), 1));
        // An error ends the connection or the decoder, and is none of ours.
        begun
            .and_then(|()| core.batch(Bytes::copy_from_slice(bytes)))
            .and_then(|()| core.sync())
            .and_then(|()| core.reset())
            .is_ok()
    }
}

/// Transactions of a real server, some at a time.
pub(super) fn seeds_of_streams() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for recording in ["18-v1.bin", "15-v3-two-phase.bin", "18-v2-streaming.bin"] {
        let contents = recording_of(recording);
        for part in contents.chunks(60).take(6) {
            let mut frames = Vec::new();
            for content in part {
                wire::put_frame(b'd', &mut frames, |out| out.extend_from_slice(content));
            }
            seeds.push(frames);
        }
    }
    let mut keepalive = Vec::new();
    let content = Keepalive {
        end: Lsn(0x5000),
        send_time: TIME,
        reply_requested: false,
    };
    content.encode_frame(&mut keepalive);
    seeds.push(keepalive);
    seeds
}
