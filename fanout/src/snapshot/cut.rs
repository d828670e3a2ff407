//! The position that fits a snapshot, if there is one.

use pg_proto::{Lsn, Xid};

use super::Visibility;

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Every commit below it is seen, whether or not the cut is exact.
    pub(crate) position: Lsn,
    /// Whether no commit at or behind it is seen: then the snapshot sees exactly what commits before it.
    pub(crate) exact: bool,
}

/// Looks at commits, in whatever order, for the position that fits a snapshot.
#[derive(Debug)]
pub(crate) struct CutSearch<'a> {
    visibility: &'a Visibility,
    /// The WAL's insert position, read after the snapshot was taken: what is seen was inserted before.
    end: Lsn,
    first_unseen: Option<Lsn>,
    last_seen: Option<Lsn>,
}

impl<'a> CutSearch<'a> {
    /// Nothing looked at yet.
    pub(crate) const fn new(visibility: &'a Visibility, end: Lsn) -> Self {
        Self {
            visibility,
            end,
            first_unseen: None,
            last_seen: None,
        }
    }

    /// A transaction of the log, by its top-level id and the start of its commit record.
    pub(crate) fn commit(&mut self, xid: Xid, commit_lsn: Lsn) {
        if commit_lsn >= self.end {
            return;
        }
        if self.visibility.sees(xid) {
            self.last_seen = self.last_seen.max(Some(commit_lsn));
        } else {
            let first = self.first_unseen.unwrap_or(Lsn::MAX);
            self.first_unseen = Some(first.min(commit_lsn));
        }
    }

    /// To be called when every commit has been shown that is below the insert position and not known to be seen.
    pub(crate) fn finish(self) -> Cut {
        let position = self.first_unseen.unwrap_or(self.end);
        Cut {
            position,
            exact: self.last_seen.is_none_or(|seen| seen < position),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(commits: &[(u32, u64)]) -> Cut {
        let visibility: Visibility = "10:20:10,15".parse().unwrap();
        let mut search = CutSearch::new(&visibility, Lsn(1000));
        for (xid, lsn) in commits {
            search.commit(Xid(*xid), Lsn(*lsn));
        }
        search.finish()
    }

    #[test]
    fn a_snapshot_that_sees_all_fits_the_insert_position() {
        for commits in [&[][..], &[(11, 10), (12, 999)], &[(10, 1000), (30, 2000)]] {
            let cut = search(commits);
            assert_eq!((cut.position, cut.exact), (Lsn(1000), true), "{commits:?}");
        }
    }

    #[test]
    fn the_first_commit_that_is_not_seen_is_the_cut() {
        let cut = search(&[(11, 10), (15, 500), (10, 700), (25, 800)]);
        assert_eq!((cut.position, cut.exact), (Lsn(500), true));
    }

    #[test]
    fn a_commit_that_is_seen_behind_one_that_is_not_leaves_no_cut() {
        let cut = search(&[(15, 500), (11, 501)]);
        assert_eq!((cut.position, cut.exact), (Lsn(500), false));
    }
}
