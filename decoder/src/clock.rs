//! The time, behind a small trait, so that the simulation can be the clock.

use std::fmt;
use std::time::{Duration, Instant};

use pg_proto::PgTimestamp;

/// What tells the time and lets it pass.
pub trait Clock: fmt::Debug + Send + Sync {
    /// A time to measure with.
    fn now(&self) -> Instant;
    /// The time of day.
    fn time_of_day(&self) -> PgTimestamp;
    /// Returns after `duration`.
    fn sleep(&self, duration: Duration);
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn time_of_day(&self) -> PgTimestamp {
        PgTimestamp::now()
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}
