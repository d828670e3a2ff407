//! Arithmetic of integers, floats and numerics.

use super::{Answer, Args};
use crate::error::FilterError;
use crate::types::numeric_arithmetic as exact;
use crate::value::Value;

/// A whole number in the range of a type of so many bytes.
pub(crate) fn fit<'a, const BYTES: u8>(value: Option<i64>) -> Answer<'a> {
    let kind = match BYTES {
        2 => "smallint",
        4 => "integer",
        _ => "bigint",
    };
    let value = value.filter(|value| match BYTES {
        2 => i16::try_from(*value).is_ok(),
        4 => i32::try_from(*value).is_ok(),
        _ => true,
    });
    value
        .map(Value::Int)
        .ok_or_else(|| FilterError::out_of_range(kind))
}

pub(crate) fn add<'a, const BYTES: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    fit::<BYTES>(args.int(0)?.checked_add(args.int(1)?))
}

pub(crate) fn subtract<'a, const BYTES: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    fit::<BYTES>(args.int(0)?.checked_sub(args.int(1)?))
}

pub(crate) fn multiply<'a, const BYTES: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    fit::<BYTES>(args.int(0)?.checked_mul(args.int(1)?))
}

pub(crate) fn divide<'a, const BYTES: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    match (args.int(0)?, args.int(1)?) {
        (_, 0) => Err(FilterError::division_by_zero()),
        (left, right) => fit::<BYTES>(left.checked_div(right)),
    }
}

pub(crate) fn remainder<'a, const BYTES: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    match (args.int(0)?, args.int(1)?) {
        (_, 0) => Err(FilterError::division_by_zero()),
        (left, right) => fit::<BYTES>(Some(left.wrapping_rem(right))),
    }
}

pub(crate) fn negate<'a, const BYTES: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    fit::<BYTES>(args.int(0)?.checked_neg())
}

pub(crate) fn absolute<'a, const BYTES: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    fit::<BYTES>(args.int(0)?.checked_abs())
}

pub(crate) fn same<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    args.value(0).copied()
}

#[derive(Clone, Copy)]
enum Sum {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// The rules of `float.h`: overflow and underflow are errors unless they were in the arguments already.
fn float<'a>(args: Args<'_, 'a>, sum: Sum) -> Answer<'a> {
    if let (Value::Float4(left), Value::Float4(right)) = (args.value(0)?, args.value(1)?) {
        let result = match sum {
            Sum::Add => left + right,
            Sum::Subtract => left - right,
            Sum::Multiply => left * right,
            Sum::Divide => left / right,
        };
        let checked = [*left, *right, result].map(f64::from);
        return check_float(checked, sum).map(|()| Value::Float4(result));
    }
    let (left, right) = (args.float(0)?, args.float(1)?);
    let result = match sum {
        Sum::Add => left + right,
        Sum::Subtract => left - right,
        Sum::Multiply => left * right,
        Sum::Divide => left / right,
    };
    check_float([left, right, result], sum).map(|()| Value::Float8(result))
}

fn check_float([left, right, result]: [f64; 3], sum: Sum) -> Result<(), FilterError> {
    let divides = matches!(sum, Sum::Divide);
    if divides && right == 0.0 && !left.is_nan() {
        return Err(FilterError::division_by_zero());
    }
    let given = left.is_infinite() || (right.is_infinite() && !divides);
    if result.is_infinite() && !given {
        return Err(FilterError::overflow());
    }
    let vanished = match sum {
        Sum::Multiply => left != 0.0 && right != 0.0,
        Sum::Divide => left != 0.0 && !right.is_infinite(),
        _ => false,
    };
    if result == 0.0 && vanished {
        return Err(FilterError::underflow());
    }
    Ok(())
}

pub(crate) fn float_add<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    float(args, Sum::Add)
}

pub(crate) fn float_subtract<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    float(args, Sum::Subtract)
}

pub(crate) fn float_multiply<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    float(args, Sum::Multiply)
}

pub(crate) fn float_divide<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    float(args, Sum::Divide)
}

/// A function of one float that keeps its width.
fn float_map<'a>(args: Args<'_, 'a>, map: fn(f64) -> f64) -> Answer<'a> {
    Ok(match args.value(0)? {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the functions used answer a value of the same width"
        )]
        Value::Float4(value) => Value::Float4(map(f64::from(*value)) as f32),
        _ => Value::Float8(map(args.float8(0)?)),
    })
}

pub(crate) fn float_negate<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    float_map(args, |value| -value)
}

pub(crate) fn float_absolute<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    float_map(args, f64::abs)
}

pub(crate) fn float_round<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    float_map(args, f64::round_ties_even)
}

pub(crate) fn float_truncate<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    float_map(args, f64::trunc)
}

pub(crate) fn float_ceiling<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    float_map(args, f64::ceil)
}

pub(crate) fn float_floor<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    float_map(args, f64::floor)
}

/// -1, 0 or 1; NaN has the sign 0.
pub(crate) fn float_sign<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    float_map(args, |value| {
        f64::from(i8::from(value > 0.0) - i8::from(value < 0.0))
    })
}

pub(crate) fn float_square_root<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let value = args.float8(0)?;
    if value < 0.0 {
        let message = "cannot take square root of a negative number";
        return Err(FilterError::new("2201F", message));
    }
    Ok(Value::Float8(value.sqrt()))
}

macro_rules! numeric {
    ($($name:ident = $code:path;)*) => {$(
        pub(crate) fn $name<'a>(args: Args<'_, 'a>) -> Answer<'a> {
            $code(&args.numeric(0)?, &args.numeric(1)?, args.arena).map(Value::Numeric)
        }
    )*};
}

numeric! {
    numeric_add = exact::add;
    numeric_subtract = exact::subtract;
    numeric_multiply = exact::multiply;
    numeric_divide = exact::divide;
    numeric_divide_whole = exact::divide_whole;
    numeric_remainder = exact::remainder;
}

pub(crate) fn numeric_negate<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Numeric(args.numeric(0)?.negated()))
}

pub(crate) fn numeric_absolute<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let number = args.numeric(0)?;
    let below = number.signum() < 0;
    Ok(Value::Numeric(if below {
        number.negated()
    } else {
        number
    }))
}

pub(crate) fn numeric_sign<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let number = args.numeric(0)?;
    let is_nan = number.class == crate::types::numeric::Class::NaN;
    Ok(Value::Numeric(if is_nan {
        number
    } else {
        crate::types::numeric::Numeric::from_int(number.signum().into(), args.arena)
    }))
}

pub(crate) fn numeric_ceiling<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let whole = exact::whole(&args.numeric(0)?, true, args.arena);
    Ok(Value::Numeric(whole))
}

pub(crate) fn numeric_floor<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let whole = exact::whole(&args.numeric(0)?, false, args.arena);
    Ok(Value::Numeric(whole))
}

pub(crate) fn numeric_scale<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let number = args.numeric(0)?;
    Ok(if number.is_finite() {
        Value::Int(number.scale.into())
    } else {
        Value::Null
    })
}
