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
    now: Now,
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
            now: Now::default(),
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
        let mut rest = frames;
        for (place, (stored, &kind_id)) in entries.iter_mut().zip(self.kinds).enumerate() {
            let bad = || Damage::Content(format!("columns of entry {place} make no sense"));
            let entry = self.entry(kind_id).ok_or_else(bad)?;
            *stored = entry.encode();
            if !entry.is_aux() {
                rest = self.frame(&entry, rest).ok_or_else(bad)?;
            }
        }
        self.check_done()
    }

    fn entry(&mut self, kind_id: u8) -> Option<Entry> {
        let relation = u16::try_from(self.relations.next()?).ok()?;
        self.now.xid = behind(self.now.xid, self.xids.next()?);
        let mut entry = Entry {
            kind_id,
            flags: u8::try_from(self.flags.next()?).ok()?,
            relation: relation.wrapping_sub(1),
            offset: 0,
            length: u32::try_from(self.lengths.next()?).ok()?,
            xid: u32::try_from(self.now.xid).ok()?,
        };
        if entry.is_aux() {
            entry.offset = self.now.aux_place(entry.length, self.aux)?;
        } else {
            entry.length = entry.length.checked_add(stored_u32(FRAME_HEAD_LEN))?;
            entry.offset = self.now.frame_place(entry.length);
        }
        Some(entry)
    }

    /// Writes an entry's frame, and returns the place behind it. There is room for all: frames are as long as heads and messages
    /// together, which was compared before.
    fn frame<'f>(&mut self, entry: &Entry, place: &'f mut [u8]) -> Option<&'f mut [u8]> {
        self.now.start = behind(self.now.start, self.starts.next()?);
        let time = self.now.time(&mut self.times)?;
        let (frame, rest) = place.split_at_mut_checked(index(entry.length))?;
        let (head, payload) = frame.split_at_mut_checked(FRAME_HEAD_LEN)?;
        let (message, messages) = self.messages.split_at_checked(payload.len())?;
        let (start, time) = (Lsn(self.now.start), PgTimestamp(time));
        head.copy_from_slice(&frame_head(entry.length - 1, start, time));
        payload.copy_from_slice(message);
        self.messages = messages;
        Some(rest)
    }

    fn check_done(&self) -> Result<(), Damage> {
        let columns = [
            &self.flags,
            &self.relations,
            &self.lengths,
            &self.xids,
            &self.starts,
            &self.times,
        ];
        let taken = columns.iter().all(|column| column.is_done()) && self.messages.is_empty();
        if taken && self.now.run == 0 && self.now.aux_end == self.aux.len() {
            return Ok(());
        }
        Err(Damage::Content(
            "columns are longer than their records".to_owned(),
        ))
    }
}

/// What the next record is told apart from.
#[derive(Default)]
struct Now {
    xid: u64,
    start: u64,
    time: u64,
    /// Frames to come that have the time, too.
    run: u64,
    /// Where the sections are so far.
    frames_end: usize,
    aux_end: usize,
}

impl Now {
    fn time(&mut self, column: &mut Numbers<'_>) -> Option<i64> {
        if self.run == 0 {
            self.time = behind(self.time, column.next()?);
            self.run = column.next()?;
        }
        self.run = self.run.checked_sub(1)?;
        Some(self.time.cast_signed())
    }

    fn frame_place(&mut self, length: u32) -> u32 {
        let start = self.frames_end;
        self.frames_end += index(length);
        stored_u32(start)
    }

    fn aux_place(&mut self, length: u32, section: &[u8]) -> Option<u32> {
        let start = self.aux_end;
        self.aux_end += index(length);
        (self.aux_end <= section.len()).then(|| stored_u32(start))
    }
}
