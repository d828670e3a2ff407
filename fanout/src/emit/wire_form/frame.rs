//! Frames of CopyData with an XLogData inside.

use bytes::{BufMut, BytesMut};
use pg_proto::{Lsn, PgTimestamp};
use storage_format::block::FRAME_HEAD_LEN;

/// 'd', its length, 'w'.
const POSITIONS_OFFSET: usize = FRAME_HEAD_LEN - Head::LEN;

/// dataStart, walEnd and sendTime of a frame, as they are on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head([u8; Head::LEN]);

impl Head {
    const LEN: usize = 24;

    /// One with both positions the same, as pgoutput's are.
    pub(super) fn new(start: Lsn, send_time: PgTimestamp) -> Self {
        let start = start.0.to_be_bytes();
        let fields = [start, start, send_time.0.to_be_bytes()];
        Self(fields.as_flattened().try_into().unwrap_or([0; Self::LEN]))
    }
}

impl Default for Head {
    fn default() -> Self {
        Self([0; Self::LEN])
    }
}

/// The head of a frame.
pub(super) fn head_of(frame: &[u8]) -> Head {
    let fields = frame.get(POSITIONS_OFFSET..).and_then(<[u8]>::first_chunk);
    fields.map_or_else(Head::default, |fields| Head(*fields))
}

/// Appends a frame whose message is `parts`, one behind the other.
pub(super) fn put_frame(out: &mut BytesMut, head: Head, parts: &[&[u8]]) {
    let payload_len: usize = parts.iter().map(|part| part.len()).sum();
    let length = FRAME_HEAD_LEN + payload_len;
    out.reserve(length);
    out.put_u8(b'd');
    // The length counts itself and not the 'd'.
    out.put_u32(u32::try_from(length - 1).unwrap_or(u32::MAX));
    out.put_u8(b'w');
    out.put_slice(&head.0);
    for part in parts {
        out.put_slice(part);
    }
}
