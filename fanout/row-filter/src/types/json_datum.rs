//! `jsonb` as PostgreSQL stores it in a constant (`utils/jsonb.h`): containers of entries, little-endian.

use bumpalo::Bump;
use bumpalo::collections::Vec;

use super::array::varlena;
use super::json::Json;
use super::numeric::Numeric;

const COUNT: u32 = 0x0FFF_FFFF;
const SCALAR: u32 = 0x1000_0000;
const OBJECT: u32 = 0x2000_0000;
const ARRAY: u32 = 0x4000_0000;

const ENTRY_LENGTH: u32 = 0x0FFF_FFFF;
const ENTRY_TYPE: u32 = 0x7000_0000;
const ENTRY_HAS_OFFSET: u32 = 0x8000_0000;

const DEPTH_MAX: usize = 256;

/// A constant's bytes behind the varlena header.
pub(crate) fn decode<'a>(bytes: &'a [u8], arena: &'a Bump) -> Option<&'a Json<'a>> {
    let json = container(bytes, arena, 0)?;
    Some(arena.alloc(json))
}

fn word(bytes: &[u8], index: usize) -> Option<u32> {
    let at = index.checked_mul(4)?;
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

fn container<'a>(bytes: &'a [u8], arena: &'a Bump, depth: usize) -> Option<Json<'a>> {
    if depth > DEPTH_MAX {
        return None;
    }
    let header = word(bytes, 0)?;
    let count = usize::try_from(header & COUNT).ok()?;
    let is_object = header & OBJECT != 0;
    if !is_object && header & ARRAY == 0 {
        return None;
    }
    let entries = if is_object {
        count.checked_mul(2)?
    } else {
        count
    };
    let data = bytes.get(entries.checked_mul(4)?.checked_add(4)?..)?;
    let mut at = 0;
    let mut values = Vec::new_in(arena);
    for index in 0..entries {
        let entry = word(bytes, index + 1)?;
        let length = usize::try_from(entry & ENTRY_LENGTH).ok()?;
        let end = if entry & ENTRY_HAS_OFFSET == 0 {
            length.checked_add(at)?
        } else {
            length
        };
        values.push(value(entry & ENTRY_TYPE, data, at, end, arena, depth)?);
        at = end;
    }
    if header & SCALAR != 0 {
        return values.first().copied().filter(|_| count == 1);
    }
    if !is_object {
        return Some(Json::Array(values.into_bump_slice()));
    }
    let (keys, values) = values.split_at_checked(count)?;
    let mut pairs = Vec::with_capacity_in(count, arena);
    for (key, value) in keys.iter().zip(values) {
        let Json::String(key) = key else { return None };
        pairs.push((*key, *value));
    }
    Some(Json::Object(pairs.into_bump_slice()))
}

fn value<'a>(
    entry_type: u32,
    data: &'a [u8],
    start: usize,
    end: usize,
    arena: &'a Bump,
    depth: usize,
) -> Option<Json<'a>> {
    // Numbers and containers are aligned inside the space that their entry counts.
    let aligned = || data.get(start.checked_next_multiple_of(4)?..end);
    Some(match entry_type {
        0x0000_0000 => Json::String(data.get(start..end)?),
        0x1000_0000 => Json::Number(Numeric::from_datum(varlena(aligned()?)?, arena)?),
        0x2000_0000 => Json::Bool(false),
        0x3000_0000 => Json::Bool(true),
        0x4000_0000 => Json::Null,
        0x5000_0000 => container(aligned()?, arena, depth + 1)?,
        _ => return None,
    })
}
