//! Constants as PostgreSQL stores them in a tree: the bytes of a datum in memory of a little-endian server.

use bumpalo::Bump;

use crate::column::ordered;
use crate::kind::{Base, Kind};
use crate::types::array::{self, Layout, varlena};
use crate::types::inet::Inet;
use crate::types::interval::Interval;
use crate::types::json_datum;
use crate::types::numeric::Numeric;
use crate::types::timetz::TimeTz;
use crate::value::Value;

/// A constant's value, none if the bytes are not what such a server writes.
pub(crate) fn decode<'a>(kind: Kind, bytes: &'a [u8], arena: &'a Bump) -> Option<Value<'a>> {
    if kind.array {
        let layout = layout(kind.base)?;
        let array = array::from_datum(kind, varlena(bytes)?, arena, layout, element)?;
        return Some(Value::Array(array));
    }
    match layout(kind.base)? {
        // By value: a whole Datum of eight bytes is printed, whatever the type's length.
        Layout::Fixed(length @ (1 | 2 | 4 | 8), _) => {
            let by_value = bytes
                .get(..length)
                .filter(|_| bytes.len() == 8 || bytes.len() == length);
            element(kind.base, by_value?, arena)
        }
        Layout::Fixed(length, _) => {
            let exact = Some(bytes).filter(|bytes| bytes.len() == length);
            element(kind.base, exact?, arena)
        }
        Layout::Variable(_) => element(kind.base, bytes, arena),
    }
}

/// How values lie in an array of them: `typlen`, `typalign`.
const fn layout(base: Base) -> Option<Layout> {
    Some(match base {
        Base::Bool | Base::Char => Layout::Fixed(1, 1),
        Base::Int2 => Layout::Fixed(2, 2),
        Base::Int4 | Base::Oid | Base::Xid | Base::Float4 | Base::Date => Layout::Fixed(4, 4),
        Base::Int8
        | Base::Float8
        | Base::Time
        | Base::Timestamp
        | Base::TimestampTz
        | Base::Lsn
        | Base::Xid8 => Layout::Fixed(8, 8),
        Base::Macaddr => Layout::Fixed(6, 4),
        Base::Macaddr8 => Layout::Fixed(8, 4),
        Base::TimeTz => Layout::Fixed(12, 8),
        Base::Interval => Layout::Fixed(16, 8),
        Base::Uuid => Layout::Fixed(16, 1),
        Base::Name => Layout::Fixed(64, 1),
        Base::Numeric
        | Base::Text
        | Base::Bpchar
        | Base::Bytea
        | Base::Jsonb
        | Base::Inet
        | Base::Bit => Layout::Variable(4),
        Base::Any => return None,
    })
}

fn element<'a>(base: Base, bytes: &'a [u8], arena: &'a Bump) -> Option<Value<'a>> {
    let signed = || -> Option<i64> {
        Some(match *bytes {
            [a] => i64::from(i8::from_le_bytes([a])),
            [a, b] => i64::from(i16::from_le_bytes([a, b])),
            [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => return None,
        })
    };
    Some(match base {
        Base::Bool => match bytes {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            _ => return None,
        },
        Base::Char => Value::Int(i64::from(*bytes.first()?)),
        Base::Int2
        | Base::Int4
        | Base::Int8
        | Base::Date
        | Base::Time
        | Base::Timestamp
        | Base::TimestampTz => Value::Int(signed()?),
        Base::Oid | Base::Xid => Value::Int(signed()? & i64::from(u32::MAX)),
        Base::Lsn | Base::Xid8 => Value::Int(ordered(signed()?.cast_unsigned())),
        Base::Float4 => Value::Float4(f32::from_le_bytes(bytes.try_into().ok()?)),
        Base::Float8 => Value::Float8(f64::from_le_bytes(bytes.try_into().ok()?)),
        Base::Numeric => Value::Numeric(Numeric::from_datum(varlena(bytes)?, arena)?),
        Base::Text | Base::Bpchar | Base::Bytea => Value::Bytes(varlena(bytes)?),
        Base::Name => Value::Bytes(bytes.split(|byte| *byte == 0).next()?),
        Base::Uuid => Value::Bytes(bytes),
        Base::TimeTz => {
            let (time, zone) = bytes.split_first_chunk::<8>()?;
            Value::TimeTz(TimeTz {
                time: i64::from_le_bytes(*time),
                zone: i32::from_le_bytes(*zone.first_chunk::<4>()?),
            })
        }
        Base::Interval => Value::Interval(Interval::from_datum(bytes)?),
        Base::Jsonb => Value::Json(json_datum::decode(varlena(bytes)?, arena)?),
        Base::Inet => Value::Inet(Inet::from_datum(varlena(bytes)?)?),
        Base::Macaddr => Value::Int(big_endian(bytes)),
        Base::Macaddr8 => Value::Int(ordered(big_endian(bytes).cast_unsigned())),
        Base::Bit => Value::Bytes(bits(varlena(bytes)?, arena)?),
        Base::Any => return None,
    })
}

fn big_endian(bytes: &[u8]) -> i64 {
    bytes
        .iter()
        .fold(0, |value, byte| value << 8 | i64::from(*byte))
}

/// A bit string as '0' and '1'.
fn bits<'a>(bytes: &[u8], arena: &'a Bump) -> Option<&'a [u8]> {
    let (count, bytes) = bytes.split_first_chunk::<4>()?;
    let count = usize::try_from(i32::from_le_bytes(*count)).ok()?;
    if bytes.len() != count.div_ceil(8) {
        return None;
    }
    let digits = arena.alloc_slice_fill_with(count, |index| {
        let byte = bytes.get(index / 8).copied().unwrap_or(0);
        b'0' + (byte >> (7 - index % 8) & 1)
    });
    Some(digits)
}
