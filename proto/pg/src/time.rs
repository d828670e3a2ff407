//! PostgreSQL's timestamps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds from 1970-01-01 to 2000-01-01, both UTC.
const EPOCH_OFFSET_SECS: i64 = 946_684_800;

/// Microseconds since 2000-01-01 00:00:00 UTC, as `TimestampTz` (`datatype/timestamp.h`) on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgTimestamp(pub i64);

impl PgTimestamp {
    /// The system clock's time now.
    #[must_use]
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    /// Microseconds since 1970-01-01 00:00:00 UTC, saturating.
    #[must_use]
    pub const fn unix_micros(self) -> i64 {
        self.0.saturating_add(EPOCH_OFFSET_SECS * 1_000_000)
    }

    /// The inverse of [`Self::unix_micros`], saturating.
    #[must_use]
    pub const fn from_unix_micros(micros: i64) -> Self {
        Self(micros.saturating_sub(EPOCH_OFFSET_SECS * 1_000_000))
    }
}

impl From<SystemTime> for PgTimestamp {
    fn from(time: SystemTime) -> Self {
        let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        Self::from_unix_micros(match time.duration_since(UNIX_EPOCH) {
            Ok(since) => micros(since),
            Err(before) => -micros(before.duration()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_from_the_year_2000() {
        let epoch = UNIX_EPOCH + Duration::from_secs(946_684_800);
        assert_eq!(PgTimestamp::from(epoch), PgTimestamp(0));
        assert_eq!(
            PgTimestamp::from(UNIX_EPOCH),
            PgTimestamp(-946_684_800_000_000)
        );
        assert_eq!(
            PgTimestamp::from_unix_micros(PgTimestamp(5).unix_micros()),
            PgTimestamp(5)
        );
    }
}
