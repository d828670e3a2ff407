//! `numeric`: its value, its text, its bytes in a constant, its order.
//!
//! Digits are base 10000, as PostgreSQL has them: the first stands for `digit * 10000^weight`.

use std::cmp::Ordering;

use bumpalo::Bump;

/// What a numeric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    NegativeInfinity,
    Finite,
    Infinity,
    NaN,
}

/// A value. No zero digits at either end; zero has no digits, weight 0 and no sign.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numeric<'a> {
    pub(crate) class: Class,
    pub(crate) negative: bool,
    pub(crate) weight: i32,
    /// Decimal digits behind the point that are shown.
    pub(crate) scale: i32,
    pub(crate) digits: &'a [u16],
}

/// The same, of a constant.
#[derive(Clone, Debug)]
pub(crate) struct OwnedNumeric {
    class: Class,
    negative: bool,
    weight: i32,
    scale: i32,
    digits: Box<[u16]>,
}

impl OwnedNumeric {
    pub(crate) fn get(&self) -> Numeric<'_> {
        Numeric {
            class: self.class,
            negative: self.negative,
            weight: self.weight,
            scale: self.scale,
            digits: &self.digits,
        }
    }
}

impl From<Numeric<'_>> for OwnedNumeric {
    fn from(number: Numeric<'_>) -> Self {
        Self {
            class: number.class,
            negative: number.negative,
            weight: number.weight,
            scale: number.scale,
            digits: number.digits.into(),
        }
    }
}

impl<'a> Numeric<'a> {
    pub(crate) const ZERO: Self = Self::finite(false, 0, 0, &[]);

    pub(crate) const fn special(class: Class) -> Self {
        Self {
            class,
            negative: false,
            weight: 0,
            scale: 0,
            digits: &[],
        }
    }

    pub(crate) const fn finite(negative: bool, weight: i32, scale: i32, digits: &'a [u16]) -> Self {
        Self {
            class: Class::Finite,
            negative,
            weight,
            scale,
            digits,
        }
    }

    /// Takes zero digits away at both ends.
    pub(crate) fn normalised(negative: bool, weight: i32, scale: i32, digits: &'a [u16]) -> Self {
        let lead = digits.iter().take_while(|digit| **digit == 0).count();
        let digits = digits.get(lead..).unwrap_or_default();
        let tail = digits.iter().rev().take_while(|digit| **digit == 0).count();
        let digits = digits
            .get(..digits.len().saturating_sub(tail))
            .unwrap_or_default();
        if digits.is_empty() {
            return Self::finite(false, 0, scale, digits);
        }
        let lead = i32::try_from(lead).unwrap_or(i32::MAX);
        Self::finite(negative, weight.saturating_sub(lead), scale, digits)
    }

    pub(crate) const fn is_zero(&self) -> bool {
        matches!(self.class, Class::Finite) && self.digits.is_empty()
    }

    pub(crate) fn is_finite(&self) -> bool {
        self.class == Class::Finite
    }

    /// -1, 0, 1; NaN has no sign.
    pub(crate) const fn signum(&self) -> i32 {
        match self.class {
            Class::NegativeInfinity => -1,
            Class::Infinity => 1,
            Class::NaN => 0,
            Class::Finite if self.digits.is_empty() => 0,
            Class::Finite if self.negative => -1,
            Class::Finite => 1,
        }
    }

    pub(crate) fn negated(self) -> Self {
        match self.class {
            Class::NaN => self,
            Class::Infinity => Self::special(Class::NegativeInfinity),
            Class::NegativeInfinity => Self::special(Class::Infinity),
            Class::Finite => Self {
                negative: !self.negative && !self.digits.is_empty(),
                ..self
            },
        }
    }

    /// The digit that stands for `10000^weight`.
    pub(crate) fn digit_at(&self, weight: i32) -> u16 {
        let index = i64::from(self.weight) - i64::from(weight);
        let digit = usize::try_from(index)
            .ok()
            .and_then(|index| self.digits.get(index));
        digit.copied().unwrap_or(0)
    }

    pub(crate) fn from_int(value: i64, arena: &'a Bump) -> Self {
        let mut left = value.unsigned_abs();
        let mut digits = [0_u16; 5];
        for digit in digits.iter_mut().rev() {
            *digit = u16::try_from(left % 10_000).unwrap_or(0);
            left /= 10_000;
        }
        Self::normalised(value < 0, 4, 0, arena.alloc_slice_copy(&digits))
    }

    /// As `numeric_out` prints it.
    pub(crate) fn parse(text: &[u8], arena: &'a Bump) -> Option<Self> {
        match text {
            b"NaN" => return Some(Self::special(Class::NaN)),
            b"Infinity" => return Some(Self::special(Class::Infinity)),
            b"-Infinity" => return Some(Self::special(Class::NegativeInfinity)),
            _ => {}
        }
        let (negative, text) = match text.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let point = text.iter().position(|byte| *byte == b'.');
        let (whole, fraction) = match point {
            Some(point) => (text.get(..point)?, text.get(point + 1..)?),
            None => (text, &[][..]),
        };
        let is_digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
        if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
            return None;
        }
        let scale = i32::try_from(fraction.len()).ok()?;
        let groups = whole.len().div_ceil(4);
        let weight = i32::try_from(groups).ok()? - 1;
        let first = whole.len() % 4;
        let (head, rest) = whole.split_at(first);
        let all = std::iter::once(head)
            .filter(|head| !head.is_empty())
            .chain(rest.chunks(4))
            .map(|chunk| group(chunk, chunk.len()))
            .chain(fraction.chunks(4).map(|chunk| group(chunk, 4)));
        let count = groups + fraction.len().div_ceil(4);
        let mut all = all;
        let digits = arena.alloc_slice_fill_with(count, |_| all.next().unwrap_or(0));
        Some(Self::normalised(negative, weight, scale, digits))
    }

    /// A constant's bytes behind the varlena header, on a little-endian server.
    pub(crate) fn from_datum(bytes: &[u8], arena: &'a Bump) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<2>()?;
        let header = u16::from_le_bytes(*header);
        let (negative, scale, weight, rest) = match header & 0xC000 {
            0xC000 => {
                return Some(Self::special(match header & 0xF000 {
                    0xC000 => Class::NaN,
                    0xD000 => Class::Infinity,
                    0xF000 => Class::NegativeInfinity,
                    _ => return None,
                }));
            }
            0x8000 => {
                let low = i32::from(header & 0x003F);
                let weight = if header & 0x0040 == 0 { low } else { low - 64 };
                let scale = i32::from((header & 0x1F80) >> 7);
                (header & 0x2000 != 0, scale, weight, rest)
            }
            sign => {
                let (weight, rest) = rest.split_first_chunk::<2>()?;
                let weight = i32::from(i16::from_le_bytes(*weight));
                (sign == 0x4000, i32::from(header & 0x3FFF), weight, rest)
            }
        };
        if rest.len() % 2 != 0 {
            return None;
        }
        let digits = arena.alloc_slice_fill_iter(rest.chunks_exact(2).map(|pair| match pair {
            [low, high] => u16::from_le_bytes([*low, *high]),
            _ => 0,
        }));
        let valid = digits.iter().all(|digit| *digit < 10_000);
        valid.then(|| Self::normalised(negative, weight, scale, digits))
    }

    /// Appends what `numeric_out` prints.
    pub(crate) fn print(&self, out: &mut bumpalo::collections::Vec<'_, u8>) {
        match self.class {
            Class::NaN => return out.extend_from_slice(b"NaN"),
            Class::Infinity => return out.extend_from_slice(b"Infinity"),
            Class::NegativeInfinity => return out.extend_from_slice(b"-Infinity"),
            Class::Finite => {}
        }
        if self.negative {
            out.push(b'-');
        }
        let start = out.len();
        for weight in (0..=self.weight.max(0)).rev() {
            for decimal in decimals(self.digit_at(weight)) {
                if decimal != 0 || out.len() > start {
                    out.push(b'0' + decimal);
                }
            }
        }
        if out.len() == start {
            out.push(b'0');
        }
        if self.scale > 0 {
            out.push(b'.');
            let behind = (1..).flat_map(|group| decimals(self.digit_at(-group)));
            let scale = usize::try_from(self.scale).unwrap_or(0);
            out.extend(behind.take(scale).map(|decimal| b'0' + decimal));
        }
    }
}

/// Up to four decimal digits, filled up with zeros to `width`.
fn group(chunk: &[u8], width: usize) -> u16 {
    let mut value = 0;
    for index in 0..width {
        let digit = chunk.get(index).map_or(0, |byte| byte.wrapping_sub(b'0'));
        value = value * 10 + u16::from(digit % 10);
    }
    value
}

fn decimals(digit: u16) -> [u8; 4] {
    let part = |divisor| u8::try_from(digit / divisor % 10).unwrap_or(0);
    [part(1000), part(100), part(10), part(1)]
}

/// PostgreSQL's order: NaN equals NaN and is above all.
pub(crate) fn compare(left: &Numeric<'_>, right: &Numeric<'_>) -> Ordering {
    let rank = |number: &Numeric<'_>| match number.class {
        Class::NegativeInfinity => 0,
        Class::Finite => 1,
        Class::Infinity => 2,
        Class::NaN => 3,
    };
    let ranks = rank(left).cmp(&rank(right));
    if ranks.is_ne() || !left.is_finite() {
        return ranks;
    }
    let signs = left.signum().cmp(&right.signum());
    if signs.is_ne() {
        return signs;
    }
    let magnitudes = compare_magnitude(left, right);
    if left.negative {
        magnitudes.reverse()
    } else {
        magnitudes
    }
}

/// Order of the absolute values of two finite numbers.
pub(crate) fn compare_magnitude(left: &Numeric<'_>, right: &Numeric<'_>) -> Ordering {
    match (left.digits.is_empty(), right.digits.is_empty()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        // No zeros at either end, so digits compare like words.
        (false, false) => left
            .weight
            .cmp(&right.weight)
            .then_with(|| left.digits.cmp(right.digits)),
    }
}
