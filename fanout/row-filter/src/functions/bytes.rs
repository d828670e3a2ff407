//! Functions of `bytea`, bit strings and whole numbers as bits.

use super::text::{find, window};
use super::{Answer, Args};
use crate::error::FilterError;
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

/// By how many places; the compiler knows that it is fewer than the type has.
fn places(args: &Args<'_, '_>) -> Result<u32, FilterError> {
    u32::try_from(args.int(1)?).map_err(|_| FilterError::internal())
}

/// What is shifted out at the left is lost, into the sign as well.
pub(crate) fn shift_left<'a, const BYTES: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    let shifted = args.int(0)?.wrapping_shl(places(&args)?);
    let above = 64 - u32::from(BYTES) * 8;
    Ok(Value::Int(shifted << above >> above))
}

pub(crate) fn shift_right<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Int(args.int(0)?.wrapping_shr(places(&args)?)))
}

/// Bit strings of the same length, as '0' and '1'.
fn bitwise<'a>(args: Args<'_, 'a>, verb: &str, bit: fn(bool, bool) -> bool) -> Answer<'a> {
    let (left, right) = (args.bytes(0)?, args.bytes(1)?);
    if left.len() != right.len() {
        return Err(FilterError {
            sqlstate: "22026".into(),
            message: format!("cannot {verb} bit strings of different sizes").into(),
        });
    }
    let digits = left
        .iter()
        .zip(right)
        .map(|(left, right)| b'0' + u8::from(bit(*left == b'1', *right == b'1')));
    let digits = bumpalo::collections::Vec::from_iter_in(digits, args.arena);
    Ok(Value::Bytes(digits.into_bump_slice()))
}

pub(crate) fn bits_and<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    bitwise(args, "AND", |left, right| left & right)
}

pub(crate) fn bits_or<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    bitwise(args, "OR", |left, right| left | right)
}

pub(crate) fn bits_xor<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    bitwise(args, "XOR", |left, right| left ^ right)
}

pub(crate) fn bits_not<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let digits = args.arena.alloc_slice_copy(args.bytes(0)?);
    for digit in digits.iter_mut() {
        *digit = if *digit == b'1' { b'0' } else { b'1' };
    }
    Ok(Value::Bytes(digits))
}
