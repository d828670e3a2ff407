//! Fields of dates, times and intervals: `extract`, `date_part`, `date_trunc`.
//!
//! The field's name is a constant that the compiler has looked at. Those whose meaning differs between versions are not
//! computed here.

use bumpalo::Bump;

use super::datetime::{midnight, timestamp_out_of_range, valid_timestamp};
use super::{Answer, Args};
use crate::error::FilterError;
use crate::types::calendar::{
    DATE_INFINITY, DATE_MINUS_INFINITY, DAY, civil_from_days, days_from_civil, is_infinite,
};
use crate::types::interval::Interval;
use crate::types::numeric::{Class, Numeric};
use crate::types::numeric_arithmetic::{divide, round};
use crate::value::Value;

/// 1970-01-01 as a timestamp.
const UNIX_EPOCH: i64 = -946_684_800_000_000;
const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const SECONDS_PER_DAY: i64 = 86_400;

const CLOCK_FIELDS: [&str; 5] = ["hour", "minute", "second", "milliseconds", "microseconds"];
const DAY_FIELDS: [&str; 12] = [
    "year",
    "month",
    "day",
    "quarter",
    "week",
    "dow",
    "isodow",
    "doy",
    "isoyear",
    "decade",
    "century",
    "millennium",
];
const INTERVAL_FIELDS: [&str; 3] = ["year", "month", "day"];
const TRUNCATED_TO: [&str; 12] = [
    "microseconds",
    "milliseconds",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
    "decade",
    "century",
];

/// Whether a field is computed here for a function (`pg_proc.prosrc`).
pub(super) fn is_known(source: &str, field: &[u8]) -> bool {
    let among = |fields: &[&str]| fields.iter().any(|one| one.as_bytes() == field);
    let epoch = field == b"epoch";
    match source {
        "timestamp_trunc" => among(&TRUNCATED_TO) || field == b"millennium",
        "extract_date" => epoch || among(&DAY_FIELDS),
        "extract_time" | "time_part" => epoch || among(&CLOCK_FIELDS),
        "extract_interval" | "interval_part" => {
            epoch || among(&CLOCK_FIELDS) || among(&INTERVAL_FIELDS)
        }
        _ => epoch || among(&CLOCK_FIELDS) || among(&DAY_FIELDS),
    }
}

/// What a field holds.
enum Field {
    Nothing,
    Infinite {
        positive: bool,
    },
    Whole(i64),
    Second {
        second: i64,
        micros: i64,
    },
    Millisecond {
        second: i64,
        micros: i64,
    },
    /// Microseconds, and the same in seconds as C computes it.
    Epoch {
        micros: i128,
        seconds: f64,
    },
    /// The same of a timestamp for which 64 bits are too few: `extract` divides, and rounds what a quotient has.
    FarEpoch {
        micros: i128,
        seconds: f64,
    },
}

impl Field {
    /// What `extract` answers.
    fn numeric<'a>(self, arena: &'a Bump) -> Answer<'a> {
        let number = match self {
            Self::Nothing => return Ok(Value::Null),
            Self::Infinite { positive: true } => Numeric::special(Class::Infinity),
            Self::Infinite { positive: false } => Numeric::special(Class::NegativeInfinity),
            Self::Whole(value) => Numeric::from_int(value, arena),
            Self::Second { second, micros } => scaled((second * SECOND + micros).into(), 6, arena)?,
            Self::Millisecond { second, micros } => {
                scaled((second * SECOND + micros).into(), 3, arena)?
            }
            Self::Epoch { micros, .. } => scaled(micros, 6, arena)?,
            Self::FarEpoch { micros, .. } => {
                let micros = scaled(micros, 0, arena)?;
                let quotient = divide(&micros, &Numeric::from_int(SECOND, arena), arena)?;
                round(&quotient, 6, arena)
            }
        };
        Ok(Value::Numeric(number))
    }

    /// What `date_part` answers.
    #[expect(clippy::cast_precision_loss, reason = "as C converts")]
    fn float<'a>(self) -> Value<'a> {
        Value::Float8(match self {
            Self::Nothing => return Value::Null,
            Self::Infinite { positive: true } => f64::INFINITY,
            Self::Infinite { positive: false } => f64::NEG_INFINITY,
            Self::Whole(value) => value as f64,
            Self::Second { second, micros } => second as f64 + micros as f64 / 1_000_000.0,
            Self::Millisecond { second, micros } => second as f64 * 1000.0 + micros as f64 / 1000.0,
            Self::Epoch { seconds, .. } | Self::FarEpoch { seconds, .. } => seconds,
        })
    }
}

/// A whole number with its point moved to the left.
fn scaled(value: i128, decimals: usize, arena: &Bump) -> Result<Numeric<'_>, FilterError> {
    let (sign, left) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    let unit = (0..decimals).fold(1_u128, |unit, _| unit * 10);
    let (whole, rest) = (left / unit, left % unit);
    let text = if decimals == 0 {
        bumpalo::format!(in arena, "{}{}", sign, whole)
    } else {
        bumpalo::format!(in arena, "{}{}.{:0>3$}", sign, whole, rest, decimals)
    };
    let text = text.into_bump_str();
    Numeric::parse(text.as_bytes(), arena).ok_or_else(FilterError::internal)
}

/// A field of a clock, if it is one.
const fn of_clock(field: &[u8], clock: i64) -> Option<Field> {
    let (second, micros) = (clock % MINUTE / SECOND, clock % SECOND);
    Some(match field {
        b"hour" => Field::Whole(clock / HOUR),
        b"minute" => Field::Whole(clock % HOUR / MINUTE),
        b"second" => Field::Second { second, micros },
        b"milliseconds" => Field::Millisecond { second, micros },
        b"microseconds" => Field::Whole(second * SECOND + micros),
        _ => return None,
    })
}

/// Monday is 1.
const fn iso_day(days: i64) -> i64 {
    (days + 5).rem_euclid(7) + 1
}

/// There is no year 0.
const fn shown(year: i64) -> i64 {
    if year > 0 { year } else { year - 1 }
}

/// A field of a day.
fn of_day(field: &[u8], days: i64) -> Result<Field, FilterError> {
    let (year, month, day) = civil_from_days(days);
    // Of a week's Thursday it is known which year the week belongs to.
    let thursday = days - iso_day(days) + 4;
    let (week_year, ..) = civil_from_days(thursday);
    Ok(Field::Whole(match field {
        b"year" => shown(year),
        b"month" => month,
        b"day" => day,
        b"quarter" => (month - 1) / 3 + 1,
        b"week" => (thursday - days_from_civil(week_year, 1, 1)) / 7 + 1,
        b"dow" => iso_day(days) % 7,
        b"isodow" => iso_day(days),
        b"doy" => days - days_from_civil(year, 1, 1) + 1,
        b"isoyear" => shown(week_year),
        b"decade" if year >= 0 => year / 10,
        b"decade" => -((8 - (year - 1)) / 10),
        b"century" if year > 0 => (year + 99) / 100,
        b"century" => -((99 - (year - 1)) / 100),
        b"millennium" if year > 0 => (year + 999) / 1000,
        b"millennium" => -((999 - (year - 1)) / 1000),
        _ => return Err(FilterError::internal()),
    }))
}

/// Of the infinities, fields that only grow are infinite, and the others are null.
fn of_infinity(field: &[u8], positive: bool) -> Field {
    match field {
        b"year" | b"isoyear" | b"decade" | b"century" | b"millennium" | b"epoch" => {
            Field::Infinite { positive }
        }
        _ => Field::Nothing,
    }
}

#[expect(clippy::cast_precision_loss, reason = "as C converts")]
fn of_timestamp(field: &[u8], timestamp: i64) -> Result<Field, FilterError> {
    if is_infinite(timestamp) {
        return Ok(of_infinity(field, timestamp > 0));
    }
    if field == b"epoch" {
        let near = timestamp.checked_sub(UNIX_EPOCH);
        return Ok(match near.filter(|micros| *micros < i64::MAX) {
            Some(micros) => Field::Epoch {
                micros: micros.into(),
                seconds: micros as f64 / 1_000_000.0,
            },
            None => Field::FarEpoch {
                micros: i128::from(timestamp) - i128::from(UNIX_EPOCH),
                seconds: (timestamp as f64 - UNIX_EPOCH as f64) / 1_000_000.0,
            },
        });
    }
    match of_clock(field, timestamp.rem_euclid(DAY)) {
        Some(found) => Ok(found),
        None => of_day(field, timestamp.div_euclid(DAY)),
    }
}

fn of_date(field: &[u8], date: i64) -> Result<Field, FilterError> {
    if matches!(date, DATE_INFINITY | DATE_MINUS_INFINITY) {
        return Ok(of_infinity(field, date > 0));
    }
    if field == b"epoch" {
        let unix = -UNIX_EPOCH / SECOND;
        return Ok(Field::Whole(date * SECONDS_PER_DAY + unix));
    }
    of_day(field, date)
}

#[expect(clippy::cast_precision_loss, reason = "as C converts")]
fn of_time(field: &[u8], time: i64) -> Result<Field, FilterError> {
    if field == b"epoch" {
        return Ok(Field::Epoch {
            micros: time.into(),
            seconds: time as f64 / 1_000_000.0,
        });
    }
    of_clock(field, time).ok_or_else(FilterError::internal)
}

fn of_interval(field: &[u8], span: Interval) -> Result<Field, FilterError> {
    if matches!(span, Interval::INFINITY | Interval::MINUS_INFINITY) {
        let positive = span == Interval::INFINITY;
        return Ok(match field {
            b"hour" | b"day" => Field::Infinite { positive },
            field => of_infinity(field, positive),
        });
    }
    let (months, days) = (i64::from(span.months), i64::from(span.days));
    if field == b"epoch" {
        return Ok(interval_epoch(months, days, span.micros));
    }
    if let Some(found) = of_clock(field, span.micros) {
        return Ok(found);
    }
    Ok(Field::Whole(match field {
        b"year" => months / 12,
        b"month" => months % 12,
        b"day" => days,
        _ => return Err(FilterError::internal()),
    }))
}

/// Years of 365.25 days, months of 30.
#[expect(clippy::cast_precision_loss, reason = "as C converts")]
fn interval_epoch(months: i64, days: i64, micros: i64) -> Field {
    let quarters_of_days = 1461 * (months / 12) + 120 * (months % 12) + 4 * days;
    let seconds = i128::from(quarters_of_days) * i128::from(SECONDS_PER_DAY / 4);
    let mut float = micros as f64 / 1_000_000.0;
    float += 365.25 * 86_400.0 * (months / 12) as f64;
    float += 30.0 * 86_400.0 * (months % 12) as f64;
    float += 86_400.0 * days as f64;
    Field::Epoch {
        micros: seconds * i128::from(SECOND) + i128::from(micros),
        seconds: float,
    }
}

pub(crate) fn extract_timestamp<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    of_timestamp(args.bytes(0)?, args.int(1)?)?.numeric(args.arena)
}

pub(crate) fn timestamp_part<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    of_timestamp(args.bytes(0)?, args.int(1)?).map(Field::float)
}

pub(crate) fn extract_date<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    of_date(args.bytes(0)?, args.int(1)?)?.numeric(args.arena)
}

/// By way of a timestamp.
pub(crate) fn date_part<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let timestamp = midnight(args.int(1)?)?;
    of_timestamp(args.bytes(0)?, timestamp).map(Field::float)
}

pub(crate) fn extract_time<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    of_time(args.bytes(0)?, args.int(1)?)?.numeric(args.arena)
}

pub(crate) fn time_part<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    of_time(args.bytes(0)?, args.int(1)?).map(Field::float)
}

pub(crate) fn extract_interval<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    of_interval(args.bytes(0)?, args.interval(1)?)?.numeric(args.arena)
}

pub(crate) fn interval_part<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    of_interval(args.bytes(0)?, args.interval(1)?).map(Field::float)
}

/// First year of the decade, century or millennium of a year.
const fn first_year(field: &[u8], year: i64) -> i64 {
    match field {
        b"decade" if year > 0 => year / 10 * 10,
        b"decade" => -((8 - (year - 1)) / 10) * 10,
        b"century" if year > 0 => (year + 99) / 100 * 100 - 99,
        b"century" => -((99 - (year - 1)) / 100) * 100 + 1,
        b"millennium" if year > 0 => (year + 999) / 1000 * 1000 - 999,
        b"millennium" => -((999 - (year - 1)) / 1000) * 1000 + 1,
        _ => year,
    }
}

pub(crate) fn truncate_timestamp<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let (field, timestamp) = (args.bytes(0)?, args.int(1)?);
    if is_infinite(timestamp) {
        return Ok(Value::Int(timestamp));
    }
    let (days, clock) = (timestamp.div_euclid(DAY), timestamp.rem_euclid(DAY));
    let unit = match field {
        b"microseconds" => 1,
        b"milliseconds" => 1000,
        b"second" => SECOND,
        b"minute" => MINUTE,
        b"hour" => HOUR,
        _ => DAY,
    };
    let (year, month, _) = civil_from_days(days);
    let days = match field {
        b"week" => days - iso_day(days) + 1,
        b"month" => days_from_civil(year, month, 1),
        b"quarter" => days_from_civil(year, (month - 1) / 3 * 3 + 1, 1),
        b"year" | b"decade" | b"century" | b"millennium" => {
            days_from_civil(first_year(field, year), 1, 1)
        }
        _ => days,
    };
    let truncated = days.checked_mul(DAY).ok_or_else(timestamp_out_of_range)?;
    valid_timestamp(truncated.checked_add(clock - clock % unit)).map(Value::Int)
}
