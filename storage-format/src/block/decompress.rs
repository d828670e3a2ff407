//! Compressed bodies.

use std::io::{self, Read};

use bytes::Bytes;

use crate::error::Damage;

/// What is allocated before anything was decompressed, whatever the header claims. A frame that really holds more
/// lets the buffer grow as its content comes.
const TRUSTED_LEN: usize = 4 << 20;

/// Decompresses one frame into one buffer of exactly `raw_len` bytes.
pub(super) fn decompress(stored: &[u8], raw_len: usize) -> Result<Bytes, Damage> {
    let body = if raw_len <= TRUSTED_LEN {
        at_once(stored, raw_len)?
    } else {
        growing(stored, raw_len)?
    };
    if body.len() == raw_len {
        Ok(body.into())
    } else {
        let found = match body.len() {
            shorter if shorter < raw_len => shorter.to_string(),
            _ => "more".to_owned(),
        };
        Err(Damage::mismatch("decompressed length", raw_len, found))
    }
}

/// For what is small, as nearly all blocks are: straight into a buffer of that size. A frame that holds more
/// is an error.
fn at_once(stored: &[u8], raw_len: usize) -> Result<Vec<u8>, Damage> {
    zstd::bulk::decompress(stored, raw_len).map_err(|error| content(&error))
}

/// At most one byte more than there should be, to notice a frame that is longer.
fn growing(stored: &[u8], raw_len: usize) -> Result<Vec<u8>, Damage> {
    let decoder = zstd::Decoder::with_buffer(stored).map_err(|error| content(&error))?;
    let limit = u64::try_from(raw_len).map_or(u64::MAX, |length| length.saturating_add(1));
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
