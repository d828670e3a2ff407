//! From sections to columns.

use pg_proto::{Lsn, PgTimestamp};

use super::super::frame::frame_head;
use super::super::{Entry, FRAME_HEAD_LEN, Record, Sections};
use super::COLUMNS;
use super::varint::{difference, push};
use crate::codec::{offset, stored_u32};

/// Makes columns of one body after the other in the same memory.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    kinds: Vec<u8>,
    flags: Vec<u8>,
    relations: Vec<u8>,
    lengths: Vec<u8>,
    xids: Vec<u8>,
    starts: Vec<u8>,
    times: Vec<u8>,
    last: Last,
    packed: Vec<u8>,
}

/// What the next record is compared with.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    xid: u32,
    start: u64,
    /// Time in the frames of the run, and how many they are so far.
    time: u64,
    run: u64,
    /// Where the sections were so far.
    frames_end: usize,
    aux_end: usize,
}

impl Packer {
    /// The columns of a body; `None` if it has something that they could not give back byte for byte. That is nothing
    /// that a block builder makes, but who reads a block need not rely on that.
    pub(crate) fn pack(&mut self, sections: Sections<'_>) -> Option<&[u8]> {
        self.clear();
        let [frames, aux] = sections.contents();
        for record in sections.records() {
            self.add(&record.ok()?)?;
        }
        self.end_run();
        if (self.last.frames_end, self.last.aux_end) != (frames.len(), aux.len()) {
            return None;
        }
        self.finish(aux);
        Some(&self.packed)
    }

    fn clear(&mut self) {
        for column in self.columns() {
            column.clear();
        }
        self.packed.clear();
        self.last = Last::default();
    }

    const fn columns(&mut self) -> [&mut Vec<u8>; COLUMNS] {
        [
            &mut self.kinds,
            &mut self.flags,
            &mut self.relations,
            &mut self.lengths,
            &mut self.xids,
            &mut self.starts,
            &mut self.times,
        ]
    }

    fn add(&mut self, record: &Record<'_>) -> Option<()> {
        let Record {
            entry,
            bytes,
            payload,
        } = record;
        let end = if entry.is_aux() {
            &mut self.last.aux_end
        } else {
            &mut self.last.frames_end
        };
        if entry.offset != stored_u32(*end) {
            return None;
        }
        *end += bytes.len();
        self.add_entry(entry, payload.len());
        if entry.is_aux() {
            return Some(());
        }
        let head: &[u8; FRAME_HEAD_LEN] = bytes.first_chunk()?;
        let (start, time) = fields(head);
        if *head != frame_head(entry.length.checked_sub(1)?, Lsn(start), PgTimestamp(time)) {
            return None;
        }
        push(&mut self.starts, difference(start, self.last.start));
        self.last.start = start;
        self.add_time(time.cast_unsigned());
        self.packed.extend_from_slice(payload);
        Some(())
    }

    fn add_entry(&mut self, entry: &Entry, payload_len: usize) {
        self.kinds.push(entry.kind_id);
        push(&mut self.flags, entry.flags.into());
        // So that none is 0.
        push(&mut self.relations, entry.relation.wrapping_add(1).into());
        push(&mut self.lengths, offset(payload_len));
        push(
            &mut self.xids,
            difference(entry.xid.into(), self.last.xid.into()),
        );
        self.last.xid = entry.xid;
    }

    fn add_time(&mut self, time: u64) {
        if self.last.run > 0 && self.last.time != time {
            self.end_run();
        }
        if self.last.run == 0 {
            push(&mut self.times, difference(time, self.last.time));
            self.last.time = time;
        }
        self.last.run += 1;
    }

    fn end_run(&mut self) {
        if self.last.run > 0 {
            push(&mut self.times, self.last.run);
            self.last.run = 0;
        }
    }

    fn finish(&mut self, aux: &[u8]) {
        for column in [&mut self.flags, &mut self.relations, &mut self.xids] {
            if column.iter().all(|byte| *byte == 0) {
                column.clear();
            }
        }
        let mut packed = std::mem::take(&mut self.packed);
        packed.extend_from_slice(aux);
        for column in self.columns() {
            packed.extend_from_slice(column);
        }
        for column in self.columns() {
            packed.extend_from_slice(&stored_u32(column.len()).to_le_bytes());
        }
        self.packed = packed;
    }
}

/// dataStart and sendTime.
fn fields(head: &[u8; FRAME_HEAD_LEN]) -> (u64, i64) {
    let [
        _,
        _,
        _,
        _,
        _,
        _,
        s0,
        s1,
        s2,
        s3,
        s4,
        s5,
        s6,
        s7,
        ..,
        t0,
        t1,
        t2,
        t3,
        t4,
        t5,
        t6,
        t7,
    ] = *head;
    (
        u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
        i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
    )
}
