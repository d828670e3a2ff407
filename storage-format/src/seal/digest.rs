//! What two files with the same records agree on.

use pg_proto::Oid;

use crate::block::Sections;
use crate::error::Damage;

/// Number, size and checksum of a sequence of records: kind, relation and bytes of each, in order, whatever blocks
/// they are in.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordDigest {
    records: u64,
    bytes: u64,
    hasher: crc32fast::Hasher,
}

impl RecordDigest {
    pub(super) fn add(&mut self, relations: &[Oid], sections: Sections<'_>) -> Result<(), Damage> {
        for record in sections.records() {
            let record = record?;
            let place = usize::from(record.entry.relation);
            let relation = relations.get(place).map_or(u32::MAX, |relation| relation.0);
            self.records += 1;
            self.bytes += record.bytes.len() as u64;
            self.hasher.update(&[record.entry.kind_id]);
            self.hasher.update(&relation.to_le_bytes());
            self.hasher.update(&record.entry.length.to_le_bytes());
            self.hasher.update(record.bytes);
        }
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
        let [expected, found] = [self, found].map(|digest| digest.hasher.clone().finalize());
        if expected != found {
            return Err(Damage::mismatch(
                "checksum of records",
                format!("{expected:08x}"),
                format!("{found:08x}"),
            ));
        }
        Ok(())
    }
}
