//! Positions in the write-ahead log.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A position in the source's write-ahead log, in bytes since the log began.
///
/// Prints and parses as PostgreSQL does (`pg_lsn.c`): two hexadecimal halves, `16/B374D848`. Zero is
/// `InvalidXLogRecPtr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// `InvalidXLogRecPtr`, printed `0/0`.
    pub const INVALID: Self = Self(0);
    /// The highest position there can be.
    pub const MAX: Self = Self(u64::MAX);

    /// Whether this is a real position, not `0/0`.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.0 != 0
    }

    /// Bytes from `earlier` to `self`, 0 if `earlier` is not earlier.
    #[must_use]
    pub const fn bytes_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

/// The text is not a log position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{text}\" is not a log sequence number: expected two hexadecimal halves such as 16/B374D848"
)]
pub struct InvalidLsn {
    /// What was given, at most 64 bytes of it.
    pub text: String,
}

impl FromStr for Lsn {
    type Err = InvalidLsn;

    /// The rule of `pg_lsn_in_internal`: 1 to 8 hexadecimal digits, a slash, 1 to 8 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidLsn {
            text: text.chars().take(64).collect(),
        };
        let half = |digits: &str| {
            let plain = (1..=8).contains(&digits.len())
                && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            if plain {
                u32::from_str_radix(digits, 16).map_err(|_| invalid())
            } else {
                Err(invalid())
            }
        };
        let (high, low) = text.split_once('/').ok_or_else(invalid)?;
        Ok(Self(u64::from(half(high)?) << 32 | u64::from(half(low)?)))
    }
}

impl Serialize for Lsn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lsn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_parses_as_postgresql() {
        for (text, value) in [
            ("0/0", 0),
            ("16/B374D848", 0x16_B374_D848),
            ("FFFFFFFF/FFFFFFFF", u64::MAX),
        ] {
            assert_eq!(text.parse::<Lsn>().unwrap(), Lsn(value));
            assert_eq!(Lsn(value).to_string(), text);
        }
        assert_eq!("0/00000000".parse::<Lsn>().unwrap(), Lsn::INVALID);
        for bad in [
            "",
            "/",
            "1",
            "1/",
            "/1",
            "G/0",
            "123456789/0",
            "0/ 1",
            "-1/0",
            "+1/0",
            "0/123456789",
        ] {
            assert!(bad.parse::<Lsn>().is_err(), "{bad}");
        }
    }
}
