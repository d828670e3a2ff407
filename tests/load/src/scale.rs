//! How large a run is.

use std::time::Duration;

/// A factor on all sizes: 1 is what the targets are about, a hundredth runs in a minute and shows that the benchmark
/// works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale(f64);

/// Below this factor there are few subscribers, too.
const FEW_BELOW: f64 = 0.05;
const FEW: usize = 4;
const ROWS_MIN: f64 = 2_000.0;
const SECONDS_MIN: f64 = 2.0;

impl Scale {
    /// A factor between 0 and 1.
    pub const fn new(factor: f64) -> Self {
        Self(factor.clamp(0.0, 1.0))
    }

    /// The factor.
    pub const fn factor(self) -> f64 {
        self.0
    }

    /// Rows, of `full` in a full run; a multiple of 1,000.
    pub fn rows(self, full: u64) -> u64 {
        self.count(full, ROWS_MIN) / 1_000 * 1_000
    }

    /// Transactions, segments, connections, of `full` in a full run, but not fewer than `least`.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sizes are small and positive"
    )]
    pub fn count(self, full: u64, least: f64) -> u64 {
        (full as f64 * self.0).max(least.min(full as f64)) as u64
    }

    /// How long something is watched, of `full` in a full run.
    pub fn time(self, full: Duration) -> Duration {
        let least = SECONDS_MIN.min(full.as_secs_f64());
        Duration::from_secs_f64((full.as_secs_f64() * self.0).max(least))
    }

    /// Numbers of subscribers, of those in a full run.
    pub fn subscribers(self, full: &[usize]) -> Vec<usize> {
        let most = if self.0 < FEW_BELOW { FEW } else { usize::MAX };
        let fit: Vec<usize> = full.iter().copied().filter(|n| *n <= most).collect();
        if fit.is_empty() { vec![most] } else { fit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_factor_and_keep_their_floor() {
        assert_eq!(Scale::new(1.0).rows(1_000_000), 1_000_000);
        assert_eq!(Scale::new(0.1).rows(1_000_000), 100_000);
        assert_eq!(Scale::new(0.0001).rows(1_000_000), 2_000);
        assert_eq!(Scale::new(0.01).subscribers(&[1, 4, 16, 64]), [1, 4]);
        assert_eq!(Scale::new(0.01).subscribers(&[16]), [4]);
        assert_eq!(Scale::new(1.0).subscribers(&[1, 64]), [1, 64]);
        let minute = Duration::from_secs(60);
        assert_eq!(Scale::new(0.0).time(minute), Duration::from_secs(2));
        assert_eq!(Scale::new(0.5).time(minute), Duration::from_secs(30));
    }
}
