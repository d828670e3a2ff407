//! The time by which segments grow old.
//!
//! Ages come from the files' times, so they need the time of day, which somebody may set. A clock that jumps ahead must
//! not make old at once what slots and operators still want, so it is believed only as far as this process has lived:
//! time that it did not see pass counts after the next start. A clock that is put back is believed, which deletes less.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use storage_format::faults;

/// What a clock may run ahead of the time that passes.
const TOLERANCE: Duration = Duration::from_secs(60);

/// Time of day that does not run ahead of the time that passes.
#[derive(Debug)]
pub(super) struct AgeClock {
    started: Instant,
    started_at: SystemTime,
    jumped: AtomicBool,
}

impl AgeClock {
    pub(super) fn start() -> Self {
        Self {
            started: Instant::now(),
            started_at: time_of_day(),
            jumped: AtomicBool::new(false),
        }
    }

    pub(super) fn now(&self) -> SystemTime {
        self.at(self.started.elapsed(), time_of_day())
    }

    fn at(&self, elapsed: Duration, time_of_day: SystemTime) -> SystemTime {
        let passed = self.started_at + elapsed;
        let ahead = time_of_day.duration_since(passed).unwrap_or_default();
        let jumped = ahead > TOLERANCE;
        if jumped && !self.jumped.swap(jumped, Ordering::Relaxed) {
            tracing::warn!(
                ?ahead,
                "the clock has jumped ahead; segments grow old without that until the next start"
            );
        }
        time_of_day.min(passed)
    }
}

fn time_of_day() -> SystemTime {
    SystemTime::now() + faults::clock_jump()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_ahead_is_not_believed_and_one_back_is() {
        let clock = AgeClock::start();
        let minute = Duration::from_secs(60);
        let begun = clock.started_at;
        assert_eq!(clock.at(minute, begun + minute), begun + minute);
        assert_eq!(clock.at(minute, begun + minute * 600), begun + minute);
        assert_eq!(clock.at(minute, begun - minute * 600), begun - minute * 600);
    }
}
