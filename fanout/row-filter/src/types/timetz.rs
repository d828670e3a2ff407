//! `time with time zone`.

use std::cmp::Ordering;

use super::text_scan::Scan;

/// Microseconds of the day, and seconds west of Greenwich.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeTz {
    pub(crate) time: i64,
    pub(crate) zone: i32,
}

impl TimeTz {
    /// As `timetz_out` prints it: `12:00:00.5+05:30:15`.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let mut scan = Scan::new(text);
        let time = scan.clock()?;
        let west = match scan.byte()? {
            b'-' => 1,
            b'+' => -1,
            _ => return None,
        };
        let mut seconds = scan.two()? * 3600;
        for unit in [60, 1] {
            if scan.eat(b":") {
                seconds += scan.two()? * unit;
            }
        }
        let zone = i32::try_from(seconds * west).ok()?;
        scan.is_at_end().then_some(Self { time, zone })
    }

    /// By the moment in UTC, then by the zone.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        let moments = self.utc().cmp(&other.utc());
        moments.then(self.zone.cmp(&other.zone))
    }

    /// The moment in UTC.
    pub(crate) fn utc(self) -> i64 {
        self.time + i64::from(self.zone) * 1_000_000
    }
}
