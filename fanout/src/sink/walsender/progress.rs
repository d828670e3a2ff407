//! How far one stream and its client are.
//!
//! A client may report anything: a position inside a transaction, one behind the slot (after a reconnect), one
//! byte beyond a message (some acknowledge `lsn + 1`), or one that was never sent. PostgreSQL believes it, and
//! loses changes. Here a report counts only up to what was really written to the client's socket, and the
//! [`Lease`](crate::positions::Lease) rounds it down to the end of a whole transaction and never moves a slot back.

use pg_proto::Lsn;
use pg_proto::replication::StatusUpdate;

/// The positions of one stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    sent: Lsn,
    write: Lsn,
    flush: Lsn,
}

impl Progress {
    /// A stream before which everything below `start` is done.
    pub(crate) const fn new(start: Lsn) -> Self {
        Self {
            sent: start,
            write: Lsn::INVALID,
            flush: Lsn::INVALID,
        }
    }

    /// Everything that commits below `position` is in the client's socket. Returns whether that is news.
    pub(crate) fn sent_up_to(&mut self, position: Lsn) -> bool {
        let news = position > self.sent;
        self.sent = self.sent.max(position);
        news
    }

    /// The client said what it has. Going back is normal: a PostgreSQL subscriber begins with its old origin.
    pub(crate) const fn reported(&mut self, status: &StatusUpdate) {
        self.write = status.write;
        self.flush = status.flush;
    }

    /// Everything that commits below was written to the socket.
    pub(crate) const fn sent(&self) -> Lsn {
        self.sent
    }

    /// What the client last said is safe with it.
    pub(crate) const fn flush(&self) -> Lsn {
        self.flush
    }

    /// Whether the client has all that was sent. One that never reports a flush position is judged by what it
    /// received (`WalSndDone`).
    pub(crate) fn all_received(&self) -> bool {
        let replicated = if self.flush.is_valid() {
            self.flush
        } else {
            self.write
        };
        replicated >= self.sent
    }
}

#[cfg(test)]
mod tests {
    use pg_proto::PgTimestamp;

    use super::*;

    fn status(write: u64, flush: u64) -> StatusUpdate {
        StatusUpdate {
            write: Lsn(write),
            flush: Lsn(flush),
            apply: Lsn::INVALID,
            client_time: PgTimestamp(0),
            reply_requested: false,
        }
    }

    #[test]
    fn what_was_sent_never_goes_back() {
        let mut progress = Progress::new(Lsn(100));
        assert!(progress.sent_up_to(Lsn(200)));
        assert!(!progress.sent_up_to(Lsn(200)));
        assert!(!progress.sent_up_to(Lsn(150)));
        assert_eq!(progress.sent(), Lsn(200));
    }

    #[test]
    fn received_is_judged_by_flush_or_without_it_by_write() {
        let mut progress = Progress::new(Lsn(100));
        progress.sent_up_to(Lsn(200));
        assert!(!progress.all_received());
        progress.reported(&status(200, 0));
        assert!(progress.all_received());
        progress.reported(&status(200, 150));
        assert!(!progress.all_received());
        progress.reported(&status(150, 201));
        assert!(progress.all_received());
    }
}
