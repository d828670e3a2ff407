//! `interval` as it is printed under intervalstyle postgres.

use std::cmp::Ordering;

use super::calendar::DAY;
use super::text_scan::Scan;

/// Its three parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) months: i32,
    pub(crate) days: i32,
    pub(crate) micros: i64,
}

impl Interval {
    /// Both infinities are known from PostgreSQL 17 on.
    pub(crate) const INFINITY: Self = Self {
        months: i32::MAX,
        days: i32::MAX,
        micros: i64::MAX,
    };
    pub(crate) const MINUS_INFINITY: Self = Self {
        months: i32::MIN,
        days: i32::MIN,
        micros: i64::MIN,
    };

    /// `1 year 2 mons -3 days +04:05:06.789`, each part with its own sign, or nothing but `00:00:00`.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        match text {
            b"infinity" => return Some(Self::INFINITY),
            b"-infinity" => return Some(Self::MINUS_INFINITY),
            _ => {}
        }
        let mut scan = Scan::new(text);
        let (mut months, mut days, mut micros) = (0_i64, 0_i64, 0_i64);
        while !scan.is_at_end() {
            let negative = scan.eat(b"-");
            if !negative {
                scan.eat(b"+");
            }
            let sign = if negative { -1 } else { 1 };
            let mut ahead = scan;
            let number = ahead.number()?;
            if ahead.eat(b":") {
                micros = clock(&mut scan, negative)?;
                continue;
            }
            scan = ahead;
            scan.expect(b" ")?;
            if scan.eat(b"year") {
                months += sign * number.checked_mul(12)?;
            } else if scan.eat(b"mon") {
                months += sign * number;
            } else if scan.eat(b"day") {
                days += sign * number;
            } else {
                return None;
            }
            scan.eat(b"s");
            scan.eat(b" ");
        }
        Some(Self {
            months: i32::try_from(months).ok()?,
            days: i32::try_from(days).ok()?,
            micros,
        })
    }

    /// A constant's bytes on a little-endian server.
    pub(crate) fn from_datum(bytes: &[u8]) -> Option<Self> {
        let (micros, rest) = bytes.split_first_chunk::<8>()?;
        let (days, rest) = rest.split_first_chunk::<4>()?;
        let (months, rest) = rest.split_first_chunk::<4>()?;
        rest.is_empty().then(|| Self {
            months: i32::from_le_bytes(*months),
            days: i32::from_le_bytes(*days),
            micros: i64::from_le_bytes(*micros),
        })
    }

    /// Months of 30 days of 24 hours.
    pub(crate) fn span(self) -> i128 {
        let days = i128::from(self.months) * 30 + i128::from(self.days);
        days * i128::from(DAY) + i128::from(self.micros)
    }

    pub(crate) fn compare(self, other: Self) -> Ordering {
        self.span().cmp(&other.span())
    }
}

/// A clock with a sign that was read; the lowest value has no positive counterpart.
fn clock(scan: &mut Scan<'_>, negative: bool) -> Option<i64> {
    if scan.rest() == b"2562047788:00:54.775808" && negative {
        *scan = Scan::new(b"");
        return Some(i64::MIN);
    }
    let micros = scan.clock()?;
    Some(if negative { -micros } else { micros })
}
