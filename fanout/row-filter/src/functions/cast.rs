//! Casts between numbers.

use std::io::Write;

use super::arithmetic::fit;
use super::{Answer, Args};
use crate::error::FilterError;
use crate::types::numeric::{Class, Numeric};
use crate::types::numeric_arithmetic;
use crate::value::Value;

pub(crate) fn to_int<'a, const BYTES: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    fit::<BYTES>(Some(args.int(0)?))
}

pub(crate) fn to_oid<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let value = args.int(0)?;
    match u32::try_from(value) {
        Ok(_) => Ok(Value::Int(value)),
        Err(_) => Err(FilterError::out_of_range("OID")),
    }
}

pub(crate) fn bool_to_int<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Int(args.bool(0)?.into()))
}

pub(crate) fn int_to_bool<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bool(args.int(0)? != 0))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the nearest float, as C converts"
)]
pub(crate) fn int_to_float8<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Float8(args.int(0)? as f64))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the nearest float, as C converts"
)]
pub(crate) fn int_to_float4<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Float4(args.int(0)? as f32))
}

/// Rounds half to even.
pub(crate) fn float_to_int<'a, const BYTES: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    let value = args.float(0)?.round_ties_even();
    // The highest 64-bit number is no float; the one above it is.
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
    #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
    let value = fits.then_some(value as i64);
    fit::<BYTES>(value)
}

pub(crate) fn widen_float<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Float8(args.float(0)?))
}

pub(crate) fn narrow_float<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let value = args.float8(0)?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "that is what this cast does"
    )]
    let narrow = value as f32;
    if narrow.is_infinite() && !value.is_infinite() {
        return Err(FilterError::overflow());
    }
    if narrow == 0.0 && value != 0.0 {
        return Err(FilterError::underflow());
    }
    Ok(Value::Float4(narrow))
}

pub(crate) fn int_to_numeric<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Numeric(Numeric::from_int(args.int(0)?, args.arena)))
}

pub(crate) fn numeric_to_int<'a, const BYTES: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    let number = args.numeric(0)?;
    let what = match number.class {
        Class::Finite => return fit::<BYTES>(numeric_arithmetic::to_int(&number, args.arena)),
        Class::NaN => "NaN",
        _ => "infinity",
    };
    let kind = match BYTES {
        2 => "smallint",
        4 => "integer",
        _ => "bigint",
    };
    Err(FilterError {
        sqlstate: "0A000".into(),
        message: format!("cannot convert {what} to {kind}").into(),
    })
}

/// By way of the number's text, which is how the nearest float is found.
fn parse<'a, T: std::str::FromStr>(
    number: &Numeric<'a>,
    args: &Args<'_, 'a>,
    kind: &str,
    lost: fn(&T) -> bool,
) -> Result<T, FilterError> {
    let mut text = bumpalo::collections::Vec::new_in(args.arena);
    number.print(&mut text);
    let text = std::str::from_utf8(text.into_bump_slice()).unwrap_or_default();
    let value: T = text.parse().map_err(|_| FilterError::internal())?;
    if number.is_finite() && lost(&value) {
        return Err(FilterError {
            sqlstate: "22003".into(),
            message: format!("\"{text}\" is out of range for type {kind}").into(),
        });
    }
    Ok(value)
}

pub(crate) fn numeric_to_float8<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let number = args.numeric(0)?;
    let lost = if number.is_zero() {
        |_: &f64| false
    } else {
        |value: &f64| value.is_infinite() || *value == 0.0
    };
    parse(&number, &args, "double precision", lost).map(Value::Float8)
}

pub(crate) fn numeric_to_float4<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let number = args.numeric(0)?;
    let lost = if number.is_zero() {
        |_: &f32| false
    } else {
        |value: &f32| value.is_infinite() || *value == 0.0
    };
    parse(&number, &args, "real", lost).map(Value::Float4)
}

/// C's `%.15g` (`%.6g` of a real), read as a numeric.
pub(crate) fn float_to_numeric<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let (value, digits) = match args.value(0)? {
        Value::Float4(value) => (f64::from(*value), 6),
        _ => (args.float8(0)?, 15),
    };
    if !value.is_finite() {
        return Ok(Value::Numeric(Numeric::special(if value.is_nan() {
            Class::NaN
        } else if value > 0.0 {
            Class::Infinity
        } else {
            Class::NegativeInfinity
        })));
    }
    let mut text = [0_u8; 32];
    let mut rest = text.as_mut_slice();
    let written = write!(rest, "{value:.*e}", digits - 1);
    let left = rest.len();
    let text = text.get(..32 - left).filter(|_| written.is_ok());
    let number = text.and_then(|text| from_scientific(text, &args));
    number.map(Value::Numeric).ok_or_else(FilterError::internal)
}

/// `-d.ddde-17`, without the zeros at the end of its digits.
fn from_scientific<'a>(text: &[u8], args: &Args<'_, 'a>) -> Option<Numeric<'a>> {
    let text = std::str::from_utf8(text).ok()?;
    let (mantissa, exponent) = text.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    let negative = mantissa.starts_with('-');
    let digits = mantissa.bytes().filter(u8::is_ascii_digit);
    let mut digits = bumpalo::collections::Vec::from_iter_in(digits, args.arena);
    while digits.len() > 1 && digits.last() == Some(&b'0') {
        digits.pop();
    }
    // Written out in full: at most 309 digits before the point or 343 behind it.
    let mut plain = bumpalo::collections::Vec::new_in(args.arena);
    if negative {
        plain.push(b'-');
    }
    if exponent < 0 {
        plain.extend_from_slice(b"0.");
        plain.extend((1..-exponent).map(|_| b'0'));
        plain.extend_from_slice(&digits);
    } else {
        let whole = usize::try_from(exponent).ok()? + 1;
        for place in 0..whole.max(digits.len()) {
            if place == whole {
                plain.push(b'.');
            }
            plain.push(digits.get(place).copied().unwrap_or(b'0'));
        }
    }
    Numeric::parse(plain.into_bump_slice(), args.arena)
}
