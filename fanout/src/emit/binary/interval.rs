//! `interval`, whose text is in the style postgres: `1 year -2 mons +3 days -04:05:06.789`.

use super::time::Text;

const MONTHS_PER_YEAR: i64 = 12;

pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (micros, days, months) = match text {
        // From version 17 on.
        b"infinity" => (i64::MAX, i32::MAX, i32::MAX),
        b"-infinity" => (i64::MIN, i32::MIN, i32::MIN),
        _ => parts(text)?,
    };
    out.extend_from_slice(&micros.to_be_bytes());
    out.extend_from_slice(&days.to_be_bytes());
    out.extend_from_slice(&months.to_be_bytes());
    Some(())
}

/// Microseconds, days, months.
fn parts(text: &[u8]) -> Option<(i64, i32, i32)> {
    let (mut micros, mut days, mut months) = (0, 0, 0_i64);
    let mut words = text.split(|byte| *byte == b' ');
    while let Some(word) = words.next() {
        let (sign, rest) = match word.split_first()? {
            (b'-', rest) => (-1, rest),
            (b'+', rest) => (1, rest),
            _ => (1, word),
        };
        let mut number = Text(rest);
        if rest.contains(&b':') {
            micros = sign * number.clock()?;
            if !number.0.is_empty() || words.next().is_some() {
                return None;
            }
            break;
        }
        let count = sign * number.digits(1)?;
        if !number.0.is_empty() {
            return None;
        }
        match words.next()? {
            b"year" | b"years" => months += count.checked_mul(MONTHS_PER_YEAR)?,
            b"mon" | b"mons" => months += count,
            b"day" | b"days" => days = count,
            _ => return None,
        }
    }
    let (days, months) = (i32::try_from(days).ok()?, i32::try_from(months).ok()?);
    Some((micros, days, months))
}
