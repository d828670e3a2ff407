//! Functions of `bytea`, bit strings and whole numbers as bits.

use super::text::{find, window};
use super::{Answer, Args};
use crate::value::Value;

fn part<'a>(bytes: &'a [u8], start: i64, length: Option<i64>) -> Answer<'a> {
    let (first, end) = window(start, length)?;
    let at = |place: i64| usize::try_from(place).unwrap_or(0).min(bytes.len());
    let (from, to) = (at(first), end.map_or(bytes.len(), at));
    Ok(Value::Bytes(
        bytes.get(from..to.max(from)).unwrap_or_default(),
    ))
}

pub(crate) fn substring<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    part(args.bytes(0)?, args.int(1)?, Some(args.int(2)?))
}

pub(crate) fn substring_from<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    part(args.bytes(0)?, args.int(1)?, None)
}

pub(crate) fn position<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let at = find(args.bytes(0)?, args.bytes(1)?).map_or(0, |at| at + 1);
    Ok(Value::Int(i64::try_from(at).unwrap_or(i64::MAX)))
}

/// Bytes that hold a bit string.
pub(crate) fn bit_octets<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let bytes = args.bytes(0)?.len().div_ceil(8);
    Ok(Value::Int(i64::try_from(bytes).unwrap_or(i64::MAX)))
}

pub(crate) fn and<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Int(args.int(0)? & args.int(1)?))
}

pub(crate) fn or<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Int(args.int(0)? | args.int(1)?))
}

pub(crate) fn xor<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Int(args.int(0)? ^ args.int(1)?))
}

pub(crate) fn not<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Int(!args.int(0)?))
}
