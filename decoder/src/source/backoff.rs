//! How long to wait before the next attempt to reach the source.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// Doubles from attempt to attempt, up to ten seconds; each wait is taken by chance from the upper half, so that
/// several decoders that lost the same server do not come back in step.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    chance: RandomState,
    drawn: u64,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self {
            next: FIRST,
            chance: RandomState::new(),
            drawn: 0,
        }
    }

    /// All was well for a while: the next wait is the shortest again.
    pub(crate) const fn reset(&mut self) {
        self.next = FIRST;
    }

    /// The wait before the next attempt.
    pub(crate) fn wait(&mut self) -> Duration {
        let longest = self.next;
        self.next = (self.next * 2).min(LONGEST);
        let half = longest / 2;
        half + half.mul_f64(self.draw())
    }

    /// A number from 0 to 1. The standard library's hasher is seeded by the operating system, which is chance
    /// enough here.
    fn draw(&mut self) -> f64 {
        self.drawn += 1;
        let mut hasher = self.chance.build_hasher();
        hasher.write_u64(self.drawn);
        f64::from(u32::try_from(hasher.finish() >> 32).unwrap_or_default()) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_the_longest_and_starts_again() {
        let mut backoff = Backoff::new();
        let mut longest = FIRST;
        for _ in 0..12 {
            let wait = backoff.wait();
            assert!(
                wait >= longest / 2 && wait <= longest,
                "{wait:?} of {longest:?}"
            );
            longest = (longest * 2).min(LONGEST);
        }
        assert_eq!(longest, LONGEST);
        backoff.reset();
        assert!(backoff.wait() <= FIRST);
    }
}
