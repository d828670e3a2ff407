//! Functions of text in UTF-8.

use super::compare::unpadded;
use super::{Answer, Args};
use crate::error::FilterError;
use crate::value::Value;

const fn starts_character(byte: u8) -> bool {
    byte & 0xC0 != 0x80
}

pub(super) fn length(text: &[u8]) -> usize {
    text.iter().filter(|byte| starts_character(**byte)).count()
}

/// Place of the first byte behind so many characters.
pub(super) fn offset(text: &[u8], characters: i64) -> usize {
    let Ok(characters) = usize::try_from(characters) else {
        return 0;
    };
    let starts = text.iter().enumerate();
    let mut starts = starts.filter(|(_, byte)| starts_character(**byte));
    starts
        .nth(characters)
        .map_or(text.len(), |(offset, _)| offset)
}

pub(super) fn count<'a>(count: usize) -> Answer<'a> {
    i64::try_from(count)
        .map(Value::Int)
        .map_err(|_| FilterError::out_of_range("integer"))
}

pub(crate) fn characters<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    count(length(args.bytes(0)?))
}

pub(crate) fn characters_unpadded<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    count(length(unpadded(args.bytes(0)?)))
}

pub(crate) fn octets<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    count(args.bytes(0)?.len())
}

pub(crate) fn unpad<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bytes(unpadded(args.bytes(0)?)))
}

pub(crate) fn concatenate<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let (left, right) = (args.bytes(0)?, args.bytes(1)?);
    let mut both =
        bumpalo::collections::Vec::with_capacity_in(left.len() + right.len(), args.arena);
    both.extend_from_slice(left);
    both.extend_from_slice(right);
    Ok(Value::Bytes(both.into_bump_slice()))
}

/// Where a part begins and ends, counted in units of 1.
pub(crate) fn window(start: i64, length: Option<i64>) -> Result<(i64, Option<i64>), FilterError> {
    let first = start.max(1) - 1;
    let Some(length) = length else {
        return Ok((first, None));
    };
    if length < 0 {
        return Err(FilterError::new(
            "22011",
            "negative substring length not allowed",
        ));
    }
    let end = start.saturating_add(length);
    if end > i64::from(i32::MAX) {
        return Ok((first, None));
    }
    Ok((first, Some((end - 1).max(first))))
}

fn part<'a>(text: &'a [u8], start: i64, length: Option<i64>) -> Answer<'a> {
    let (first, end) = window(start, length)?;
    let from = offset(text, first);
    let to = end.map_or(text.len(), |end| offset(text, end));
    Ok(Value::Bytes(
        text.get(from..to.max(from)).unwrap_or_default(),
    ))
}

pub(crate) fn substring<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    part(args.bytes(0)?, args.int(1)?, Some(args.int(2)?))
}

pub(crate) fn substring_from<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    part(args.bytes(0)?, args.int(1)?, None)
}

pub(crate) fn left<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let text = args.bytes(0)?;
    let mut characters = args.int(1)?;
    if characters < 0 {
        characters += i64::try_from(length(text)).unwrap_or(i64::MAX);
    }
    Ok(Value::Bytes(
        text.get(..offset(text, characters)).unwrap_or_default(),
    ))
}

pub(crate) fn right<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let text = args.bytes(0)?;
    let mut skipped = match args.int(1)? {
        // PostgreSQL negates it in 32 bits, where it stays what it is, and skips nothing.
        -2_147_483_648 => return Ok(Value::Bytes(text)),
        characters => -characters,
    };
    if skipped <= 0 {
        skipped += i64::try_from(length(text)).unwrap_or(i64::MAX);
    }
    Ok(Value::Bytes(
        text.get(offset(text, skipped)..).unwrap_or_default(),
    ))
}

pub(crate) fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    text.windows(part.len()).position(|window| window == part)
}

pub(crate) fn position<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let text = args.bytes(0)?;
    match find(text, args.bytes(1)?) {
        Some(at) => count(length(text.get(..at).unwrap_or_default()) + 1),
        None => Ok(Value::Int(0)),
    }
}

pub(crate) fn starts_with<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bool(args.bytes(0)?.starts_with(args.bytes(1)?)))
}

pub(crate) fn lower<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let text = args.arena.alloc_slice_copy(args.bytes(0)?);
    text.make_ascii_lowercase();
    Ok(Value::Bytes(text))
}

pub(crate) fn upper<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let text = args.arena.alloc_slice_copy(args.bytes(0)?);
    text.make_ascii_uppercase();
    Ok(Value::Bytes(text))
}

/// The first character, and the rest.
fn split_first(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(offset(text, 1))
}

fn has(set: &[u8], character: &[u8]) -> bool {
    let mut set = set;
    while !set.is_empty() {
        let (first, rest) = split_first(set);
        if first == character {
            return true;
        }
        set = rest;
    }
    false
}

fn trim_start<'a>(mut text: &'a [u8], set: &[u8]) -> &'a [u8] {
    while !text.is_empty() {
        let (first, rest) = split_first(text);
        if !has(set, first) {
            break;
        }
        text = rest;
    }
    text
}

fn trim_end<'a>(mut text: &'a [u8], set: &[u8]) -> &'a [u8] {
    while let Some(start) = text.iter().rposition(|byte| starts_character(*byte)) {
        let (rest, last) = text.split_at(start);
        if !has(set, last) {
            break;
        }
        text = rest;
    }
    text
}

fn set<'a>(args: &Args<'_, 'a>) -> Result<&'a [u8], FilterError> {
    if args.values.len() > 1 {
        args.bytes(1)
    } else {
        Ok(b" ")
    }
}

pub(crate) fn trim_left<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bytes(trim_start(args.bytes(0)?, set(&args)?)))
}

pub(crate) fn trim_right<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bytes(trim_end(args.bytes(0)?, set(&args)?)))
}

pub(crate) fn trim<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let set = set(&args)?;
    Ok(Value::Bytes(trim_end(trim_start(args.bytes(0)?, set), set)))
}

pub(crate) fn reverse<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let mut text = args.bytes(0)?;
    let mut reversed = bumpalo::collections::Vec::with_capacity_in(text.len(), args.arena);
    while let Some(start) = text.iter().rposition(|byte| starts_character(*byte)) {
        let (rest, last) = text.split_at(start);
        reversed.extend_from_slice(last);
        text = rest;
    }
    Ok(Value::Bytes(reversed.into_bump_slice()))
}

pub(crate) fn bool_text<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bytes(if args.bool(0)? { b"true" } else { b"false" }))
}
