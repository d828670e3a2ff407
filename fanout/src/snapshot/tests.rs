//! A server in a few lines, whose transactions commit in the WAL long before they are seen, and sessions that look for
//! cuts while it works. What a snapshot really sees is known here, so every cut can be checked.

use std::collections::{BTreeMap, BTreeSet};

use pg_proto::{Lsn, Xid};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Cut, CutSearch, Horizon, Probe, Visibility};

/// Step by step what a server does to its transactions.
#[derive(Debug)]
struct Server {
    next_xid: u64,
    latest_completed: u64,
    insert_lsn: u64,
    /// In the list of running transactions: those that have a commit record already, and whether they touch tables.
    running: BTreeMap<u64, Option<Lsn>>,
    /// What others see.
    seen: BTreeSet<u64>,
    /// Commits that are in Decant's log. Every third transaction touches nothing that is in there.
    log: Vec<(u64, Lsn)>,
}

impl Server {
    fn new(first_xid: u64) -> Self {
        Self {
            next_xid: first_xid,
            latest_completed: first_xid - 1,
            insert_lsn: 1000,
            running: BTreeMap::new(),
            seen: BTreeSet::new(),
            log: Vec::new(),
        }
    }

    fn begin(&mut self) {
        self.running.insert(self.next_xid, None);
        self.next_xid += 1;
    }

    fn pick(&self, choice: usize, committed: bool) -> Option<u64> {
        let running = self.running.iter();
        let fitting = running.filter(|(_, commit)| commit.is_some() == committed);
        let xids: Vec<u64> = fitting.map(|(xid, _)| *xid).collect();
        xids.get(choice % xids.len().max(1)).copied()
    }

    fn write_commit(&mut self, choice: usize) {
        if let Some(xid) = self.pick(choice, false) {
            let lsn = Lsn(self.insert_lsn);
            self.insert_lsn += 10;
            self.running.insert(xid, Some(lsn));
            if !xid.is_multiple_of(3) {
                self.log.push((xid, lsn));
            }
        }
    }

    fn complete(&mut self, choice: usize) {
        if let Some(xid) = self.pick(choice, true) {
            self.running.remove(&xid);
            self.latest_completed = self.latest_completed.max(xid);
            self.seen.insert(xid);
        }
    }

    fn roll_back(&mut self, choice: usize) {
        if let Some(xid) = self.pick(choice, false) {
            self.running.remove(&xid);
            self.latest_completed = self.latest_completed.max(xid);
        }
    }

    fn snapshot(&self) -> String {
        let xmax = self.latest_completed + 1;
        let below: Vec<u64> = self.running.keys().copied().filter(|x| *x < xmax).collect();
        let xmin = below.first().copied().unwrap_or(xmax);
        let list: Vec<String> = below.iter().map(u64::to_string).collect();
        format!("{xmin}:{xmax}:{}", list.join(","))
    }
}

/// What one session has read so far. Between any two of its steps the server and other sessions may do anything.
#[derive(Debug, Default)]
struct Session {
    step: usize,
    settled: Option<Lsn>,
    visibility: Option<Visibility>,
    really_seen: BTreeSet<u64>,
    end: Lsn,
    next_xid: u64,
}

/// A cut, the position that the search began at, and what its snapshot really sees.
#[derive(Debug)]
struct Found {
    cut: Cut,
    seen: BTreeSet<u64>,
}

impl Session {
    fn advance(&mut self, server: &Server, horizon: &mut Horizon) -> Option<Found> {
        self.step += 1;
        match self.step {
            1 => self.settled = horizon.settled(),
            2 => {
                self.visibility = Some(server.snapshot().parse().unwrap());
                self.really_seen = server.seen.clone();
            }
            3 => self.end = Lsn(server.insert_lsn),
            4 => self.next_xid = server.next_xid,
            _ => return std::mem::take(self).finish(server, horizon),
        }
        None
    }

    fn finish(self, server: &Server, horizon: &mut Horizon) -> Option<Found> {
        let visibility = self.visibility.unwrap();
        let next_xid = visibility.widen_next(low(self.next_xid).0);
        assert_eq!(next_xid, self.next_xid);
        let base = horizon.base(self.settled, &visibility);
        horizon.probe(Probe {
            lsn: self.end,
            next_xid,
        });
        let base = base?;
        let mut search = CutSearch::new(&visibility, self.end);
        for (xid, lsn) in server.log.iter().filter(|(_, lsn)| *lsn >= base) {
            search.commit(low(*xid), *lsn);
        }
        let cut = search.finish();
        horizon.settle(cut.position);
        Some(Found {
            cut,
            seen: self.really_seen,
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the log has the lower half"
)]
fn low(xid: u64) -> Xid {
    Xid(xid as u32)
}

/// Runs a history; the number of exact cuts and of others.
fn run(first_xid: u64, choices: &[(u8, usize)]) -> (usize, usize) {
    let mut server = Server::new(first_xid);
    let mut horizon = Horizon::default();
    let mut sessions = [Session::default(), Session::default(), Session::default()];
    let mut found = Vec::new();
    for (what, choice) in choices {
        match what % 16 {
            0..=3 => server.begin(),
            4..=6 => server.write_commit(*choice),
            7..=9 => server.complete(*choice),
            10 => server.roll_back(*choice),
            11 => server.insert_lsn += 10,
            _ => {
                let session = &mut sessions[choice % 3];
                found.extend(session.advance(&server, &mut horizon));
            }
        }
    }
    for Found { cut, seen } in &found {
        for (xid, lsn) in &server.log {
            if *lsn < cut.position {
                assert!(seen.contains(xid), "{xid} at {lsn} is lost: {cut:?}");
            } else if cut.exact {
                assert!(!seen.contains(xid), "{xid} at {lsn} is doubled: {cut:?}");
            }
        }
    }
    let exact = found.iter().filter(|found| found.cut.exact).count();
    (exact, found.len() - exact)
}

fn choices() -> impl Strategy<Value = Vec<(u8, usize)>> {
    vec((any::<u8>(), any::<usize>()), 0..600)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn an_exact_cut_is_one(choices in choices()) {
        run(1000, &choices);
    }

    #[test]
    fn also_where_transaction_ids_wrap_around(choices in choices(), before in 0_u64..60) {
        run((1 << 32) - before, &choices);
    }
}

/// The properties would hold if nothing was ever found.
#[test]
fn both_kinds_of_snapshots_are_met() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let history: Vec<(u8, usize)> = (0..20_000)
        .map(|_| {
            (
                next().to_le_bytes()[4],
                usize::from(next().to_le_bytes()[5]),
            )
        })
        .collect();
    let (mut exact, mut others) = (0, 0);
    for part in history.chunks(500) {
        let (more_exact, more_others) = run(1000, part);
        exact += more_exact;
        others += more_others;
    }
    assert!(exact > 50 && others > 50, "{exact} exact, {others} others");
}
