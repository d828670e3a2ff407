//! When a stream sends a keepalive, and when it gives its client up.
//!
//! A keepalive's position is a promise: everything that commits below it was sent. It is what moves an idle
//! subscriber forward, so one goes out whenever the stream has nothing to send and stands beyond what the
//! client was told so far, at once when the client asks, and with a request to answer after half of
//! `wal_sender_timeout` of silence (`WalSndKeepaliveIfNecessary`). After the whole of it the connection ends
//! without a word, as a walsender's does (`WalSndCheckTimeOut`).
//!
//! Time is handed in: nothing here reads a clock.

use std::time::Duration;

use pg_proto::Lsn;
use tokio::time::Instant;

/// Progress that is not caused by a message goes out at most this often: a keepalive per transaction would
/// double the packets, and a PostgreSQL subscriber answers each of them.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(20);
/// The same of a subscriber that gets nothing but progress, again and again. Shorter than the second after which a stream
/// that nothing concerns looks again (`replay/waiters.rs`), so that it is woken once for the look and for what that finds.
const PROGRESS_INTERVAL_MAX: Duration = Duration::from_millis(900);

/// What is due now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing before this time, if ever.
    Nothing(Option<Instant>),
    /// Send a keepalive.
    Keepalive {
        /// Whether the client shall answer at once.
        reply_requested: bool,
    },
    /// The client has been silent for too long.
    TimedOut,
}

/// What the stream's socket is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Everything is written, and there is nothing further at the moment.
    Idle,
    /// Changes are on their way.
    Busy,
    /// A keepalive is on its way already. A client that asks again and again and does not read gets no more of them.
    Answering,
}

/// The timers of one stream.
#[derive(Debug)]
pub(crate) struct Keepalives {
    /// `None`: a silent client is never given up (`wal_sender_timeout = 0`).
    timeout: Option<Duration>,
    last_received: Instant,
    last_sent: Option<Instant>,
    /// A request to answer is on its way since the client was last heard.
    asked: bool,
    /// The client asked for an answer.
    owed: bool,
    /// The client's position is wanted as soon as it moves: the server is about to end.
    pressing: bool,
    /// Time to the next progress.
    interval: Duration,
    /// The highest position of a keepalive. A COMMIT tells its own position too, but not what was filtered out
    /// after it.
    told: Lsn,
}

impl Keepalives {
    /// Timers of a stream that begins now. The client was told nothing, so a keepalive is due at once.
    pub(crate) fn new(timeout: Option<Duration>, now: Instant) -> Self {
        Self {
            timeout,
            last_received: now,
            last_sent: None,
            asked: false,
            owed: false,
            pressing: false,
            interval: PROGRESS_INTERVAL,
            told: Lsn::INVALID,
        }
    }

    /// Something came from the client.
    pub(crate) fn received(&mut self, now: Instant, reply_requested: bool) {
        self.last_received = now;
        self.asked = false;
        self.owed |= reply_requested;
    }

    /// From now on the client is asked for its position again and again.
    pub(crate) const fn press(&mut self) {
        self.pressing = true;
        self.interval = PROGRESS_INTERVAL;
    }

    /// Changes were put into the stream: what comes behind them is told soon.
    pub(crate) const fn sent_changes(&mut self) {
        self.interval = PROGRESS_INTERVAL;
    }

    /// A keepalive was put into the stream.
    pub(crate) fn sent_keepalive(&mut self, now: Instant, end: Lsn, reply_requested: bool) {
        if self.last_sent.replace(now).is_some() && !self.pressing {
            self.interval = (self.interval * 2).min(PROGRESS_INTERVAL_MAX);
        }
        self.owed = false;
        self.asked |= reply_requested;
        self.told = self.told.max(end);
    }

    /// What to do. `sent`: everything below was sent.
    pub(crate) fn due(&self, now: Instant, sent: Lsn, line: Line) -> Due {
        let silent = now.duration_since(self.last_received);
        if self.timeout.is_some_and(|timeout| silent >= timeout) {
            return Due::TimedOut;
        }
        if line == Line::Answering {
            return Due::Nothing(self.timeout.map(|timeout| self.last_received + timeout));
        }
        if !self.asked && self.timeout.is_some_and(|timeout| silent >= timeout / 2) {
            return Due::Keepalive {
                reply_requested: true,
            };
        }
        if self.owed {
            return Due::Keepalive {
                reply_requested: false,
            };
        }
        let tell = sent > self.told || self.last_sent.is_none();
        let ask = self.pressing && !self.asked;
        let next = self.last_sent.map_or(now, |sent| sent + self.interval);
        let progress = (line == Line::Idle && (tell || ask)).then_some(next);
        match progress {
            Some(at) if at <= now => Due::Keepalive {
                reply_requested: ask,
            },
            later => Due::Nothing(earlier(later, self.next_timer())),
        }
    }

    /// When to look again if nothing comes before.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timeout
            .map(|timeout| self.last_received + if self.asked { timeout } else { timeout / 2 })
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);
    const PLAIN: Due = Due::Keepalive {
        reply_requested: false,
    };

    #[test]
    fn the_first_goes_out_at_once() {
        let now = Instant::now();
        let timers = Keepalives::new(Some(TIMEOUT), now);
        assert_eq!(timers.due(now, Lsn(100), Line::Idle), PLAIN);
        assert_eq!(timers.due(now, Lsn::INVALID, Line::Idle), PLAIN);
        assert_eq!(
            timers.due(now, Lsn(100), Line::Busy),
            Due::Nothing(Some(now + TIMEOUT / 2))
        );
    }

    #[test]
    fn progress_is_told_when_idle_and_not_twice() {
        let now = Instant::now();
        let mut timers = Keepalives::new(None, now);
        timers.sent_keepalive(now, Lsn(100), false);
        assert_eq!(timers.due(now, Lsn(100), Line::Idle), Due::Nothing(None));
        let next = now + PROGRESS_INTERVAL;
        assert_eq!(
            timers.due(now, Lsn(300), Line::Idle),
            Due::Nothing(Some(next))
        );
        assert_eq!(timers.due(next, Lsn(300), Line::Idle), PLAIN);
        assert_eq!(timers.due(next, Lsn(300), Line::Busy), Due::Nothing(None));
    }

    #[test]
    fn who_gets_nothing_else_is_told_less_and_less_often() {
        let mut now = Instant::now();
        let mut timers = Keepalives::new(None, now);
        timers.sent_keepalive(now, Lsn(100), false);
        let mut pauses = Vec::new();
        for lsn in (101..110).map(Lsn) {
            let Due::Nothing(Some(next)) = timers.due(now, lsn, Line::Idle) else {
                panic!("it is told at once");
            };
            pauses.push(next.duration_since(now).as_millis());
            now = next;
            timers.sent_keepalive(now, lsn, false);
        }
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 900, 900, 900]);
        timers.sent_changes();
        let next = now + PROGRESS_INTERVAL;
        let due = timers.due(now, Lsn(110), Line::Idle);
        assert_eq!(due, Due::Nothing(Some(next)));
    }

    #[test]
    fn a_request_is_answered_also_while_busy() {
        let now = Instant::now();
        let mut timers = Keepalives::new(None, now);
        timers.sent_keepalive(now, Lsn(100), false);
        timers.received(now, true);
        assert_eq!(timers.due(now, Lsn(100), Line::Busy), PLAIN);
        timers.sent_keepalive(now, Lsn(100), false);
        assert_eq!(timers.due(now, Lsn(100), Line::Busy), Due::Nothing(None));
    }

    #[test]
    fn one_answer_at_a_time() {
        let now = Instant::now();
        let mut timers = Keepalives::new(Some(TIMEOUT), now);
        timers.sent_keepalive(now, Lsn(100), false);
        timers.received(now, true);
        let end = now + TIMEOUT;
        let nothing = Due::Nothing(Some(end));
        assert_eq!(timers.due(now, Lsn(100), Line::Answering), nothing);
        let half = now + TIMEOUT / 2;
        assert_eq!(timers.due(half, Lsn(100), Line::Answering), nothing);
        assert_eq!(timers.due(end, Lsn(100), Line::Answering), Due::TimedOut);
        assert_eq!(timers.due(now, Lsn(100), Line::Idle), PLAIN);
    }

    #[test]
    fn the_end_of_the_server_is_pressing() {
        let now = Instant::now();
        let mut timers = Keepalives::new(None, now);
        timers.sent_keepalive(now, Lsn(100), false);
        timers.press();
        let next = now + PROGRESS_INTERVAL;
        assert_eq!(
            timers.due(now, Lsn(100), Line::Idle),
            Due::Nothing(Some(next))
        );
        let asking = Due::Keepalive {
            reply_requested: true,
        };
        assert_eq!(timers.due(next, Lsn(100), Line::Idle), asking);
        timers.sent_keepalive(next, Lsn(100), true);
        assert_eq!(timers.due(next, Lsn(100), Line::Idle), Due::Nothing(None));
        timers.received(next, false);
        let later = next + PROGRESS_INTERVAL;
        assert_eq!(timers.due(later, Lsn(100), Line::Idle), asking);
    }

    #[test]
    fn silence_is_asked_about_then_given_up() {
        let start = Instant::now();
        let mut timers = Keepalives::new(Some(TIMEOUT), start);
        timers.sent_keepalive(start, Lsn(100), false);
        let half = start + TIMEOUT / 2;
        assert_eq!(
            timers.due(start, Lsn(100), Line::Idle),
            Due::Nothing(Some(half))
        );
        let asking = Due::Keepalive {
            reply_requested: true,
        };
        assert_eq!(timers.due(half, Lsn(100), Line::Busy), asking);
        timers.sent_keepalive(half, Lsn(100), true);
        let end = start + TIMEOUT;
        assert_eq!(
            timers.due(half, Lsn(100), Line::Idle),
            Due::Nothing(Some(end))
        );
        assert_eq!(timers.due(end, Lsn(100), Line::Idle), Due::TimedOut);
        // Any message from the client starts the clock again.
        timers.received(end, false);
        assert_eq!(
            timers.due(end, Lsn(100), Line::Idle),
            Due::Nothing(Some(end + TIMEOUT / 2))
        );
    }
}
