//! Values of fixed length.

use std::str::FromStr;

pub(super) fn bool(text: &[u8]) -> Option<u8> {
    match text {
        b"t" => Some(1),
        b"f" => Some(0),
        _ => None,
    }
}

/// `"char"`: a byte that is zero is an empty text; one beyond ASCII has a text that depends on the server's version.
pub(super) const fn char(text: &[u8]) -> Option<u8> {
    match text {
        [] => Some(0),
        [byte] if byte.is_ascii() => Some(*byte),
        _ => None,
    }
}

pub(super) fn number<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// `extra_float_digits` is 3, so the text is of exactly one number.
pub(super) fn float4(text: &[u8]) -> Option<f32> {
    match text {
        b"NaN" => Some(f32::NAN),
        b"Infinity" => Some(f32::INFINITY),
        b"-Infinity" => Some(f32::NEG_INFINITY),
        _ => number(text).filter(|number: &f32| number.is_finite()),
    }
}

pub(super) fn float8(text: &[u8]) -> Option<f64> {
    match text {
        b"NaN" => Some(f64::NAN),
        b"Infinity" => Some(f64::INFINITY),
        b"-Infinity" => Some(f64::NEG_INFINITY),
        _ => number(text).filter(|number: &f64| number.is_finite()),
    }
}

pub(super) fn lsn(text: &[u8]) -> Option<u64> {
    let lsn: pg_proto::Lsn = number(text)?;
    Some(lsn.0)
}

/// `bytea_output` is hex.
pub(super) fn bytea(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    hex(text.strip_prefix(b"\\x")?, out)
}

pub(super) fn uuid(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let hyphens = [8, 13, 18, 23];
    if text.len() != 36 || hyphens.iter().any(|at| text.get(*at) != Some(&b'-')) {
        return None;
    }
    for part in text.split(|byte| *byte == b'-') {
        hex(part, out)?;
    }
    Some(())
}

fn hex(digits: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (pairs, []) = digits.as_chunks() else {
        return None;
    };
    out.reserve(pairs.len());
    for [high, low] in pairs {
        out.push(digit(*high)? << 4 | digit(*low)?);
    }
    Some(())
}

const fn digit(hex: u8) -> Option<u8> {
    match hex {
        b'0'..=b'9' => Some(hex - b'0'),
        b'a'..=b'f' => Some(hex - b'a' + 10),
        _ => None,
    }
}
