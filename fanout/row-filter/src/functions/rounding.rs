//! Numerics to so many digits.

use super::{Answer, Args};
use crate::error::FilterError;
use crate::types::numeric::{Class, Numeric};
use crate::types::numeric_arithmetic::{round, truncate};
use crate::value::Value;

/// Digits that are asked for; none of those functions that have one argument.
fn digits(args: &Args<'_, '_>) -> Result<i32, FilterError> {
    if args.values.len() == 1 {
        return Ok(0);
    }
    i32::try_from(args.int(1)?).map_err(|_| FilterError::internal())
}

pub(crate) fn numeric_round<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let number = args.numeric(0)?;
    Ok(Value::Numeric(if number.is_finite() {
        round(&number, digits(&args)?, args.arena)
    } else {
        number
    }))
}

pub(crate) fn numeric_truncate<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let number = args.numeric(0)?;
    Ok(Value::Numeric(if number.is_finite() {
        truncate(&number, digits(&args)?, args.arena)
    } else {
        number
    }))
}

/// Precision and scale of a modifier of `numeric`.
pub(super) const fn precision(modifier: i64) -> Option<(i64, i64)> {
    let bits = modifier - 4;
    if bits < 0 {
        return None;
    }
    Some((bits >> 16 & 0xFFFF, ((bits & 0x7FF) ^ 1024) - 1024))
}

/// `numeric(precision, scale)`.
pub(crate) fn numeric_fit<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let number = args.numeric(0)?;
    let overflow = || FilterError::new("22003", "numeric field overflow");
    let Some((precision, scale)) = precision(args.int(1)?) else {
        return Err(FilterError::internal());
    };
    match number.class {
        Class::Finite => {}
        Class::NaN => return Ok(Value::Numeric(number)),
        _ => return Err(overflow()),
    }
    let scale_asked = i32::try_from(scale).map_err(|_| FilterError::internal())?;
    let rounded = round(&number, scale_asked, args.arena);
    if digits_before_point(&rounded) > precision - scale {
        return Err(overflow());
    }
    Ok(Value::Numeric(rounded))
}

/// Decimal digits before the point; below zero if the first one stands behind it.
fn digits_before_point(number: &Numeric<'_>) -> i64 {
    let Some(first) = number.digits.first() else {
        return i64::MIN;
    };
    let decimals = match first {
        1000.. => 4,
        100.. => 3,
        10.. => 2,
        _ => 1,
    };
    i64::from(number.weight) * 4 + decimals
}
