//! Below which position nothing has to be looked at any more, and how that is known.

use pg_proto::Lsn;

use super::Visibility;

/// Most probes that wait to become useful.
const PROBES_MAX: usize = 32;

/// "Whatever committed below `lsn` has an id below `next_xid`": the position was read first, the source's next
/// transaction id after it, and the log has reached the position.
///
/// The last condition makes the statement final. What is in the log was flushed at the source, so that not even a crash
/// there writes other commits at these positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) lsn: Lsn,
    pub(crate) next_xid: u64,
}

/// A position below which every commit of the log is seen by every snapshot that is taken from now on.
///
/// It is known in one of two ways:
///
/// * A snapshot whose `xmin` is at or behind a [`Probe`]'s `next_xid` sees all that committed below the probe's position,
///   because none of these transactions was still running.
/// * A search that began at a settled position looked at all commits up to the first that its snapshot did not see.
///   Those below that one are seen by that snapshot, and a snapshot sees all that an earlier one saw.
///
/// Whoever searches reads the settled position *before* it takes its snapshot: what a later snapshot has settled says
/// nothing about an earlier one.
#[derive(Debug, Default)]
pub(crate) struct Horizon {
    settled: Option<Lsn>,
    probes: Vec<Probe>,
}

impl Horizon {
    /// The settled position for snapshots that are taken from now on.
    pub(crate) const fn settled(&self) -> Option<Lsn> {
        self.settled
    }

    /// Where the search for a snapshot begins, of which `settled` was read before it was taken. `None`: nothing is
    /// known, because transactions still run that began before the first probe.
    pub(crate) fn base(&mut self, settled: Option<Lsn>, visibility: &Visibility) -> Option<Lsn> {
        let probes = self.probes.iter();
        let useful = probes.filter(|probe| probe.next_xid <= visibility.xmin());
        let probed = useful.map(|probe| probe.lsn).max();
        if let Some(lsn) = probed {
            self.settle(lsn);
        }
        settled.max(probed)
    }

    /// Takes the position of a finished search.
    pub(crate) fn settle(&mut self, lsn: Lsn) {
        self.settled = self.settled.max(Some(lsn));
        let settled = self.settled;
        self.probes.retain(|probe| Some(probe.lsn) > settled);
    }

    /// Takes a probe. Too many of them, while an old transaction runs, make each other superfluous: the first and the
    /// newest are of most use.
    pub(crate) fn probe(&mut self, probe: Probe) {
        if Some(probe.lsn) <= self.settled {
            return;
        }
        if self.probes.len() >= PROBES_MAX {
            self.probes.remove(PROBES_MAX / 2);
        }
        self.probes.push(probe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(xmin: u64) -> Visibility {
        format!("{xmin}:{}:", xmin + 5).parse().unwrap()
    }

    fn probe(lsn: u64, next_xid: u64) -> Probe {
        Probe {
            lsn: Lsn(lsn),
            next_xid,
        }
    }

    #[test]
    fn nothing_is_known_until_all_have_ended_that_ran_at_the_first_probe() {
        let mut horizon = Horizon::default();
        assert_eq!(horizon.base(None, &snapshot(100)), None);
        horizon.probe(probe(1000, 105));
        assert_eq!(horizon.base(None, &snapshot(104)), None);
        assert_eq!(horizon.base(None, &snapshot(105)), Some(Lsn(1000)));
        assert_eq!(horizon.settled(), Some(Lsn(1000)));
    }

    #[test]
    fn the_best_of_what_is_known_counts() {
        let mut horizon = Horizon::default();
        horizon.probe(probe(1000, 105));
        horizon.probe(probe(2000, 205));
        horizon.probe(probe(3000, 305));
        let settled = horizon.settled();
        assert_eq!(horizon.base(settled, &snapshot(210)), Some(Lsn(2000)));
        horizon.settle(Lsn(2500));
        let settled = horizon.settled();
        assert_eq!(horizon.base(settled, &snapshot(210)), Some(Lsn(2500)));
        assert_eq!(horizon.base(settled, &snapshot(305)), Some(Lsn(3000)));
    }

    #[test]
    fn what_was_settled_after_a_snapshot_was_taken_does_not_count_for_it() {
        let mut horizon = Horizon::default();
        horizon.settle(Lsn(100));
        let settled = horizon.settled();
        horizon.settle(Lsn(900));
        assert_eq!(horizon.base(settled, &snapshot(10)), Some(Lsn(100)));
    }

    #[test]
    fn probes_are_bounded_and_the_first_stays() {
        let mut horizon = Horizon::default();
        for number in 1..200 {
            horizon.probe(probe(number * 10, number));
        }
        assert_eq!(horizon.probes.len(), PROBES_MAX);
        assert_eq!(horizon.base(None, &snapshot(1)), Some(Lsn(10)));
        assert_eq!(horizon.base(None, &snapshot(500)), Some(Lsn(1990)));
        assert!(horizon.probes.is_empty());
    }
}
