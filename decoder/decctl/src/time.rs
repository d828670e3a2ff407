//! Times on the command line (RFC 3339).

use pg_proto::PgTimestamp;

/// Reads a time such as `2026-01-31T12:00:00Z`, `2026-01-31 12:00:00.5+01:00`. The zone must be said.
pub(crate) fn parse(text: &str) -> Result<PgTimestamp, String> {
    let parsed = parse_time(text.trim());
    parsed.ok_or_else(|| "expected a time with its zone, such as 2026-01-31T12:00:00Z".to_owned())
}

fn parse_time(text: &str) -> Option<PgTimestamp> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = numbers(date, '-')?;
    let zone_at = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at(zone_at);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(time, ':')?;
    let in_range = (1..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !in_range {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    let micros = (seconds - offset(zone)?) * 1_000_000 + microseconds(fraction)?;
    Some(PgTimestamp::from_unix_micros(micros))
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let parts = text
        .split(separator)
        .map(number)
        .collect::<Option<Vec<_>>>()?;
    parts.try_into().ok()
}

fn number(text: &str) -> Option<i64> {
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn microseconds(fraction: &str) -> Option<i64> {
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let whole = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    whole.then(|| digits.parse().ok()).flatten()
}

/// Seconds east of Greenwich.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the Gregorian calendar. Years begin in March here, so that the leap day is the last one.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times_with_their_zone() {
        for (text, micros) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29 00:00:00+00:00", 951_782_400_000_000),
            ("2024-12-31T23:59:59.25Z", 1_735_689_599_250_000),
            ("2024-12-31T23:59:59-01:30", 1_735_694_999_000_000),
            ("1969-12-31T23:59:59.999999z", -1),
        ] {
            let time = parse(text).unwrap();
            assert_eq!(time.unix_micros(), micros, "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in [
            "",
            "now",
            "2024-12-31",
            "2024-12-31T23:59:59",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00+1",
            "2024-01-01T00:00:+0Z",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
