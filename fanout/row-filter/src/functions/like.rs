//! LIKE, for UTF-8 and for bytes.

use super::{Answer, Args};
use crate::error::FilterError;
use crate::value::Value;

/// How far `_` goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Byte,
    /// A character of UTF-8.
    Character,
}

const fn ends_early() -> FilterError {
    FilterError::new("22025", "LIKE pattern must not end with escape character")
}

fn skip(text: &[u8], unit: Unit) -> &[u8] {
    let rest = text.get(1..).unwrap_or_default();
    if unit == Unit::Byte {
        return rest;
    }
    let inside = rest.iter().take_while(|byte| *byte & 0xC0 == 0x80).count();
    rest.get(inside..).unwrap_or_default()
}

/// What is left of the pattern behind `%` and everything that follows it and is no literal, and of the text.
fn behind_percent<'a>(
    mut text: &'a [u8],
    mut pattern: &'a [u8],
    unit: Unit,
) -> Option<(&'a [u8], &'a [u8])> {
    loop {
        match pattern.first() {
            Some(b'%') => {}
            Some(b'_') if text.is_empty() => return None,
            Some(b'_') => text = skip(text, unit),
            _ => return Some((text, pattern)),
        }
        pattern = skip(pattern, Unit::Byte);
    }
}

/// Whether the text matches. Only the last `%` that was met is ever tried again: what stands before it has matched as
/// early as it can.
fn matches(text: &[u8], pattern: &[u8], unit: Unit) -> Result<bool, FilterError> {
    let (mut text, mut pattern) = (text, pattern);
    let mut again: Option<(&[u8], &[u8])> = None;
    loop {
        let same = match (pattern.split_first(), text.first()) {
            (Some((b'%', _)), Some(_)) => {
                let Some((rest, literal)) = behind_percent(text, pattern, unit) else {
                    return Ok(false);
                };
                if literal.is_empty() {
                    return Ok(true);
                }
                if literal == b"\\" {
                    return Err(ends_early());
                }
                if rest.is_empty() {
                    return Ok(false);
                }
                again = Some((rest, literal));
                (text, pattern) = (rest, literal);
                continue;
            }
            (Some((b'_', rest)), Some(_)) => {
                text = skip(text, unit);
                pattern = rest;
                continue;
            }
            (Some((b'\\', escaped)), Some(byte)) => {
                let literal = escaped.first().ok_or_else(ends_early)?;
                pattern = escaped;
                literal == byte
            }
            (Some((literal, _)), Some(byte)) => literal == byte,
            // The text is at its end: nothing shorter will match better.
            (_, None) => return Ok(pattern.iter().all(|byte| *byte == b'%')),
            (None, Some(_)) => false,
        };
        if same {
            text = skip(text, Unit::Byte);
            pattern = skip(pattern, Unit::Byte);
            continue;
        }
        let Some((start, literal)) = again else {
            return Ok(false);
        };
        let start = skip(start, unit);
        if start.is_empty() {
            return Ok(false);
        }
        again = Some((start, literal));
        (text, pattern) = (start, literal);
    }
}

fn answer<'a>(args: Args<'_, 'a>, unit: Unit, wanted: bool) -> Answer<'a> {
    let matched = matches(args.bytes(0)?, args.bytes(1)?, unit)?;
    Ok(Value::Bool(matched == wanted))
}

pub(crate) fn like<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    answer(args, Unit::Character, true)
}

pub(crate) fn not_like<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    answer(args, Unit::Character, false)
}

pub(crate) fn bytes_like<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    answer(args, Unit::Byte, true)
}

pub(crate) fn bytes_not_like<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    answer(args, Unit::Byte, false)
}

fn without_case<'a>(args: Args<'_, 'a>, wanted: bool) -> Answer<'a> {
    let lower = |text: &[u8]| {
        let lower = args.arena.alloc_slice_copy(text);
        lower.make_ascii_lowercase();
        &*lower
    };
    let matched = matches(
        lower(args.bytes(0)?),
        lower(args.bytes(1)?),
        Unit::Character,
    )?;
    Ok(Value::Bool(matched == wanted))
}

pub(crate) fn ilike<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    without_case(args, true)
}

pub(crate) fn not_ilike<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    without_case(args, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_as_postgresql_has_it() {
        let like = |text: &str, pattern: &str| {
            matches(text.as_bytes(), pattern.as_bytes(), Unit::Character)
        };
        for (text, pattern, expected) in [
            ("", "", true),
            ("", "%", true),
            ("", "_", false),
            ("abc", "abc", true),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "_b_", true),
            ("ä", "_", true),
            ("aäb", "a_b", true),
            ("abcabd", "%abd", true),
            ("abcabd", "%ab_d", false),
            ("a%b", "a\\%b", true),
            ("axb", "a\\%b", false),
            ("abc", "a%%_c", true),
            ("abc", "a%%__c", false),
            ("aXbXc", "%X%X%", true),
        ] {
            assert_eq!(like(text, pattern), Ok(expected), "{text} LIKE {pattern}");
        }
        assert_eq!(
            like("a", "a\\"),
            Ok(false),
            "the text ended before the escape"
        );
        assert_eq!(like("ab", "a\\"), Err(ends_early()));
        assert_eq!(like("ab", "%\\"), Err(ends_early()));
    }
}
