//! Run-time settings that a client gives in its start-up packet, directly or inside `options`.
//!
//! The endpoint itself acts on few of them; all of them go along to the source when SQL has to.

use std::time::Duration;

use pg_proto::wire::{ErrorFields, sqlstate};

/// The value of a setting whose unit is milliseconds, such as `60000`, `60s`, `1.5min` (`parse_int`).
pub(crate) fn parse_milliseconds(name: &str, value: &str) -> Result<Duration, ErrorFields> {
    let text = value.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit.trim_start() {
        "us" => 0.001,
        "" | "ms" => 1.0,
        "s" => 1_000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return Err(bad_value(name, value)),
    };
    let milliseconds = number.parse::<f64>().map_err(|_| bad_value(name, value))? * factor;
    if milliseconds.round() > f64::from(i32::MAX) {
        return Err(bad_value(name, value));
    }
    Ok(Duration::from_secs_f64((milliseconds.round()) / 1_000.0))
}

fn bad_value(name: &str, value: &str) -> ErrorFields {
    ErrorFields::fatal(
        sqlstate::INVALID_PARAMETER_VALUE,
        format!("invalid value for parameter \"{name}\": \"{value}\""),
    )
    .with_hint(
        "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".",
    )
}

/// As `SHOW` prints a setting whose unit is milliseconds: in the largest unit without remainder.
pub(crate) fn show_milliseconds(value: Duration) -> String {
    let milliseconds = value.as_millis();
    if milliseconds == 0 {
        return "0".to_owned();
    }
    for (unit, factor) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("min", 60_000),
        ("s", 1_000),
    ] {
        if milliseconds.is_multiple_of(factor) {
            return format!("{}{unit}", milliseconds / factor);
        }
    }
    format!("{milliseconds}ms")
}

/// A name of an encoding without its variations (`clean_encoding_name`): `UTF8`, `utf-8` and `unicode` are
/// one.
pub(crate) fn encoding_key(name: &str) -> String {
    let key: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    match key.as_str() {
        "unicode" => "utf8".to_owned(),
        "iso88591" => "latin1".to_owned(),
        "iso88592" => "latin2".to_owned(),
        "iso885915" => "latin9".to_owned(),
        _ => key
            .strip_prefix("windows")
            .map_or(key.clone(), |page| format!("win{page}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_and_out() {
        for (text, milliseconds, shown) in [
            ("0", 0, "0"),
            ("60000", 60_000, "1min"),
            ("5s", 5_000, "5s"),
            (" 1500 ms ", 1_500, "1500ms"),
            ("1.5min", 90_000, "90s"),
            ("1h", 3_600_000, "1h"),
            ("500us", 1, "1ms"),
        ] {
            let value = parse_milliseconds("wal_sender_timeout", text).unwrap();
            assert_eq!(value, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(show_milliseconds(value), shown);
        }
        for bad in ["", "abc", "-1", "5 weeks", "1d1h", "99999999999"] {
            let report = parse_milliseconds("wal_sender_timeout", bad).unwrap_err();
            assert_eq!(
                report.message(),
                format!("invalid value for parameter \"wal_sender_timeout\": \"{bad}\"")
            );
        }
    }

    #[test]
    fn encodings_have_many_names() {
        assert_eq!(encoding_key("UTF-8"), encoding_key("Unicode"));
        assert_eq!(encoding_key("ISO_8859_1"), encoding_key("LATIN1"));
        assert_eq!(encoding_key("WIN1252"), encoding_key("windows-1252"));
        assert_ne!(encoding_key("LATIN1"), encoding_key("UTF8"));
    }
}
