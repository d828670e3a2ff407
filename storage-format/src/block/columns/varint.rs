//! Numbers of as many bytes as they need: seven bits each, lowest first; the eighth says that more follow.

/// In a byte that is not a number's last.
const MORE: u8 = 0x80;

/// Appends a number.
pub(super) fn push(column: &mut Vec<u8>, mut value: u64) {
    while value >= u64::from(MORE) {
        column.push(low_bits(value) | MORE);
        value >>= 7;
    }
    column.push(low_bits(value));
}

const fn low_bits(value: u64) -> u8 {
    (value & 0x7F) as u8
}

/// Small for what is a little more or a little less than before.
pub(super) const fn difference(value: u64, before: u64) -> u64 {
    let difference = value.wrapping_sub(before).cast_signed();
    ((difference << 1) ^ (difference >> 63)).cast_unsigned()
}

/// The inverse of [`difference`].
pub(super) const fn behind(before: u64, difference: u64) -> u64 {
    let sign = (difference & 1).wrapping_neg();
    before.wrapping_add((difference >> 1) ^ sign)
}

/// Takes the numbers of a column. One without bytes has zeros, as many as are asked for.
pub(super) struct Numbers<'a> {
    rest: &'a [u8],
    zeros: bool,
}

impl<'a> Numbers<'a> {
    pub(super) const fn new(column: &'a [u8]) -> Self {
        Self {
            rest: column,
            zeros: column.is_empty(),
        }
    }

    /// `None` if the column ends before, or has a number of more than 64 bits.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u64> {
        match self.rest.split_first() {
            Some((&byte, rest)) if byte < MORE => {
                self.rest = rest;
                Some(byte.into())
            }
            Some(_) => self.long(),
            None => self.zeros.then_some(0),
        }
    }

    fn long(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            let bits = u64::from(byte & !MORE);
            if bits > u64::MAX >> shift {
                return None;
            }
            value |= bits << shift;
            if byte < MORE {
                return Some(value);
            }
        }
        None
    }

    /// Whether all of it was taken.
    pub(super) const fn is_done(&self) -> bool {
        self.rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_round_trip(values in prop::collection::vec(
            prop_oneof![0_u64..300, any::<u64>(), (0_u32..64).prop_map(|shift| 1 << shift)], 1..40,
        )) {
            let mut column = Vec::new();
            for value in &values {
                push(&mut column, *value);
            }
            let mut numbers = Numbers::new(&column);
            for value in &values {
                prop_assert_eq!(numbers.next(), Some(*value));
            }
            prop_assert!(numbers.is_done());
            prop_assert_eq!(numbers.next(), None);
        }

        #[test]
        fn differences_round_trip(value: u64, before: u64) {
            prop_assert_eq!(behind(before, difference(value, before)), value);
        }
    }

    #[test]
    fn what_is_near_is_small() {
        assert_eq!(difference(5, 5), 0);
        assert_eq!(difference(4, 5), 1);
        assert_eq!(difference(6, 5), 2);
        assert_eq!(difference(0, u64::MAX), 2);
    }

    #[test]
    fn a_column_without_bytes_has_zeros() {
        let mut numbers = Numbers::new(b"");
        assert_eq!([numbers.next(), numbers.next()], [Some(0); 2]);
        assert!(numbers.is_done());
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        let most = [[0xFF; 9].as_slice(), &[1]].concat();
        assert_eq!(Numbers::new(&most).next(), Some(u64::MAX));
        for bad in [
            [[0xFF; 9].as_slice(), &[2]].concat(),
            [[0x80; 10].as_slice(), &[0]].concat(),
            vec![0x80],
        ] {
            assert_eq!(Numbers::new(&bad).next(), None, "{bad:?}");
        }
    }
}
