//! Where all chance comes from.

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators): one word of state, any seed is good.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same seed, the same numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.number() % end }
    }

    /// A place in a list of `length` items.
    pub fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or_default()
    }

    /// True `percent` times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// True once in `times`; never, if that is 0.
    pub fn once_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }
}
