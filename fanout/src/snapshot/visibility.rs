//! What a snapshot sees.

use std::str::FromStr;

use pg_proto::Xid;

/// A snapshot as `pg_current_snapshot()` prints it: `xmin:xmax:in progress`, in 64-bit transaction ids.
///
/// The list has top-level transactions only, and so has the log: its BEGIN names the top-level transaction. A
/// subtransaction is seen when its top-level transaction is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Visibility {
    xmin: u64,
    xmax: u64,
    /// In order.
    in_progress: Vec<u64>,
}

/// A text that is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no snapshot: expected xmin:xmax:xid,xid,...")]
pub(crate) struct InvalidSnapshot(String);

impl FromStr for Visibility {
    type Err = InvalidSnapshot;

    fn from_str(text: &str) -> Result<Self, InvalidSnapshot> {
        let invalid = || InvalidSnapshot(text.chars().take(100).collect());
        let number = |text: &str| text.parse::<u64>().map_err(|_| invalid());
        let mut parts = text.splitn(3, ':');
        let mut part = || parts.next().ok_or_else(invalid);
        let (xmin, xmax, list) = (number(part()?)?, number(part()?)?, part()?);
        let xids = list.split(',').filter(|xid| !xid.is_empty()).map(number);
        let mut in_progress = xids.collect::<Result<Vec<u64>, _>>()?;
        in_progress.sort_unstable();
        Ok(Self {
            xmin,
            xmax,
            in_progress,
        })
    }
}

impl Visibility {
    /// All transactions below this one had ended.
    pub(crate) const fn xmin(&self) -> u64 {
        self.xmin
    }

    /// Whether the snapshot sees a transaction that committed, of which only the lower half of the id is known.
    ///
    /// The server itself keeps running transactions within 2^31 of its next id, and the commits that are asked for
    /// are near the snapshot: [`SCAN_BYTES_MAX`](super::SCAN_BYTES_MAX) of WAL have no room for that many.
    pub(crate) fn sees(&self, xid: Xid) -> bool {
        let xid = self.widen(xid);
        xid < self.xmin || (xid < self.xmax && self.in_progress.binary_search(&xid).is_err())
    }

    /// The next id of all, which is at or behind `xmax`, of its lower half.
    pub(crate) fn widen_next(&self, xid: u32) -> u64 {
        self.xmax + u64::from(xid.wrapping_sub(self.low()))
    }

    fn widen(&self, xid: Xid) -> u64 {
        let distance = xid.0.wrapping_sub(self.low()).cast_signed();
        self.xmax.saturating_add_signed(i64::from(distance))
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lower half is what is meant"
    )]
    const fn low(&self) -> u32 {
        self.xmax as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(text: &str) -> Visibility {
        text.parse().unwrap()
    }

    #[test]
    fn what_ended_before_is_seen() {
        let snapshot = snapshot("100:110:100,105");
        for (xid, seen) in [
            (3, true),
            (99, true),
            (100, false),
            (101, true),
            (105, false),
            (109, true),
            (110, false),
            (5000, false),
        ] {
            assert_eq!(snapshot.sees(Xid(xid)), seen, "{xid}");
        }
    }

    #[test]
    fn ids_wrap_around() {
        // The second epoch has just begun: xmin is in the first one.
        let snapshot = snapshot("4294967290:4294967301:4294967290,4294967299");
        for (xid, seen) in [
            (u32::MAX - 10, true),
            (u32::MAX - 5, false),
            (u32::MAX, true),
            (3, false),
            (4, true),
            (5, false),
            (1000, false),
        ] {
            assert_eq!(snapshot.sees(Xid(xid)), seen, "{xid}");
        }
        assert_eq!(snapshot.widen_next(5), 4_294_967_301);
        assert_eq!(snapshot.widen_next(9), 4_294_967_305);
    }

    #[test]
    fn the_next_id_may_be_in_the_next_epoch() {
        let snapshot = snapshot("4294967290:4294967290:");
        assert_eq!(snapshot.widen_next(u32::MAX - 5), 4_294_967_290);
        assert_eq!(snapshot.widen_next(3), 4_294_967_299);
    }

    #[test]
    fn anything_else_is_no_snapshot() {
        for text in ["", "1", "1:2", "a:2:", "1:2:x", "1:2:3;4", "-1:2:"] {
            assert!(text.parse::<Visibility>().is_err(), "{text}");
        }
        assert_eq!(snapshot("1:1:"), snapshot("1:1:"));
    }
}
