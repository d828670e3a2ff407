//! Functions of jsonb, arrays and network addresses.

use super::{Answer, Args};
use crate::error::FilterError;
use crate::types::array::Array;
use crate::types::json::Json;
use crate::value::Value;

fn document<'a>(json: Option<&'a Json<'a>>) -> Answer<'a> {
    Ok(json.map_or(Value::Null, Value::Json))
}

/// As `->>` answers: null for null, a string without quotes, else what is printed.
fn text<'a>(json: Option<&'a Json<'a>>, args: &Args<'_, 'a>) -> Answer<'a> {
    Ok(match json {
        None | Some(Json::Null) => Value::Null,
        Some(Json::String(text)) => Value::Bytes(text),
        Some(other) => {
            let mut text = bumpalo::collections::Vec::new_in(args.arena);
            other.print(&mut text);
            Value::Bytes(text.into_bump_slice())
        }
    })
}

pub(crate) fn field<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    document(args.json(0)?.field(args.bytes(1)?))
}

pub(crate) fn field_text<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    text(args.json(0)?.field(args.bytes(1)?), &args)
}

/// An element of an array. A document that is a scalar is stored as an array of one, and answers as such.
fn item<'a>(args: &Args<'_, 'a>) -> Result<Option<&'a Json<'a>>, FilterError> {
    let (json, index) = (args.json(0)?, args.int(1)?);
    Ok(match json {
        Json::Array(_) => json.element(index),
        Json::Object(_) => None,
        scalar => (index == 0 || index == -1).then_some(scalar),
    })
}

pub(crate) fn element<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    document(item(&args)?)
}

pub(crate) fn element_text<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    text(item(&args)?, &args)
}

/// What C's `strtol` takes whole: blanks, a sign, digits, within 32 bits.
fn index(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    text.parse::<i32>().ok().map(i64::from)
}

fn follow<'a>(args: &Args<'_, 'a>) -> Result<Option<&'a Json<'a>>, FilterError> {
    let mut at = args.json(0)?;
    let path = args.array(1)?;
    if path.elements.iter().any(Value::is_null) {
        return Ok(None);
    }
    for step in path.elements {
        let Value::Bytes(step) = step else {
            return Err(FilterError::internal());
        };
        let next = match at {
            Json::Object(_) => at.field(step),
            Json::Array(_) => index(step).and_then(|index| at.element(index)),
            _ => None,
        };
        match next {
            Some(next) => at = next,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

pub(crate) fn path<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    document(follow(&args)?)
}

pub(crate) fn path_text<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    text(follow(&args)?, &args)
}

pub(crate) fn contains<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bool(args.json(0)?.contains(args.json(1)?)))
}

pub(crate) fn contained<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bool(args.json(1)?.contains(args.json(0)?)))
}

pub(crate) fn exists<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bool(args.json(0)?.has_key(args.bytes(1)?)))
}

fn keys<'a>(args: &Args<'_, 'a>) -> Result<impl Iterator<Item = &'a [u8]> + use<'a>, FilterError> {
    let keys = args.array(1)?.elements.iter();
    Ok(keys.filter_map(|key| match key {
        Value::Bytes(key) => Some(*key),
        _ => None,
    }))
}

pub(crate) fn exists_any<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let json = args.json(0)?;
    Ok(Value::Bool(keys(&args)?.any(|key| json.has_key(key))))
}

pub(crate) fn exists_all<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let json = args.json(0)?;
    Ok(Value::Bool(keys(&args)?.all(|key| json.has_key(key))))
}

pub(crate) fn type_name<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bytes(args.json(0)?.type_name().as_bytes()))
}

pub(crate) fn json_length<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let message = match args.json(0)? {
        Json::Array(elements) => {
            return Ok(Value::Int(
                i64::try_from(elements.len()).unwrap_or(i64::MAX),
            ));
        }
        Json::Object(_) => "cannot get array length of a non-array",
        _ => "cannot get array length of a scalar",
    };
    Err(FilterError::new("22023", message))
}

pub(crate) fn array_contains<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let contains = args.array(0)?.contains(&args.array(1)?, args.element);
    Ok(Value::Bool(contains))
}

pub(crate) fn array_contained<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let contains = args.array(1)?.contains(&args.array(0)?, args.element);
    Ok(Value::Bool(contains))
}

pub(crate) fn array_overlap<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let overlaps = args.array(0)?.overlaps(&args.array(1)?, args.element);
    Ok(Value::Bool(overlaps))
}

fn dimension<'a>(args: &Args<'_, 'a>, answer: fn(&(i32, i32)) -> i64) -> Answer<'a> {
    let Array { dimensions, .. } = args.array(0)?;
    let index = args
        .int(1)?
        .checked_sub(1)
        .and_then(|index| usize::try_from(index).ok());
    let found = index.and_then(|index| dimensions.get(index));
    Ok(found.map_or(Value::Null, |found| Value::Int(answer(found))))
}

pub(crate) fn array_length<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    dimension(&args, |(length, _)| i64::from(*length))
}

pub(crate) fn array_lower<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    dimension(&args, |(_, lower)| i64::from(*lower))
}

pub(crate) fn array_upper<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    dimension(&args, |(length, lower)| {
        i64::from(*lower) + i64::from(*length) - 1
    })
}

pub(crate) fn array_dimensions<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let count = args.array(0)?.dimensions.len();
    Ok(if count == 0 {
        Value::Null
    } else {
        Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
    })
}

pub(crate) fn array_cardinality<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let count = args.array(0)?.elements.len();
    Ok(Value::Int(i64::try_from(count).unwrap_or(i64::MAX)))
}

pub(crate) fn network_within<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bool(args.inet(0)?.is_within(&args.inet(1)?, true)))
}

pub(crate) fn network_within_or_equal<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bool(args.inet(0)?.is_within(&args.inet(1)?, false)))
}

pub(crate) fn network_around<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bool(args.inet(1)?.is_within(&args.inet(0)?, true)))
}

pub(crate) fn network_around_or_equal<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bool(args.inet(1)?.is_within(&args.inet(0)?, false)))
}

pub(crate) fn network_overlap<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bool(args.inet(0)?.overlaps(&args.inet(1)?)))
}

pub(crate) fn network_bits<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Int(args.inet(0)?.bits.into()))
}

pub(crate) fn network_family<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Int(if args.inet(0)?.v6 { 6 } else { 4 }))
}
