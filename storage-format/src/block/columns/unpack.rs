//! From columns to the body that they were made of.

use pg_proto::{Lsn, PgTimestamp};

use super::super::frame::frame_head;
use super::super::{BlockHeader, ENTRY_LEN, Entry, FRAME_HEAD_LEN};
use super::varint::{Numbers, behind};
use super::{COLUMNS, LENGTHS_LEN};
use crate::codec::{Fields, index, stored_u32};
use crate::error::Damage;
use crate::record::FIRST_AUX;

/// The body of a block: entries, frames, aux. What is allocated is in proportion to `packed`, whatever is claimed.
pub(in super::super) fn unpack(header: &BlockHeader, packed: &[u8]) -> Result<Vec<u8>, Damage> {
    let mut columns = Columns::split(header, packed)?;
    let body_len = columns.body_len(header)?;
    let mut body = vec![0; body_len];
    let (entries, rest) = body.split_at_mut(columns.kinds.len() * ENTRY_LEN);
    let (frames, aux) = rest.split_at_mut(index(header.frames_len));
    aux.copy_from_slice(columns.aux);
    let (entries, _) = entries.as_chunks_mut();
    columns.restore(entries, frames)?;
    Ok(body)
}

/// No body with such a header has longer columns.
pub(in super::super) const fn packed_len_max(header: &BlockHeader) -> usize {
    let sections = index(header.frames_len) + index(header.aux_len);
    sections + index(header.entry_count) * RECORD_LEN_MAX + LENGTHS_LEN
}

/// Most bytes of a record in the columns: kind, flags, relation, length, transaction id, start, time and run.
const RECORD_LEN_MAX: usize = 1 + 2 + 3 + 5 + 5 + 10 + 10 + 10;

struct Columns<'a> {
    messages: &'a [u8],
    aux: &'a [u8],
    kinds: &'a [u8],
    flags: Numbers<'a>,
    relations: Numbers<'a>,
    lengths: Numbers<'a>,
    xids: Numbers<'a>,
    starts: Numbers<'a>,
    times: Numbers<'a>,
}

impl<'a> Columns<'a> {
    fn split(header: &BlockHeader, packed: &'a [u8]) -> Result<Self, Damage> {
        let short = || Damage::Content("columns end too early".to_owned());
        let (mut rest, lengths) = packed.split_last_chunk::<LENGTHS_LEN>().ok_or_else(short)?;
        let mut lengths = Fields::new(lengths);
        let lengths: [usize; COLUMNS] = std::array::from_fn(|_| index(lengths.u32()));
        let mut columns: [&[u8]; COLUMNS] = [&[]; COLUMNS];
        for (column, length) in columns.iter_mut().zip(lengths).rev() {
            let start = rest.len().checked_sub(length).ok_or_else(short)?;
            (rest, *column) = rest.split_at(start);
        }
        let messages_len = rest
            .len()
            .checked_sub(index(header.aux_len))
            .ok_or_else(short)?;
        let (messages, aux) = rest.split_at(messages_len);
        let [kinds, others @ ..] = columns;
        let [flags, relations, lengths, xids, starts, times] = others.map(Numbers::new);
        Ok(Self {
            messages,
            aux,
            kinds,
            flags,
            relations,
            lengths,
            xids,
            starts,
            times,
        })
    }

    /// What the header says the body's length is, if that is what comes out of the columns.
    fn body_len(&self, header: &BlockHeader) -> Result<usize, Damage> {
        let records = self.kinds.len();
        if records != index(header.entry_count) {
            return Err(Damage::mismatch("kinds", header.entry_count, records));
        }
        let frames = self.kinds.iter().filter(|kind| **kind < FIRST_AUX).count();
        let frames_len = self.messages.len() + frames * FRAME_HEAD_LEN;
        if frames_len != index(header.frames_len) {
            return Err(Damage::mismatch(
                "frames length",
                header.frames_len,
                frames_len,
            ));
        }
        Ok(header.raw_len())
    }

    fn restore(
        &mut self,
        entries: &mut [[u8; ENTRY_LEN]],
        frames: &mut [u8],
    ) -> Result<(), Damage> {
        let mut times = Times::default();
        let mut places = Places::default();
        let (mut xid, mut start) = (0, 0);
        let mut rest = frames;
        for (place, (stored, &kind_id)) in entries.iter_mut().zip(self.kinds).enumerate() {
            let bad = || Damage::Content(format!("columns of entry {place} make no sense"));
            let mut entry = self.entry(kind_id, &mut xid).ok_or_else(bad)?;
            let payload_len = index(entry.length);
            if kind_id >= FIRST_AUX {
                entry.offset = places.aux(payload_len, self.aux).ok_or_else(bad)?;
                *stored = entry.encode();
                continue;
            }
            entry.length = entry.length.checked_add(HEAD).ok_or_else(bad)?;
            entry.offset = places.frame(index(entry.length));
            *stored = entry.encode();
            start = behind(start, self.starts.next().ok_or_else(bad)?);
            let time = times.next(&mut self.times).ok_or_else(bad)?;
            let (payload, messages) = self
                .messages
                .split_at_checked(payload_len)
                .ok_or_else(bad)?;
            let head = frame_head(entry.length - 1, Lsn(start), PgTimestamp(time));
            // The frames are as long as heads and messages together, which was compared before.
            let (frame, behind) = rest
                .split_at_mut_checked(index(entry.length))
                .ok_or_else(bad)?;
            let (head_place, payload_place) = frame.split_at_mut(FRAME_HEAD_LEN);
            head_place.copy_from_slice(&head);
            payload_place.copy_from_slice(payload);
            (self.messages, rest) = (messages, behind);
        }
        self.check_done(&times, &places)
    }

    /// Without its place; of a frame with the length of its message only.
    fn entry(&mut self, kind_id: u8, xid: &mut u64) -> Option<Entry> {
        *xid = behind(*xid, self.xids.next()?);
        let relation = u16::try_from(self.relations.next()?).ok()?;
        Some(Entry {
            kind_id,
            flags: u8::try_from(self.flags.next()?).ok()?,
            relation: relation.wrapping_sub(1),
            offset: 0,
            length: u32::try_from(self.lengths.next()?).ok()?,
            xid: u32::try_from(*xid).ok()?,
        })
    }

    fn check_done(&self, times: &Times, places: &Places) -> Result<(), Damage> {
        let columns = [
            &self.flags,
            &self.relations,
            &self.lengths,
            &self.xids,
            &self.starts,
            &self.times,
        ];
        let done = columns.iter().all(|column| column.is_done());
        if done && times.left == 0 && self.messages.is_empty() && places.aux == self.aux.len() {
            return Ok(());
        }
        Err(Damage::Content(
            "columns are longer than their records".to_owned(),
        ))
    }
}

const HEAD: u32 = FRAME_HEAD_LEN as u32;

/// The time of each frame.
#[derive(Default)]
struct Times {
    now: u64,
    /// Frames that have it, too.
    left: u64,
}

impl Times {
    #[inline]
    fn next(&mut self, column: &mut Numbers<'_>) -> Option<i64> {
        if self.left == 0 {
            self.now = behind(self.now, column.next()?);
            self.left = column.next()?;
        }
        self.left = self.left.checked_sub(1)?;
        Some(self.now.cast_signed())
    }
}

/// Where the sections are so far.
#[derive(Default)]
struct Places {
    frames: usize,
    aux: usize,
}

impl Places {
    fn frame(&mut self, length: usize) -> u32 {
        let start = self.frames;
        self.frames += length;
        stored_u32(start)
    }

    fn aux(&mut self, length: usize, section: &[u8]) -> Option<u32> {
        let end = self.aux.checked_add(length)?;
        let start = std::mem::replace(&mut self.aux, end);
        (end <= section.len()).then(|| stored_u32(start))
    }
}
