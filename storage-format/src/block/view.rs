//! A block as readers see it.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use pg_proto::{Lsn, Oid, PgTimestamp};

use super::stored::{check_body, restore};
use super::{
    BlockHeader, Codec, DecodedHeader, ENTRY_LEN, Entry, FRAME_HEAD_LEN, NO_RELATION, Sections,
};
use crate::codec::index;
use crate::error::Damage;

/// Offset of a frame's dataStart: behind 'd', the length and 'w'.
const START_OFFSET: usize = 6;
/// Place of the time in it.
const SEND_TIME_OFFSET: usize = 22;

/// A block with its body: checked once, then shared. Its bytes are slices of the mapped file, or of one buffer
/// that it was decompressed into.
///
/// What is checked: the body's checksum, that every entry lies within its section, and that the frames section
/// consists of exactly the entries' frames, in order and without holes. So a run of entries is a run of bytes.
#[derive(Clone, Debug)]
pub struct Block {
    header: BlockHeader,
    relations: Box<[Oid]>,
    entries: Bytes,
    frames: Bytes,
    aux: Bytes,
    derived: Derived,
}

/// What readers have made of a block, for all who share it.
#[derive(Clone, Default)]
struct Derived(Arc<OnceLock<Box<dyn Any + Send + Sync>>>);

impl fmt::Debug for Derived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Derived").finish_non_exhaustive()
    }
}

impl Block {
    /// Checks a stored body and takes it apart.
    pub fn decode(decoded: &DecodedHeader<'_>, stored: Bytes) -> Result<Self, Damage> {
        let header = decoded.header;
        check_body(&header, &stored)?;
        let body = match header.codec {
            Codec::Raw => stored,
            Codec::Zstd | Codec::Columns => restore(&header, &stored)?,
        };
        if body.len() != header.raw_len() {
            return Err(Damage::mismatch(
                "body length",
                header.raw_len(),
                body.len(),
            ));
        }
        let frames_at = index(header.entry_count) * ENTRY_LEN;
        let aux_at = frames_at + index(header.frames_len);
        let block = Self {
            header,
            relations: decode_relations(decoded.relations),
            entries: body.slice(..frames_at),
            frames: body.slice(frames_at..aux_at),
            aux: body.slice(aux_at..),
            derived: Derived::default(),
        };
        block.check_entries()?;
        Ok(block)
    }

    /// What its header says.
    #[must_use]
    pub const fn header(&self) -> &BlockHeader {
        &self.header
    }

    /// The relations that its changes touch.
    #[must_use]
    pub const fn relations(&self) -> &[Oid] {
        &self.relations
    }

    /// Its records, in order.
    #[must_use]
    pub fn entries(&self) -> Entries<'_> {
        let (entries, _) = self.entries.as_chunks();
        Entries {
            rest: entries.iter(),
        }
    }

    /// The record at a place in [`Self::entries`].
    #[must_use]
    pub fn entry(&self, place: usize) -> Option<Entry> {
        let (entries, _) = self.entries.as_chunks();
        entries.get(place).map(Entry::decode)
    }

    /// An entry's relation, if it has exactly one.
    #[must_use]
    pub fn relation(&self, entry: &Entry) -> Option<Oid> {
        self.relations.get(usize::from(entry.relation)).copied()
    }

    /// The frames of all its messages, ready to be sent.
    #[must_use]
    pub const fn frames(&self) -> &Bytes {
        &self.frames
    }

    /// The place of an entry's frame in [`Self::frames`]; an empty range at 0 for a record without a frame.
    #[must_use]
    pub const fn frame_range(&self, entry: &Entry) -> Range<usize> {
        if entry.is_aux() {
            return 0..0;
        }
        index(entry.offset)..index(entry.offset) + index(entry.length)
    }

    /// An entry's frame, head included; empty for a record without a frame.
    #[must_use]
    pub fn frame(&self, entry: &Entry) -> &[u8] {
        self.frames.get(self.frame_range(entry)).unwrap_or_default()
    }

    /// An entry's message, or the content of a record of Decant's own.
    #[must_use]
    pub fn payload(&self, entry: &Entry) -> &[u8] {
        if entry.is_aux() {
            let start = index(entry.offset);
            let end = start + index(entry.length);
            return self.aux.get(start..end).unwrap_or_default();
        }
        self.frame(entry).get(FRAME_HEAD_LEN..).unwrap_or_default()
    }

    /// The position in the head of an entry's frame (dataStart), `0/0` for a record without a frame.
    #[must_use]
    pub fn start_lsn(&self, entry: &Entry) -> Lsn {
        let field = self.frame(entry).get(START_OFFSET..);
        field
            .and_then(<[u8]>::first_chunk)
            .map_or(Lsn::INVALID, |bytes| Lsn(u64::from_be_bytes(*bytes)))
    }

    /// The time in the head of an entry's frame, 0 for a record without a frame.
    #[must_use]
    pub fn send_time(&self, entry: &Entry) -> PgTimestamp {
        let field = self.frame(entry).get(SEND_TIME_OFFSET..);
        field
            .and_then(<[u8]>::first_chunk)
            .map_or(PgTimestamp(0), |bytes| {
                PgTimestamp(i64::from_be_bytes(*bytes))
            })
    }

    /// What a reader made of the block, once for all who have it and for as long as somebody has it. It is not part of
    /// [`Self::weight`]: who makes it keeps it small. `None` if something of another type was made before.
    pub fn derived<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        let made = self.derived.0.get_or_init(|| Box::new(make()));
        made.downcast_ref()
    }

    /// Bytes of memory (its own or mapped) that the block keeps alive.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.relations.len() * 4 + self.header.raw_len()
    }

    /// The first `entries` records.
    pub(crate) fn leading(&self, entries: usize) -> Sections<'_> {
        let end = (entries * ENTRY_LEN).min(self.entries.len());
        let entries = self.entries.get(..end).unwrap_or_default();
        Sections::of_parts([entries, &self.frames, &self.aux])
    }

    fn check_entries(&self) -> Result<(), Damage> {
        let mut frames_end = 0;
        for (place, entry) in self.entries().enumerate() {
            self.check_entry(&entry, frames_end).map_err(|problem| {
                Damage::Content(format!("entry {place} {problem}: {entry:?}"))
            })?;
            frames_end = frames_end.max(self.frame_range(&entry).end);
        }
        if frames_end == self.frames.len() {
            Ok(())
        } else {
            Err(Damage::mismatch(
                "length of all frames",
                self.frames.len(),
                frames_end,
            ))
        }
    }

    fn check_entry(&self, entry: &Entry, frames_end: usize) -> Result<(), &'static str> {
        let known = usize::from(entry.relation) < self.relations.len();
        if !known && entry.relation != NO_RELATION {
            return Err("names a relation that is not in the block's set");
        }
        let (start, length) = (index(entry.offset), index(entry.length));
        if entry.is_aux() {
            return if start + length <= self.aux.len() {
                Ok(())
            } else {
                Err("ends behind the aux section")
            };
        }
        if start != frames_end {
            return Err("does not begin where the frame before it ends");
        }
        let frame = self.frames.get(start..start + length);
        let head = frame.ok_or("ends behind the frames section")?;
        match head.first_chunk::<FRAME_HEAD_LEN>() {
            Some([b'd', l0, l1, l2, l3, b'w', ..])
                if index(u32::from_be_bytes([*l0, *l1, *l2, *l3])) + 1 == length =>
            {
                Ok(())
            }
            _ => Err("is no CopyData frame of its length"),
        }
    }
}

/// Iterates the entries of a [`Block`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: std::slice::Iter<'a, [u8; ENTRY_LEN]>,
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        self.rest.next().map(Entry::decode)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rest.size_hint()
    }
}

impl ExactSizeIterator for Entries<'_> {}

impl DoubleEndedIterator for Entries<'_> {
    fn next_back(&mut self) -> Option<Entry> {
        self.rest.next_back().map(Entry::decode)
    }
}

fn decode_relations(stored: &[u8]) -> Box<[Oid]> {
    let (oids, _) = stored.as_chunks();
    oids.iter()
        .map(|oid| Oid(u32::from_le_bytes(*oid)))
        .collect()
}

#[cfg(test)]
mod tests {
    use pg_proto::PgTimestamp;

    use super::*;
    use crate::block::{BlockBuilder, BlockKind};
    use crate::checksum::crc32;
    use crate::codec::stored_u32;
    use crate::record::RecordKind;

    /// A block of one lone message and one record of Decant's own, with its body.
    fn parts() -> (BlockHeader, Vec<u8>) {
        let mut builder = BlockBuilder::new();
        builder
            .push_lone_message(Lsn(9), Lsn(8), PgTimestamp(0), b"M...")
            .unwrap();
        builder.push_aux(RecordKind::Publications, b"aux").unwrap();
        let body = builder.sections().concat();
        let header = BlockHeader {
            entry_count: 2,
            frames_len: 34,
            aux_len: 3,
            stored_len: stored_u32(body.len()),
            ..BlockHeader::empty(BlockKind::Data)
        };
        (header, body)
    }

    fn decode(mut header: BlockHeader, body: &[u8]) -> Result<Block, Damage> {
        header.body_crc = crc32(&[body]);
        let mut prefix = Vec::new();
        header.encode(&[], &mut prefix);
        let decoded = BlockHeader::decode(&prefix)?;
        Block::decode(&decoded, Bytes::copy_from_slice(body))
    }

    #[test]
    fn gives_records_back() {
        let (header, body) = parts();
        let block = decode(header, &body).unwrap();
        let entries: Vec<Entry> = block.entries().collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(block.entry(1), Some(entries[1]));
        assert_eq!(block.payload(&entries[0]), b"M...");
        assert_eq!(block.start_lsn(&entries[0]), Lsn(8));
        assert_eq!(block.frame_range(&entries[0]), 0..34);
        assert_eq!(block.frame(&entries[0]), block.frames());
        assert_eq!(block.payload(&entries[1]), b"aux");
        assert_eq!(block.frame(&entries[1]), b"");
        assert_eq!(block.start_lsn(&entries[1]), Lsn::INVALID);
        assert_eq!(block.relation(&entries[0]), None);
    }

    #[test]
    fn what_is_derived_is_made_once_and_shared() {
        let (header, body) = parts();
        let block = decode(header, &body).unwrap();
        assert_eq!(block.derived(|| 1_u32), Some(&1));
        assert_eq!(block.clone().derived(|| 2_u32), Some(&1));
        assert_eq!(block.derived(|| "other"), None);
    }

    #[test]
    fn entries_that_make_no_sense_are_refused_whatever_their_checksum() {
        let (header, sound) = parts();
        // Relation, offset, length of both entries; tag and length of the frame.
        for at in [2, 3, 4, 7, 8, 11, 18, 20, 23, 24, 27, 32, 33, 36, 37] {
            let mut body = sound.clone();
            body[at] ^= 0x41;
            assert!(decode(header, &body).is_err(), "byte {at}");
        }
        let longer = BlockHeader {
            frames_len: header.frames_len + 1,
            aux_len: header.aux_len - 1,
            ..header
        };
        assert!(decode(longer, &sound).is_err());
    }

    #[test]
    fn a_claimed_length_is_never_allocated_on_trust() {
        let (header, body) = parts();
        let stored = zstd::bulk::compress(&body, 1).unwrap();
        let claims = BlockHeader {
            codec: Codec::Zstd,
            frames_len: u32::MAX >> 2,
            stored_len: stored_u32(stored.len()),
            ..header
        };
        assert!(matches!(
            decode(claims, &stored),
            Err(Damage::Mismatch {
                field: "decompressed length",
                ..
            })
        ));
    }
}
