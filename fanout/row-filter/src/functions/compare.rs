//! Equality and order.

use std::cmp::Ordering;

use super::{Answer, Args};
use crate::error::FilterError;
use crate::kind::Base;
use crate::types::calendar::{DATE_INFINITY, DATE_MINUS_INFINITY, DAY};
use crate::types::numeric;
use crate::value::Value;

pub(crate) const EQ: u8 = 0;
pub(crate) const NE: u8 = 1;
pub(crate) const LT: u8 = 2;
pub(crate) const LE: u8 = 3;
pub(crate) const GT: u8 = 4;
pub(crate) const GE: u8 = 5;

const fn answer<'a, const OPERATOR: u8>(order: Ordering) -> Value<'a> {
    Value::Bool(match OPERATOR {
        EQ => order.is_eq(),
        NE => order.is_ne(),
        LT => order.is_lt(),
        LE => order.is_le(),
        GT => order.is_gt(),
        _ => order.is_ge(),
    })
}

/// Order of floats: NaN equals NaN and is above all, both zeros are equal.
fn floats(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right)
        .unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
}

/// Order of two values of one kind, or of kinds that compare with each other as they are.
pub(crate) fn order(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    Some(match (left, right) {
        (Value::Int(left), Value::Int(right)) => left.cmp(right),
        (Value::Bytes(left), Value::Bytes(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Float8(left), Value::Float8(right)) => floats(*left, *right),
        (Value::Float4(left), Value::Float4(right)) => floats((*left).into(), (*right).into()),
        (Value::Float4(left), Value::Float8(right)) => floats((*left).into(), *right),
        (Value::Float8(left), Value::Float4(right)) => floats(*left, (*right).into()),
        (Value::Numeric(left), Value::Numeric(right)) => numeric::compare(left, right),
        (Value::Interval(left), Value::Interval(right)) => left.compare(*right),
        (Value::TimeTz(left), Value::TimeTz(right)) => left.compare(*right),
        (Value::Inet(left), Value::Inet(right)) => left.compare(right),
        _ => return None,
    })
}

/// Order of two values that have the same base. Text is in the order of its bytes.
pub(crate) fn order_of(base: Base, left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (base, left, right) {
        (Base::Bpchar, Value::Bytes(left), Value::Bytes(right)) => {
            Some(unpadded(left).cmp(unpadded(right)))
        }
        _ => order(left, right),
    }
}

/// Whether two values that have the same base are equal by the type's default operator.
pub(crate) fn equal(base: Base, left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (Value::Json(left), Value::Json(right)) => left.equals(right),
        _ => order_of(base, left, right).is_some_and(Ordering::is_eq),
    }
}

/// A `character(n)` without the blanks at its end.
pub(crate) fn unpadded(text: &[u8]) -> &[u8] {
    let blanks = text.iter().rev().take_while(|byte| **byte == b' ').count();
    text.get(..text.len() - blanks).unwrap_or_default()
}

pub(crate) fn compare<'a, const OPERATOR: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    order(args.value(0)?, args.value(1)?)
        .map(answer::<OPERATOR>)
        .ok_or_else(FilterError::internal)
}

/// An xid with an int4, whose bits count as an xid: -1 is 4294967295.
pub(crate) fn compare_xid_int<'a, const OPERATOR: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    let right = args.int(1)? & i64::from(u32::MAX);
    Ok(answer::<OPERATOR>(args.int(0)?.cmp(&right)))
}

pub(crate) fn compare_padded<'a, const OPERATOR: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    let order = unpadded(args.bytes(0)?).cmp(unpadded(args.bytes(1)?));
    Ok(answer::<OPERATOR>(order))
}

/// A date may be later than the last timestamp, and is still before infinity.
fn date_order(date: i64, timestamp: i64) -> Ordering {
    let widest = i128::MAX / 2;
    let date = match date {
        DATE_INFINITY => widest,
        DATE_MINUS_INFINITY => -widest,
        days => i128::from(days) * i128::from(DAY),
    };
    let timestamp = match timestamp {
        i64::MAX => widest,
        i64::MIN => -widest,
        micros => i128::from(micros),
    };
    date.cmp(&timestamp)
}

pub(crate) fn date_timestamp<'a, const OPERATOR: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(answer::<OPERATOR>(date_order(args.int(0)?, args.int(1)?)))
}

pub(crate) fn timestamp_date<'a, const OPERATOR: u8>(args: Args<'_, 'a>) -> Answer<'a> {
    let order = date_order(args.int(1)?, args.int(0)?).reverse();
    Ok(answer::<OPERATOR>(order))
}

pub(crate) fn json_eq<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bool(args.json(0)?.equals(args.json(1)?)))
}

pub(crate) fn json_ne<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bool(!args.json(0)?.equals(args.json(1)?)))
}

pub(crate) fn array_eq<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let same = args.array(0)?.equals(&args.array(1)?, args.element);
    Ok(Value::Bool(same))
}

pub(crate) fn array_ne<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let same = args.array(0)?.equals(&args.array(1)?, args.element);
    Ok(Value::Bool(!same))
}
