//! What two files with the same records agree on.

use pg_proto::Oid;

use crate::block::{Record, Sections};
use crate::error::Damage;

/// Number, size and checksums of a sequence of records: kind, flags, relation, length and bytes of each, in order, whatever blocks
/// they are in.
///
/// The checksums are taken over many records at once, since for a few bytes each most of the time goes into beginning. For
/// that the records of a block have to lie one behind the other in their sections, as whoever writes one puts them.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordDigest {
    records: u64,
    bytes: u64,
    heads: crc32fast::Hasher,
    frames: crc32fast::Hasher,
    aux: crc32fast::Hasher,
    /// The heads of a block's records.
    scratch: Vec<u8>,
}

impl RecordDigest {
    pub(super) fn add(&mut self, relations: &[Oid], sections: Sections<'_>) -> Result<(), Damage> {
        self.scratch.clear();
        let (mut frames_end, mut aux_end) = (0, 0);
        for record in sections.records() {
            let Record { entry, bytes, .. } = record?;
            let end = if entry.is_aux() {
                &mut aux_end
            } else {
                &mut frames_end
            };
            if u64::from(entry.offset) != *end {
                return Err(Damage::Content(format!("{entry:?} is not at {end}")));
            }
            *end += u64::from(entry.length);
            let place = usize::from(entry.relation);
            let relation = relations.get(place).map_or(u32::MAX, |relation| relation.0);
            self.records += 1;
            self.bytes += bytes.len() as u64;
            self.scratch
                .extend_from_slice(&[entry.kind_id, entry.flags]);
            self.scratch.extend_from_slice(&relation.to_le_bytes());
            self.scratch.extend_from_slice(&entry.length.to_le_bytes());
        }
        let [frames, aux] = sections.contents();
        if [frames_end, aux_end] != [frames.len() as u64, aux.len() as u64] {
            return Err(Damage::Content("bytes behind the last record".to_owned()));
        }
        self.heads.update(&self.scratch);
        self.frames.update(frames);
        self.aux.update(aux);
        Ok(())
    }

    /// Compares, and says what differs.
    pub(super) fn check(&self, found: &Self) -> Result<(), Damage> {
        if self.records != found.records {
            return Err(Damage::mismatch(
                "record count",
                self.records,
                found.records,
            ));
        }
        if self.bytes != found.bytes {
            return Err(Damage::mismatch(
                "bytes of records",
                self.bytes,
                found.bytes,
            ));
        }
        let [expected, found] = [self, found].map(Self::checksums);
        if expected != found {
            return Err(Damage::mismatch(
                "checksums of records",
                format!("{expected:08x?}"),
                format!("{found:08x?}"),
            ));
        }
        Ok(())
    }

    fn checksums(&self) -> [u32; 3] {
        [&self.heads, &self.frames, &self.aux].map(|hasher| hasher.clone().finalize())
    }
}
