//! Bodies as they are stored: checked against their checksum, and brought back into their three sections.

use bytes::Bytes;

use super::columns::{packed_len_max, unpack};
use super::decompress::{decompress, decompress_at_most};
use super::{BlockHeader, Codec};
use crate::checksum::crc32;
use crate::error::Damage;

/// Fails unless `stored` is what was written.
pub(super) fn check_body(header: &BlockHeader, stored: &[u8]) -> Result<(), Damage> {
    let computed = crc32(&[stored]);
    if computed == header.body_crc {
        return Ok(());
    }
    Err(Damage::mismatch(
        "body checksum",
        format_args!("{:08x}", header.body_crc),
        format_args!("{computed:08x}"),
    ))
}

/// The body of a block whose codec is not [`Codec::Raw`]: entries, frames, aux.
pub(super) fn restore(header: &BlockHeader, stored: &[u8]) -> Result<Bytes, Damage> {
    if header.codec == Codec::Columns {
        let packed = decompress_at_most(stored, packed_len_max(header))?;
        return unpack(header, &packed).map(Bytes::from);
    }
    decompress(stored, header.raw_len()).map(Bytes::from)
}
