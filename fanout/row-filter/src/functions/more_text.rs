//! Functions of text in UTF-8 that make new text.

use bumpalo::collections::Vec;

use super::text::{count, find, length, offset};
use super::{Answer, Args};
use crate::error::FilterError;
use crate::value::Value;

/// Parts of a text between separators, which are not empty.
fn split<'a>(text: &'a [u8], separator: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(at) = find(text, separator) else {
            rest = None;
            return Some(text);
        };
        rest = text.get(at + separator.len()..);
        text.get(..at)
    })
}

pub(crate) fn replace<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let (text, from, to) = (args.bytes(0)?, args.bytes(1)?, args.bytes(2)?);
    if text.is_empty() || from.is_empty() {
        return Ok(Value::Bytes(text));
    }
    let mut replaced = Vec::with_capacity_in(text.len(), args.arena);
    for (number, part) in split(text, from).enumerate() {
        if number > 0 {
            replaced.extend_from_slice(to);
        }
        replaced.extend_from_slice(part);
    }
    Ok(Value::Bytes(replaced.into_bump_slice()))
}

/// The part at a number, counted from 1, or from the end if it is below zero.
pub(crate) fn split_part<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let (text, separator, number) = (args.bytes(0)?, args.bytes(1)?, args.int(2)?);
    if number == 0 {
        let message = "field position must not be zero";
        return Err(FilterError::new("22023", message));
    }
    if text.is_empty() {
        return Ok(Value::Bytes(b""));
    }
    if separator.is_empty() {
        let whole = matches!(number, 1 | -1);
        return Ok(Value::Bytes(if whole { text } else { b"" }));
    }
    let place = if number > 0 {
        usize::try_from(number - 1).ok()
    } else {
        let parts = split(text, separator).count();
        let back = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
        parts.checked_sub(back)
    };
    let part = place.and_then(|place| split(text, separator).nth(place));
    Ok(Value::Bytes(part.unwrap_or_default()))
}

/// The first character's number.
pub(crate) fn code_point<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let text = args.bytes(0)?;
    let first = text.get(..offset(text, 1)).unwrap_or_default();
    let first = std::str::from_utf8(first).map_err(|_| FilterError::unreadable("text"))?;
    let number = first.chars().next().map_or(0, u32::from);
    Ok(Value::Int(number.into()))
}

/// Eight for each byte, of text and of bytea.
pub(crate) fn bits<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let bits = args.bytes(0)?.len().checked_mul(8);
    let bits = bits.filter(|bits| i32::try_from(*bits).is_ok());
    count(bits.ok_or_else(|| FilterError::out_of_range("integer"))?)
}

/// What makes a text as long as asked, and the text, cut if it is longer.
fn padding<'a>(args: &Args<'_, 'a>) -> Result<(&'a [u8], &'a [u8]), FilterError> {
    let (text, wanted) = (args.bytes(0)?, args.int(1)?.max(0));
    let filling = if args.values.len() > 2 {
        args.bytes(2)?
    } else {
        b" "
    };
    let text = text.get(..offset(text, wanted)).unwrap_or_default();
    let wanted = usize::try_from(wanted).unwrap_or(0);
    let mut padding = Vec::new_in(args.arena);
    if !filling.is_empty() {
        let mut rest = filling;
        for _ in length(text)..wanted {
            let (character, behind) = rest.split_at(offset(rest, 1));
            padding.extend_from_slice(character);
            rest = if behind.is_empty() { filling } else { behind };
        }
    }
    Ok((padding.into_bump_slice(), text))
}

fn join<'a>(left: &[u8], right: &[u8], args: &Args<'_, 'a>) -> Value<'a> {
    let mut both = Vec::with_capacity_in(left.len() + right.len(), args.arena);
    both.extend_from_slice(left);
    both.extend_from_slice(right);
    Value::Bytes(both.into_bump_slice())
}

pub(crate) fn pad_left<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let (padding, text) = padding(&args)?;
    Ok(join(padding, text, &args))
}

pub(crate) fn pad_right<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let (padding, text) = padding(&args)?;
    Ok(join(text, padding, &args))
}

/// The text cut to the length of a modifier. A cast cuts; anything else may lose blanks only.
fn cut<'a>(args: &Args<'_, 'a>, kind: &str) -> Result<(&'a [u8], i64), FilterError> {
    let (text, wanted) = (args.bytes(0)?, args.int(1)? - 4);
    let (kept, lost) = text.split_at(offset(text, wanted));
    if !args.bool(2)? && lost.iter().any(|byte| *byte != b' ') {
        return Err(FilterError {
            sqlstate: "22001".into(),
            message: format!("value too long for type {kind}({wanted})").into(),
        });
    }
    Ok((kept, wanted))
}

/// `varchar(n)`
pub(crate) fn varchar<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let (kept, _) = cut(&args, "character varying")?;
    Ok(Value::Bytes(kept))
}

/// `character(n)`
pub(crate) fn bpchar<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let (kept, wanted) = cut(&args, "character")?;
    let wanted = usize::try_from(wanted).unwrap_or(0);
    let mut padded = Vec::with_capacity_in(wanted, args.arena);
    padded.extend_from_slice(kept);
    padded.extend((length(kept)..wanted).map(|_| b' '));
    Ok(Value::Bytes(padded.into_bump_slice()))
}

/// What a pattern of SIMILAR TO is as a regular expression. The compiler lets only those come here of which each
/// character stands for itself, or is `%` or `_`.
pub(crate) fn similar_pattern<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let mut pattern = Vec::new_in(args.arena);
    pattern.extend_from_slice(b"^(?:");
    for byte in args.bytes(0)? {
        match byte {
            b'%' => pattern.extend_from_slice(b".*"),
            b'_' => pattern.push(b'.'),
            byte => pattern.push(*byte),
        }
    }
    pattern.extend_from_slice(b")$");
    Ok(Value::Bytes(pattern.into_bump_slice()))
}
