//! Dates and timestamps as PostgreSQL prints them under datestyle ISO and TimeZone UTC.
//!
//! A date is a number of days since 2000-01-01, a timestamp one of microseconds. The proleptic Gregorian calendar,
//! year 0 is 1 BC. The ends of the number range stand for the infinities.

use super::text_scan::Scan;

/// Microseconds of a day.
pub(crate) const DAY: i64 = 86_400_000_000;

/// Day number of 2000-01-01 in the count that starts at 0000-03-01.
const EPOCH: i64 = 730_425;

/// `date` infinities.
pub(crate) const DATE_INFINITY: i64 = i32::MAX as i64;
pub(crate) const DATE_MINUS_INFINITY: i64 = i32::MIN as i64;

/// Range of finite timestamps in PostgreSQL: 4714-11-24 BC up to and without 294277-01-01.
pub(crate) const TIMESTAMP_MIN: i64 = -211_813_488_000_000_000;
pub(crate) const TIMESTAMP_END: i64 = 9_223_371_331_200_000_000;

/// Range of finite dates: 4714-11-24 BC up to and without 5874898-01-01.
pub(crate) const DATE_MIN: i64 = -2_451_545;
pub(crate) const DATE_END: i64 = 2_145_031_949;

/// Days since 2000-01-01.
pub(crate) const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let leap = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap + (153 * month + 2) / 5 + day - 1 - EPOCH
}

/// Year, month, day.
pub(crate) const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + (month <= 2) as i64;
    (year, month, day)
}

/// Days of a month.
pub(crate) const fn month_length(year: i64, month: i64) -> i64 {
    match month {
        2 if year.rem_euclid(4) == 0
            && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0) =>
        {
            29
        }
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// `yyyy-mm-dd` without the era.
fn civil(scan: &mut Scan<'_>) -> Option<(i64, i64, i64)> {
    let year = scan.number().filter(|year| *year <= 6_000_000)?;
    scan.expect(b"-")?;
    let month = scan.two().filter(|month| (1..=12).contains(month))?;
    scan.expect(b"-")?;
    let day = scan.two().filter(|day| (1..=31).contains(day))?;
    Some((year, month, day))
}

fn days(scan: &mut Scan<'_>, (year, month, day): (i64, i64, i64)) -> Option<i64> {
    let year = if scan.eat(b" BC") { 1 - year } else { year };
    scan.is_at_end().then(|| days_from_civil(year, month, day))
}

/// A `date`.
pub(crate) fn parse_date(text: &[u8]) -> Option<i64> {
    match text {
        b"infinity" => return Some(DATE_INFINITY),
        b"-infinity" => return Some(DATE_MINUS_INFINITY),
        _ => {}
    }
    let mut scan = Scan::new(text);
    let civil = civil(&mut scan)?;
    days(&mut scan, civil)
}

/// A `timestamp`, or a `timestamptz` printed in UTC.
pub(crate) fn parse_timestamp(text: &[u8], zoned: bool) -> Option<i64> {
    match text {
        b"infinity" => return Some(i64::MAX),
        b"-infinity" => return Some(i64::MIN),
        _ => {}
    }
    let mut scan = Scan::new(text);
    let civil = civil(&mut scan)?;
    scan.expect(b" ")?;
    let clock = scan.clock()?;
    if zoned {
        scan.expect(b"+00")?;
    }
    days(&mut scan, civil)?.checked_mul(DAY)?.checked_add(clock)
}

/// A `time`, 24:00:00 included.
pub(crate) fn parse_time(text: &[u8]) -> Option<i64> {
    let mut scan = Scan::new(text);
    let time = scan.clock()?;
    scan.is_at_end().then_some(time)
}

/// Whether a timestamp is one of the infinities.
pub(crate) const fn is_infinite(timestamp: i64) -> bool {
    timestamp == i64::MAX || timestamp == i64::MIN
}
