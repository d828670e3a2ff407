//! The head of a frame: CopyData with an XLogData inside, up to the message.

use pg_proto::{Lsn, PgTimestamp};

use super::FRAME_HEAD_LEN;

/// The head; pgoutput's dataStart and walEnd are equal. `copy_data_len` counts itself and not the 'd'.
pub(super) fn frame_head(
    copy_data_len: u32,
    start: Lsn,
    send_time: PgTimestamp,
) -> [u8; FRAME_HEAD_LEN] {
    let mut head = [0; FRAME_HEAD_LEN];
    let fields: [&[u8]; 6] = [
        b"d",
        &copy_data_len.to_be_bytes(),
        b"w",
        &start.0.to_be_bytes(),
        &start.0.to_be_bytes(),
        &send_time.0.to_be_bytes(),
    ];
    let mut rest = head.as_mut_slice();
    for field in fields {
        let (place, behind) = rest.split_at_mut(field.len());
        place.copy_from_slice(field);
        rest = behind;
    }
    head
}
