//! Frames that the emitter makes itself.

use bytes::{BufMut, Bytes, BytesMut};
use pg_proto::pgoutput::{Begin, Message, Truncate, encode, tag};
use pg_proto::{Lsn, Oid, PgTimestamp, Xid};
use storage_format::block::FRAME_HEAD_LEN;
use storage_format::record::PreparedRecord;

/// Bytes of a frame's head before the send time.
const SEND_TIME_OFFSET: usize = FRAME_HEAD_LEN - 8;
/// Bytes of a frame's head before dataStart and walEnd.
const POSITIONS_OFFSET: usize = SEND_TIME_OFFSET - 16;

/// A RELATION or TYPE frame: positions 0/0, as pgoutput sends them, and the send time of the transaction in which
/// it is needed, taken from one of its frames.
pub(super) fn description(payload: &[u8], near: &[u8]) -> Bytes {
    frame(&[0; 16], near, payload)
}

/// A frame with another position in its head.
pub(super) fn starting_at(frame: Bytes, start: Lsn) -> Bytes {
    let positions = POSITIONS_OFFSET..SEND_TIME_OFFSET;
    let start = start.0.to_be_bytes();
    if frame
        .get(positions.clone())
        .is_none_or(|now| now == [start, start].as_flattened())
    {
        return frame;
    }
    let mut frame = BytesMut::from(frame);
    if let Some(place) = frame.get_mut(positions) {
        place.copy_from_slice([start, start].as_flattened());
    }
    frame.freeze()
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
    let positions = original
        .get(POSITIONS_OFFSET..SEND_TIME_OFFSET)
        .unwrap_or(&[0; 16]);
    frame(positions, original, &payload)
}

/// The BEGIN PREPARE in place of a BEGIN, whose frame this was.
pub(super) fn begin_prepare(begin: &[u8], record: &PreparedRecord) -> Bytes {
    let mut payload = Vec::new();
    encode(&Message::BeginPrepare(record.begin_prepare()), &mut payload);
    let positions = begin.get(POSITIONS_OFFSET..SEND_TIME_OFFSET);
    frame(positions.unwrap_or(&[0; 16]), begin, &payload)
}

/// A BEGIN in place of the first STREAM START, of a transaction whose end is not known.
pub(super) fn early_begin(xid: Xid, start: Lsn, send_time: PgTimestamp) -> Bytes {
    let begin = Begin {
        // Nobody sees it, but zero is not allowed.
        final_lsn: Lsn(u64::MAX),
        commit_time: PgTimestamp(0),
        xid,
    };
    let mut payload = Vec::new();
    encode(&Message::Begin(begin), &mut payload);
    let mut near = [0; FRAME_HEAD_LEN];
    if let Some(place) = near.get_mut(SEND_TIME_OFFSET..) {
        place.copy_from_slice(&send_time.0.to_be_bytes());
    }
    let start = start.0.to_be_bytes();
    frame([start, start].as_flattened(), &near, &payload)
}

/// A message at `start`, with the send time of the frame `near`.
pub(super) fn message(start: Lsn, near: &[u8], message: &Message<'_>) -> Bytes {
    let mut payload = Vec::new();
    encode(message, &mut payload);
    let start = start.0.to_be_bytes();
    frame([start, start].as_flattened(), near, &payload)
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
