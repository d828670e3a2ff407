//! Little-endian fields, strings and lists of the catalog's own records.

use pg_proto::Lsn;
use pg_proto::read::{ReadError, Reader};

/// Appends a count or length. What is counted here comes out of one message of the source, which is shorter
/// than 1 GiB.
pub(super) fn put_len(out: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
}

/// Appends a string: its length, then its bytes.
pub(super) fn put_str(out: &mut Vec<u8>, text: &str) {
    put_len(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// Appends a list: its length, then each item.
pub(super) fn put_list<T>(out: &mut Vec<u8>, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    put_len(out, items.len());
    for item in items {
        put(out, item);
    }
}

/// Four bytes, little-endian.
pub(super) fn take_u32(reader: &mut Reader<'_>, field: &'static str) -> Result<u32, ReadError> {
    reader.u32(field).map(u32::swap_bytes)
}

/// A position, little-endian.
pub(super) fn take_lsn(reader: &mut Reader<'_>, field: &'static str) -> Result<Lsn, ReadError> {
    reader.u64(field).map(|lsn| Lsn(lsn.swap_bytes()))
}

/// The inverse of [`put_str`].
pub(super) fn take_str(reader: &mut Reader<'_>, field: &'static str) -> Result<String, ReadError> {
    let length = take_u32(reader, field)?;
    let need = usize::try_from(length).unwrap_or(usize::MAX);
    let bytes = reader.bytes(need, field)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| reader.invalid(field, length))
}

/// The inverse of [`put_list`]. `item_min` is the least that an item takes: a count that can't fit into what is
/// left is refused before anything is allocated for it.
pub(super) fn take_list<'a, T>(
    reader: &mut Reader<'a>,
    field: &'static str,
    item_min: usize,
    take: impl Fn(&mut Reader<'a>) -> Result<T, ReadError>,
) -> Result<Vec<T>, ReadError> {
    let claimed = take_u32(reader, field)?;
    let count = usize::try_from(claimed).unwrap_or(usize::MAX);
    if count > reader.rest().len() / item_min.max(1) {
        return Err(reader.invalid(field, claimed));
    }
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        items.push(take(reader)?);
    }
    Ok(items)
}
