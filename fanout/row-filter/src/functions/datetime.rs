//! Functions of dates and timestamps that depend on no time zone.

use super::{Answer, Args};
use crate::error::FilterError;
use crate::types::calendar::{
    DATE_END, DATE_INFINITY, DATE_MIN, DATE_MINUS_INFINITY, DAY, TIMESTAMP_END, TIMESTAMP_MIN,
    civil_from_days, days_from_civil, is_infinite, month_length,
};
use crate::types::interval::Interval;
use crate::value::Value;

const fn is_finite_date(date: i64) -> bool {
    date != DATE_INFINITY && date != DATE_MINUS_INFINITY
}

pub(super) const fn timestamp_out_of_range() -> FilterError {
    FilterError::new("22008", "timestamp out of range")
}

pub(super) fn valid_timestamp(micros: Option<i64>) -> Result<i64, FilterError> {
    micros
        .filter(|micros| (TIMESTAMP_MIN..TIMESTAMP_END).contains(micros))
        .ok_or_else(timestamp_out_of_range)
}

pub(crate) fn date_minus_date<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let (left, right) = (args.int(0)?, args.int(1)?);
    if !is_finite_date(left) || !is_finite_date(right) {
        return Err(FilterError::new("22008", "cannot subtract infinite dates"));
    }
    Ok(Value::Int(left - right))
}

fn moved<'a>(date: i64, days: i64) -> Answer<'a> {
    if !is_finite_date(date) {
        return Ok(Value::Int(date));
    }
    let moved = date + days;
    if !(DATE_MIN..DATE_END).contains(&moved) {
        return Err(FilterError::new("22008", "date out of range"));
    }
    Ok(Value::Int(moved))
}

pub(crate) fn date_plus_int<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    moved(args.int(0)?, args.int(1)?)
}

pub(crate) fn date_minus_int<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    moved(args.int(0)?, -args.int(1)?)
}

pub(super) fn midnight(date: i64) -> Result<i64, FilterError> {
    match date {
        DATE_INFINITY => Ok(i64::MAX),
        DATE_MINUS_INFINITY => Ok(i64::MIN),
        date => date
            .checked_mul(DAY)
            .filter(|micros| *micros < TIMESTAMP_END)
            .ok_or(FilterError::new("22008", "date out of range for timestamp")),
    }
}

pub(crate) fn date_to_timestamp<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    midnight(args.int(0)?).map(Value::Int)
}

pub(crate) fn timestamp_to_date<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Int(match args.int(0)? {
        i64::MAX => DATE_INFINITY,
        i64::MIN => DATE_MINUS_INFINITY,
        micros => micros.div_euclid(DAY),
    }))
}

pub(crate) fn timestamp_to_time<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let micros = args.int(0)?;
    Ok(if is_infinite(micros) {
        Value::Null
    } else {
        Value::Int(micros.rem_euclid(DAY))
    })
}

pub(crate) fn date_is_finite<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bool(is_finite_date(args.int(0)?)))
}

pub(crate) fn timestamp_is_finite<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    Ok(Value::Bool(!is_infinite(args.int(0)?)))
}

/// Months first, to the month's last day if it is shorter, then days, then the rest.
fn plus(timestamp: i64, span: Interval) -> Result<i64, FilterError> {
    if span == Interval::INFINITY || span == Interval::MINUS_INFINITY {
        let up = span == Interval::INFINITY;
        let against = if up { i64::MIN } else { i64::MAX };
        return if timestamp == against {
            Err(timestamp_out_of_range())
        } else {
            Ok(if up { i64::MAX } else { i64::MIN })
        };
    }
    if is_infinite(timestamp) {
        return Ok(timestamp);
    }
    let mut result = timestamp;
    if span.months != 0 {
        let clock = result.rem_euclid(DAY);
        let (year, month, day) = civil_from_days(result.div_euclid(DAY));
        let months = year * 12 + (month - 1) + i64::from(span.months);
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
        let day = day.min(month_length(year, month));
        let days = days_from_civil(year, month, day);
        let moved = days
            .checked_mul(DAY)
            .and_then(|days| days.checked_add(clock));
        result = valid_timestamp(moved)?;
    }
    if span.days != 0 {
        let days = i64::from(span.days).checked_mul(DAY);
        result = valid_timestamp(days.and_then(|days| result.checked_add(days)))?;
    }
    valid_timestamp(result.checked_add(span.micros))
}

fn negated(span: Interval) -> Result<Interval, FilterError> {
    if span == Interval::INFINITY {
        return Ok(Interval::MINUS_INFINITY);
    }
    if span == Interval::MINUS_INFINITY {
        return Ok(Interval::INFINITY);
    }
    let negated = || {
        Some(Interval {
            months: span.months.checked_neg()?,
            days: span.days.checked_neg()?,
            micros: span.micros.checked_neg()?,
        })
    };
    negated().ok_or(FilterError::new("22008", "interval out of range"))
}

pub(crate) fn timestamp_plus<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    plus(args.int(0)?, args.interval(1)?).map(Value::Int)
}

pub(crate) fn timestamp_minus<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    plus(args.int(0)?, negated(args.interval(1)?)?).map(Value::Int)
}

pub(crate) fn date_plus<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    plus(midnight(args.int(0)?)?, args.interval(1)?).map(Value::Int)
}

pub(crate) fn date_minus<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    plus(midnight(args.int(0)?)?, negated(args.interval(1)?)?).map(Value::Int)
}
