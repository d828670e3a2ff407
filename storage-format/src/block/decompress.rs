//! Compressed bodies.

use std::io::{self, Read};

use crate::error::Damage;

/// What is allocated before anything was decompressed, whatever the header claims. A frame that really holds more
/// lets the buffer grow as its content comes.
const TRUSTED_LEN: usize = 4 << 20;

/// Decompresses one frame of exactly `raw_len` bytes.
pub(super) fn decompress(stored: &[u8], raw_len: usize) -> Result<Vec<u8>, Damage> {
    let body = decompress_at_most(stored, raw_len)?;
    if body.len() == raw_len {
        return Ok(body);
    }
    let found = body.len();
    Err(Damage::mismatch("decompressed length", raw_len, found))
}

/// Decompresses one frame of `len_max` bytes at most.
pub(super) fn decompress_at_most(stored: &[u8], len_max: usize) -> Result<Vec<u8>, Damage> {
    if len_max <= TRUSTED_LEN {
        return at_once(stored, len_max);
    }
    let body = growing(stored, len_max)?;
    if body.len() <= len_max {
        return Ok(body);
    }
    Err(Damage::mismatch("decompressed length", len_max, "more"))
}

/// For what is small, as nearly all blocks are: straight into a buffer of that size. A frame that holds more
/// is an error.
fn at_once(stored: &[u8], len_max: usize) -> Result<Vec<u8>, Damage> {
    zstd::bulk::decompress(stored, len_max).map_err(|error| content(&error))
}

/// At most one byte more than there should be, to notice a frame that is longer.
fn growing(stored: &[u8], len_max: usize) -> Result<Vec<u8>, Damage> {
    let decoder = zstd::Decoder::with_buffer(stored).map_err(|error| content(&error))?;
    let limit = u64::try_from(len_max).map_or(u64::MAX, |length| length.saturating_add(1));
    let mut body = Vec::with_capacity(TRUSTED_LEN);
    let read = decoder.take(limit).read_to_end(&mut body);
    read.map_err(|error| content(&error))?;
    Ok(body)
}

fn content(error: &io::Error) -> Damage {
    Damage::Content(format!("zstd: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_bodies_grow_as_their_content_comes() {
        let plain = vec![7; TRUSTED_LEN * 2 + 1];
        let stored = zstd::bulk::compress(&plain, 1).unwrap();
        assert_eq!(decompress(&stored, plain.len()).unwrap(), plain);
        for wrong in [plain.len() - 1, plain.len() + 1] {
            assert!(decompress(&stored, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn gives_exactly_the_claimed_length_or_an_error() {
        let plain = b"abcabcabc".repeat(1000);
        let stored = zstd::bulk::compress(&plain, 3).unwrap();
        assert_eq!(decompress(&stored, plain.len()).unwrap(), plain);
        for wrong in [0, plain.len() - 1, plain.len() + 1, usize::MAX >> 1] {
            assert!(decompress(&stored, wrong).is_err(), "{wrong}");
        }
        assert!(decompress(&stored[..stored.len() - 1], plain.len()).is_err());
        assert!(decompress(b"no zstd", 7).is_err());
    }
}
