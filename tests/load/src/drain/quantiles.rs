//! Quantiles of many measured times.

use serde::{Deserialize, Serialize};

/// Some quantiles, in the unit of the values. All 0 if there were no values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many values there were.
    pub count: usize,
    /// Half of them are not larger.
    pub p50: f64,
    /// 99 of 100 are not larger.
    pub p99: f64,
    /// 999 of 1,000 are not larger.
    pub p999: f64,
    /// The largest.
    pub max: f64,
}

impl Quantiles {
    /// Of all these values, which are put in order.
    pub fn of(values: &mut [u32]) -> Self {
        values.sort_unstable();
        let at = |per_thousand: usize| {
            let index = (values.len() * per_thousand).div_ceil(1_000).max(1) - 1;
            values.get(index).copied().map_or(0.0, f64::from)
        };
        Self {
            count: values.len(),
            p50: at(500),
            p99: at(990),
            p999: at(999),
            max: at(1_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_there() {
        let mut values: Vec<u32> = (1..=1_000).rev().collect();
        let found = Quantiles::of(&mut values);
        assert_eq!((found.p50, found.p99), (500.0, 990.0));
        assert_eq!(
            (found.p999, found.max, found.count),
            (999.0, 1_000.0, 1_000)
        );
        assert_eq!(Quantiles::of(&mut [7]).p999, 7.0);
        assert_eq!(Quantiles::of(&mut []), Quantiles::default());
    }
}
