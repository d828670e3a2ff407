//! Frames that the emitter makes itself.

use bytes::{BufMut, Bytes, BytesMut};
use pg_proto::Oid;
use pg_proto::pgoutput::{Truncate, tag};
use storage_format::block::FRAME_HEAD_LEN;

/// Bytes of a frame's head before the send time.
const SEND_TIME_OFFSET: usize = FRAME_HEAD_LEN - 8;

/// A RELATION or TYPE frame: positions 0/0, as pgoutput sends them, and the send time of the transaction in which
/// it is needed, taken from one of its frames.
pub(super) fn description(payload: &[u8], near: &[u8]) -> Bytes {
    frame(&[0; 16], near, payload)
}

/// The frame of a TRUNCATE, for fewer relations.
pub(super) fn truncate(original: &[u8], truncate: &Truncate<'_>, relations: &[Oid]) -> Bytes {
    let mut payload = BytesMut::with_capacity(6 + 4 * relations.len());
    payload.put_u8(tag::TRUNCATE);
    payload.put_u32(u32::try_from(relations.len()).unwrap_or(u32::MAX));
    payload.put_u8(u8::from(truncate.cascade) | u8::from(truncate.restart_identity) << 1);
    for relation in relations {
        payload.put_u32(relation.0);
    }
    let positions = original.get(6..SEND_TIME_OFFSET).unwrap_or(&[0; 16]);
    frame(positions, original, &payload)
}

fn frame(positions: &[u8], near: &[u8], payload: &[u8]) -> Bytes {
    let length = FRAME_HEAD_LEN + payload.len();
    let mut frame = BytesMut::with_capacity(length);
    frame.put_u8(b'd');
    // The length counts itself and not the 'd'.
    frame.put_u32(u32::try_from(length - 1).unwrap_or(u32::MAX));
    frame.put_u8(b'w');
    frame.put_slice(positions);
    frame.put_slice(
        near.get(SEND_TIME_OFFSET..FRAME_HEAD_LEN)
            .unwrap_or(&[0; 8]),
    );
    frame.put_slice(payload);
    frame.freeze()
}
