//! Compressed bodies.

use std::io::Read;

use bytes::Bytes;

use crate::error::Damage;

/// What is allocated before anything was decompressed, whatever the header claims. A frame that really holds more
/// lets the buffer grow as its content comes.
const TRUSTED_LEN: usize = 4 << 20;

/// Decompresses one frame into one buffer of exactly `raw_len` bytes.
pub(super) fn decompress(stored: &[u8], raw_len: usize) -> Result<Bytes, Damage> {
    let content = |error: std::io::Error| Damage::Content(format!("zstd: {error}"));
    let decoder = zstd::Decoder::with_buffer(stored).map_err(content)?;
    let mut body = Vec::with_capacity(raw_len.min(TRUSTED_LEN));
    // One byte more than there should be, to notice a frame that is longer.
    let limit = u64::try_from(raw_len).map_or(u64::MAX, |length| length.saturating_add(1));
    decoder
        .take(limit)
        .read_to_end(&mut body)
        .map_err(content)?;
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

#[cfg(test)]
mod tests {
    use super::*;

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
