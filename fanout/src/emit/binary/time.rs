//! Dates and times, whose text is in the style ISO.

/// Days from 0000-03-01 (proleptic Gregorian) to 2000-01-01, from which PostgreSQL counts.
const EPOCH_DAYS: i64 = 730_425;
const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// Takes parts off the front of a text.
#[derive(Clone, Copy)]
pub(super) struct Text<'a>(pub(super) &'a [u8]);

impl Text<'_> {
    pub(super) fn take(&mut self, expected: u8) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        (*first == expected).then(|| self.0 = rest)
    }

    /// A number of at least `digits_min` digits.
    pub(super) fn digits(&mut self, digits_min: usize) -> Option<i64> {
        let end = self.0.iter().position(|byte| !byte.is_ascii_digit());
        let (digits, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        if digits.len() < digits_min {
            return None;
        }
        self.0 = rest;
        super::scalar::number(digits)
    }

    /// `HH:MM:SS[.ffffff]`, in microseconds.
    pub(super) fn clock(&mut self) -> Option<i64> {
        let hours = self.digits(2)?;
        self.take(b':')?;
        let minutes = self.digits(2).filter(|minutes| *minutes < 60)?;
        self.take(b':')?;
        let seconds = self.digits(2).filter(|seconds| *seconds <= 60)?;
        let seconds = hours
            .checked_mul(3600)?
            .checked_add(minutes * 60 + seconds)?;
        let mut micros = seconds.checked_mul(MICROS_PER_SECOND)?;
        if self.take(b'.').is_some() {
            let before = self.0.len();
            let fraction = self.digits(1)?;
            let digits = u32::try_from(before - self.0.len()).ok()?;
            micros = micros.checked_add(fraction * 10_i64.pow(6_u32.checked_sub(digits)?))?;
        }
        Some(micros)
    }

    /// `YYYY-MM-DD`: year, month, day.
    fn date(&mut self) -> Option<(i64, i64, i64)> {
        let year = self.digits(4)?;
        self.take(b'-')?;
        let month = self.digits(2).filter(|month| (1..=12).contains(month))?;
        self.take(b'-')?;
        let day = self.digits(2).filter(|day| (1..=31).contains(day))?;
        Some((year, month, day))
    }

    /// The ` BC` at the end; nothing may follow.
    fn ends(self, (year, month, day): (i64, i64, i64)) -> Option<i64> {
        match self.0 {
            b"" => days(year, month, day),
            b" BC" => days(1 - year, month, day),
            _ => None,
        }
    }
}

/// Days since 2000-01-01.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    // The year begins in March, so that the leap day is its last one.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let of_years =
        year.checked_mul(365)? + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let of_months = (153 * month + 2) / 5;
    Some(of_years + of_months + day - 1 - EPOCH_DAYS)
}

pub(super) fn date(text: &[u8]) -> Option<i32> {
    match text {
        b"infinity" => return Some(i32::MAX),
        b"-infinity" => return Some(i32::MIN),
        _ => {}
    }
    let mut text = Text(text);
    let date = text.date()?;
    i32::try_from(text.ends(date)?).ok()
}

pub(super) fn time(text: &[u8]) -> Option<i64> {
    let mut text = Text(text);
    let micros = text.clock()?;
    text.0.is_empty().then_some(micros)
}

/// Microseconds, and seconds west of Greenwich.
pub(super) fn time_tz(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut text = Text(text);
    let micros = text.clock()?;
    let east = zone(&mut text)?;
    if !text.0.is_empty() {
        return None;
    }
    out.extend_from_slice(&micros.to_be_bytes());
    out.extend_from_slice(&i32::try_from(-east).ok()?.to_be_bytes());
    Some(())
}

pub(super) fn timestamp(text: &[u8]) -> Option<i64> {
    instant(text, |_| Some(0))
}

pub(super) fn timestamp_tz(text: &[u8]) -> Option<i64> {
    instant(text, zone)
}

/// Microseconds since 2000-01-01. `zone`: seconds east of Greenwich.
fn instant(text: &[u8], zone: impl FnOnce(&mut Text<'_>) -> Option<i64>) -> Option<i64> {
    match text {
        b"infinity" => return Some(i64::MAX),
        b"-infinity" => return Some(i64::MIN),
        _ => {}
    }
    let mut text = Text(text);
    let date = text.date()?;
    text.take(b' ')?;
    let micros = text.clock()?;
    let east = zone(&mut text)?;
    let days = text.ends(date)?;
    days.checked_mul(MICROS_PER_DAY)?
        .checked_add(micros - east * MICROS_PER_SECOND)
}

/// `+HH[:MM[:SS]]`, in seconds east of Greenwich.
fn zone(text: &mut Text<'_>) -> Option<i64> {
    let sign = match text.0.first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    text.take(*text.0.first()?)?;
    let mut seconds = text.digits(2)? * 3600;
    for unit in [60, 1] {
        if text.take(b':').is_none() {
            break;
        }
        seconds += text.digits(2)? * unit;
    }
    Some(sign * seconds)
}
