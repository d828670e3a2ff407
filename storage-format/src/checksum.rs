//! Checksums: CRC-32 (IEEE), as in zlib. `FORMAT.md` says which bytes each one covers.

/// The checksum of several pieces as if they were one.
pub(crate) fn crc32(pieces: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for piece in pieces {
        hasher.update(piece);
    }
    hasher.finalize()
}
