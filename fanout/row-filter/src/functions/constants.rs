//! Functions that are computed here for some constants only: for others their results differ between versions, need
//! much memory, or are a matter of their own (regular expressions).

use super::{Function, parts, pattern, rounding};
use crate::value::OwnedValue;

/// Longest text that is made by filling up.
const LENGTH_MAX: i64 = 10_000;
/// Longest text that takes another's place.
const REPLACEMENT_MAX: usize = 1000;
/// Digits that all versions allow.
const DIGITS_MAX: i64 = 1000;

/// `lpad` and `rpad` without a filling, `date_part` of a date: functions in SQL.
const LPAD: u32 = 879;
const RPAD: u32 = 880;
const DATE_PART: u32 = 1384;

/// The arguments that must be constants, by their numbers.
pub(super) fn wanted(oid: u32, source: &str) -> &'static [usize] {
    match source {
        "timestamp_part" | "extract_timestamp" | "timestamp_trunc" | "extract_date"
        | "extract_time" | "time_part" | "extract_interval" | "interval_part" => &[0],
        "similar_to_escape_1" => &[0],
        "numeric_round" | "numeric_trunc" | "numeric" | "lpad" | "rpad" => &[1],
        "int2shl" | "int4shl" | "int8shl" | "int2shr" | "int4shr" | "int8shr" => &[1],
        "textregexeq" | "textregexne" => &[1],
        "replace_text" | "varchar" | "bpchar" => &[1, 2],
        _ if oid == DATE_PART => &[0],
        _ if matches!(oid, LPAD | RPAD) => &[1],
        _ => &[],
    }
}

/// The same of a function.
pub(crate) fn wanted_of(function: &Function) -> &'static [usize] {
    wanted(function.oid, function.source)
}

/// Whether a function is computed here for its constants, `None` for arguments that are none.
pub(crate) fn are_computed(function: &Function, args: &[Option<&OwnedValue>]) -> bool {
    let mut wanted = wanted_of(function).iter();
    wanted.all(|at| match args.get(*at) {
        Some(Some(value)) => is_computed(function.source, *at, value),
        _ => false,
    })
}

fn is_computed(source: &str, at: usize, value: &OwnedValue) -> bool {
    match (source, value) {
        (_, OwnedValue::Bool(_)) => true,
        ("textregexeq" | "textregexne", OwnedValue::Bytes(text)) => {
            pattern::as_like(text).is_some()
        }
        ("similar_to_escape_1", OwnedValue::Bytes(text)) => text
            .iter()
            .all(|byte| pattern::is_plain(*byte) || b"%_".contains(byte)),
        ("replace_text", OwnedValue::Bytes(text)) => at == 1 || text.len() <= REPLACEMENT_MAX,
        (_, OwnedValue::Bytes(field)) => parts::is_known(source, field),
        ("numeric_round" | "numeric_trunc", OwnedValue::Int(digits)) => {
            (0..=DIGITS_MAX).contains(digits)
        }
        ("numeric", OwnedValue::Int(modifier)) => {
            rounding::precision(*modifier).is_some_and(|(_, scale)| scale >= 0)
        }
        ("varchar" | "bpchar", OwnedValue::Int(modifier)) => {
            (4..=LENGTH_MAX + 4).contains(modifier)
        }
        ("int2shl" | "int2shr", OwnedValue::Int(places)) => (0..16).contains(places),
        ("int4shl" | "int4shr", OwnedValue::Int(places)) => (0..32).contains(places),
        ("int8shl" | "int8shr", OwnedValue::Int(places)) => (0..64).contains(places),
        (_, OwnedValue::Int(length)) => *length <= LENGTH_MAX,
        _ => false,
    }
}

/// Takes the place of a constant: a regular expression's is a pattern of LIKE.
pub(crate) fn replacement(
    function: &Function,
    at: usize,
    value: &OwnedValue,
) -> Option<OwnedValue> {
    match (function.source, at, value) {
        ("textregexeq" | "textregexne", 1, OwnedValue::Bytes(pattern)) => {
            let like = pattern::as_like(pattern)?;
            Some(OwnedValue::Bytes(like.into()))
        }
        _ => None,
    }
}
