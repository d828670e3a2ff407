//! Mutations by seed, for a machine without a coverage-guided fuzzer.

use simulation::random::Random;

/// Numbers at which lengths and counts break.
const INTERESTING: [u64; 10] = [
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    u64::MAX,
];

/// Makes inputs of other inputs.
#[derive(Debug)]
pub struct Mutator(Random);

impl Mutator {
    /// The same seed, the same mutations.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// One of `inputs`, changed in some places.
    pub fn mutate(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let place = self.0.place(inputs.len());
        let mut bytes = inputs.get(place).cloned().unwrap_or_default();
        for _ in 0..=self.0.below(4) {
            self.change(&mut bytes, inputs);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, inputs: &[Vec<u8>]) {
        let random = &mut self.0;
        let at = random.place(bytes.len() + 1);
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.number().to_le_bytes()[0]),
            2 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            3 if at < bytes.len() => bytes[at] = random.number().to_le_bytes()[0],
            4 => {
                let number = INTERESTING[random.place(INTERESTING.len())];
                let width = 1 << random.below(4);
                let value = if random.chance(50) {
                    number.to_le_bytes()[..width].to_vec()
                } else {
                    number.to_be_bytes()[8 - width..].to_vec()
                };
                let end = (at + width).min(bytes.len());
                bytes.splice(at..end, value);
            }
            5 => {
                let end = at + random.place(bytes.len() - at + 1).min(64);
                let part = bytes[at..end].to_vec();
                let to = random.place(bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            6 => {
                let end = at + random.place(bytes.len() - at + 1).min(64);
                bytes.drain(at..end);
            }
            _ => {
                let other = &inputs[random.place(inputs.len())];
                let from = random.place(other.len() + 1);
                let end = from + random.place(other.len() - from + 1).min(256);
                bytes.splice(at..at, other[from..end].iter().copied());
            }
        }
    }
}
