//! A map by object identifier.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use pg_proto::Oid;

/// A map by object identifier. It is asked for every relation of every block, by every subscriber, so its hash is one
/// multiplication. That is no risk: identifiers are given out by the source's server, one after the other.
pub type OidMap<V> = HashMap<Oid, V, BuildHasherDefault<OidHasher>>;

/// Hashes one object identifier.
#[derive(Clone, Copy, Debug, Default)]
pub struct OidHasher(u64);

impl Hasher for OidHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        // 2^64 divided by the golden ratio: neighbouring values end up far apart, in the high bits too.
        self.0 = (self.0.rotate_left(5) ^ u64::from(value)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn neighbours_differ_where_the_map_looks() {
        let hash = BuildHasherDefault::<OidHasher>::default();
        let hashes = (16_384..17_408).map(|oid| hash.hash_one(Oid(oid)));
        // The map takes 7 bits from the top and the place from the bottom.
        let (top, bottom): (HashSet<u64>, HashSet<u64>) =
            hashes.map(|hash| (hash >> 57, hash & 0x3FF)).unzip();
        assert!(top.len() > 100, "{}", top.len());
        assert!(bottom.len() > 600, "{}", bottom.len());
    }
}
