//! Bodies: checked, decompressed, and walked record by record.

use bytes::Bytes;

use super::stored::{check_body, restore};
use super::{BlockHeader, Codec, ENTRY_LEN, Entry, FRAME_HEAD_LEN};
use crate::codec::index;
use crate::error::Damage;

/// The body before compression: `stored` itself if it is raw, else brought back into `buffer`. `stored` must be
/// all of it; its checksum is compared first.
pub(crate) fn raw_body<'a>(
    header: &BlockHeader,
    stored: &'a [u8],
    buffer: &'a mut Bytes,
) -> Result<&'a [u8], Damage> {
    check_body(header, stored)?;
    if header.codec == Codec::Raw {
        return Ok(stored);
    }
    *buffer = restore(header, stored)?;
    Ok(buffer)
}

/// The three sections of a raw body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sections<'a> {
    entries: &'a [[u8; ENTRY_LEN]],
    frames: &'a [u8],
    aux: &'a [u8],
}

/// A record with its bytes: the message of a frame, or Decant's own payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) entry: Entry,
    /// The whole frame, or the same as `payload`.
    pub(crate) bytes: &'a [u8],
    pub(crate) payload: &'a [u8],
}

impl<'a> Sections<'a> {
    pub(crate) fn split(header: &BlockHeader, body: &'a [u8]) -> Result<Self, Damage> {
        let short = || Damage::mismatch("body length", header.raw_len(), body.len());
        let entries_len = index(header.entry_count) * ENTRY_LEN;
        let (entries, rest) = body.split_at_checked(entries_len).ok_or_else(short)?;
        let (frames, aux) = rest
            .split_at_checked(index(header.frames_len))
            .ok_or_else(short)?;
        if aux.len() != index(header.aux_len) {
            return Err(short());
        }
        let (entries, _) = entries.as_chunks();
        Ok(Self {
            entries,
            frames,
            aux,
        })
    }

    /// The sections of a body that is in three parts already.
    pub(crate) fn of_parts([entries, frames, aux]: [&'a [u8]; 3]) -> Self {
        let (entries, rest) = entries.as_chunks();
        debug_assert!(rest.is_empty());
        Self {
            entries,
            frames,
            aux,
        }
    }

    /// Frames, and what no subscriber gets as it is.
    pub(crate) const fn contents(&self) -> [&'a [u8]; 2] {
        [self.frames, self.aux]
    }

    pub(crate) fn records(self) -> impl Iterator<Item = Result<Record<'a>, Damage>> + 'a {
        self.entries
            .iter()
            .map(move |bytes| self.record(Entry::decode(bytes)))
    }

    fn record(&self, entry: Entry) -> Result<Record<'a>, Damage> {
        let (section, head) = if entry.is_aux() {
            (self.aux, 0)
        } else {
            (self.frames, FRAME_HEAD_LEN)
        };
        let start = index(entry.offset);
        let bytes = start
            .checked_add(index(entry.length))
            .and_then(|end| section.get(start..end));
        let payload = bytes.and_then(|bytes| bytes.get(head..));
        match (bytes, payload) {
            (Some(bytes), Some(payload)) => Ok(Record {
                entry,
                bytes,
                payload,
            }),
            _ => Err(Damage::Content(format!("{entry:?} is outside its section"))),
        }
    }
}
