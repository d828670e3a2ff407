//! Columns as pgoutput sends them: the output function's text under the settings that the decoder fixes.

use bumpalo::Bump;

use crate::error::FilterError;
use crate::kind::{Base, Kind};
use crate::types::calendar::{parse_date, parse_time, parse_timestamp};
use crate::types::inet::Inet;
use crate::types::interval::Interval;
use crate::types::numeric::Numeric;
use crate::types::text_scan::{hex, int};
use crate::types::timetz::TimeTz;
use crate::types::{array, json};
use crate::value::Value;

/// A column's value.
pub(crate) fn parse<'a>(
    kind: Kind,
    text: &'a [u8],
    arena: &'a Bump,
) -> Result<Value<'a>, FilterError> {
    let value = if kind.array {
        array::parse(kind.base, text, arena, scalar).map(Value::Array)
    } else {
        scalar(kind.base, text, arena)
    };
    value.ok_or_else(|| FilterError::unreadable(name(kind)))
}

/// A value of a type that is not an array.
fn scalar<'a>(base: Base, text: &'a [u8], arena: &'a Bump) -> Option<Value<'a>> {
    let within = |low: i64, high: i64| int(text).filter(|value| (low..=high).contains(value));
    Some(match base {
        Base::Bool => match text {
            b"t" => Value::Bool(true),
            b"f" => Value::Bool(false),
            _ => return None,
        },
        Base::Int2 => Value::Int(within(i16::MIN.into(), i16::MAX.into())?),
        Base::Int4 => Value::Int(within(i32::MIN.into(), i32::MAX.into())?),
        Base::Int8 => Value::Int(int(text)?),
        Base::Oid | Base::Xid => Value::Int(within(0, u32::MAX.into())?),
        Base::Float4 => Value::Float4(std::str::from_utf8(text).ok()?.parse().ok()?),
        Base::Float8 => Value::Float8(std::str::from_utf8(text).ok()?.parse().ok()?),
        Base::Numeric => Value::Numeric(Numeric::parse(text, arena)?),
        Base::Text | Base::Bpchar | Base::Name => Value::Bytes(text),
        Base::Char => Value::Int(char(text)?),
        Base::Bytea => Value::Bytes(bytea(text, arena)?),
        Base::Uuid => Value::Bytes(uuid(text, arena)?),
        Base::Date => Value::Int(parse_date(text)?),
        Base::Time => Value::Int(parse_time(text)?),
        Base::TimeTz => Value::TimeTz(TimeTz::parse(text)?),
        Base::Timestamp => Value::Int(parse_timestamp(text, false)?),
        Base::TimestampTz => Value::Int(parse_timestamp(text, true)?),
        Base::Interval => Value::Interval(Interval::parse(text)?),
        Base::Jsonb => Value::Json(json::parse(text, arena)?),
        Base::Inet => Value::Inet(Inet::parse(text)?),
        Base::Macaddr => Value::Int(mac(text, 6)?),
        Base::Macaddr8 => Value::Int(ordered(mac(text, 8)?.cast_unsigned())),
        Base::Bit => Value::Bytes(
            text.iter()
                .all(|byte| b"01".contains(byte))
                .then_some(text)?,
        ),
        Base::Lsn => Value::Int(ordered(lsn(text)?)),
        Base::Xid8 => {
            let text = std::str::from_utf8(text).ok()?;
            Value::Int(ordered(text.parse().ok()?))
        }
        Base::Any => return None,
    })
}

/// An unsigned number as a signed one in the same order.
pub(crate) const fn ordered(value: u64) -> i64 {
    (value ^ (1 << 63)).cast_signed()
}

/// `charout`: a byte above 127 is printed as `\ooo`, zero as nothing.
fn char(text: &[u8]) -> Option<i64> {
    match text {
        [] => Some(0),
        [byte] => Some(i64::from(*byte)),
        [b'\\', octal @ ..] if octal.len() == 3 => octal.iter().try_fold(0, |value, byte| {
            (b'0'..=b'7')
                .contains(byte)
                .then(|| value * 8 + i64::from(byte - b'0'))
        }),
        _ => None,
    }
}

fn bytea<'a>(text: &[u8], arena: &'a Bump) -> Option<&'a [u8]> {
    let digits = text.strip_prefix(b"\\x")?;
    let bytes = arena.alloc_slice_fill_copy(digits.len() / 2, 0);
    hex(digits, bytes)?;
    Some(bytes)
}

fn uuid<'a>(text: &[u8], arena: &'a Bump) -> Option<&'a [u8]> {
    let text: &[u8; 36] = text.try_into().ok()?;
    let mut digits = [0; 32];
    let mut places = digits.iter_mut();
    for (index, byte) in text.iter().enumerate() {
        if matches!(index, 8 | 13 | 18 | 23) {
            (*byte == b'-').then_some(())?;
        } else {
            *places.next()? = *byte;
        }
    }
    let bytes = arena.alloc_slice_fill_copy(16, 0);
    hex(&digits, bytes)?;
    Some(bytes)
}

fn mac(text: &[u8], length: usize) -> Option<i64> {
    if text.len() != length * 3 - 1 {
        return None;
    }
    text.split(|byte| *byte == b':')
        .try_fold(0_i64, |value, pair| {
            let mut byte = [0];
            hex(pair, &mut byte)?;
            let [byte] = byte;
            Some(value << 8 | i64::from(byte))
        })
}

fn lsn(text: &[u8]) -> Option<u64> {
    let (high, low) = std::str::from_utf8(text).ok()?.split_once('/')?;
    let half = |part| u32::from_str_radix(part, 16).ok().map(u64::from);
    Some(half(high)? << 32 | half(low)?)
}

const fn name(kind: Kind) -> &'static str {
    if kind.array {
        return "array";
    }
    match kind.base {
        Base::Bool => "boolean",
        Base::Int2 => "smallint",
        Base::Int4 => "integer",
        Base::Int8 => "bigint",
        Base::Float4 => "real",
        Base::Float8 => "double precision",
        Base::Numeric => "numeric",
        Base::Bytea => "bytea",
        Base::Uuid => "uuid",
        Base::Date => "date",
        Base::Time => "time",
        Base::TimeTz => "time with time zone",
        Base::Timestamp => "timestamp",
        Base::TimestampTz => "timestamp with time zone in UTC",
        Base::Interval => "interval",
        Base::Jsonb => "jsonb",
        Base::Inet => "inet",
        _ => "value of its type",
    }
}
