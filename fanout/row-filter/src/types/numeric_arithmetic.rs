//! Arithmetic of `numeric`: exact for `+ - *` and the remainder, PostgreSQL's choice of digits for `/`.

use std::cmp::Ordering;

use bumpalo::Bump;

use super::numeric::{Class, Numeric, compare_magnitude};
use crate::error::FilterError;

/// Limits of the stored form (`NUMERIC_DSCALE_MAX`, a 16-bit weight).
const SCALE_MAX: i32 = 16_383;
const WEIGHT_MAX: i32 = 32_767;
/// `NUMERIC_MIN_SIG_DIGITS`, `NUMERIC_MAX_DISPLAY_SCALE`.
const QUOTIENT_DIGITS_MIN: i32 = 16;
const QUOTIENT_SCALE_MAX: i32 = 1000;

type Result<'a> = std::result::Result<Numeric<'a>, FilterError>;

const fn nan<'a>() -> Numeric<'a> {
    Numeric::special(Class::NaN)
}

const fn infinity<'a>(signum: i32) -> Numeric<'a> {
    match signum {
        0 => nan(),
        1.. => Numeric::special(Class::Infinity),
        _ => Numeric::special(Class::NegativeInfinity),
    }
}

fn checked(number: Numeric<'_>) -> Result<'_> {
    if number.weight > WEIGHT_MAX || number.scale > SCALE_MAX {
        return Err(FilterError::new("22003", "value overflows numeric format"));
    }
    Ok(number)
}

pub(crate) fn add<'a>(left: &Numeric<'a>, right: &Numeric<'a>, arena: &'a Bump) -> Result<'a> {
    if !left.is_finite() || !right.is_finite() {
        let either = |class| left.class == class || right.class == class;
        return Ok(
            match (either(Class::Infinity), either(Class::NegativeInfinity)) {
                _ if either(Class::NaN) => nan(),
                (true, true) => nan(),
                (true, false) => infinity(1),
                _ => infinity(-1),
            },
        );
    }
    let scale = left.scale.max(right.scale);
    let sum = if left.negative == right.negative {
        add_magnitudes(left, right, left.negative, scale, arena)
    } else {
        match compare_magnitude(left, right) {
            Ordering::Equal => Numeric {
                scale,
                ..Numeric::ZERO
            },
            Ordering::Greater => subtract_magnitudes(left, right, left.negative, scale, arena),
            Ordering::Less => subtract_magnitudes(right, left, right.negative, scale, arena),
        }
    };
    checked(sum)
}

pub(crate) fn subtract<'a>(left: &Numeric<'a>, right: &Numeric<'a>, arena: &'a Bump) -> Result<'a> {
    add(left, &right.negated(), arena)
}

/// The lowest weight that a number has a digit at.
fn lowest(number: &Numeric<'_>) -> i32 {
    let count = i32::try_from(number.digits.len()).unwrap_or(i32::MAX);
    number.weight.saturating_sub(count.saturating_sub(1))
}

/// Highest and lowest weight of two numbers.
fn span(left: &Numeric<'_>, right: &Numeric<'_>) -> (i32, i32) {
    let high = left.weight.max(right.weight);
    (high, lowest(left).min(lowest(right)).min(high))
}

fn combine((high, low): (i32, i32), arena: &Bump, mut digit: impl FnMut(i32) -> u16) -> &[u16] {
    let count = usize::try_from(i64::from(high) - i64::from(low) + 1).unwrap_or(0);
    let digits = arena.alloc_slice_fill_copy(count, 0);
    for (weight, place) in (low..=high).zip(digits.iter_mut().rev()) {
        *place = digit(weight);
    }
    digits
}

fn add_magnitudes<'a>(
    left: &Numeric<'a>,
    right: &Numeric<'a>,
    negative: bool,
    scale: i32,
    arena: &'a Bump,
) -> Numeric<'a> {
    let (high, low) = span(left, right);
    let mut carry = 0;
    let digits = combine((high + 1, low), arena, |weight| {
        let sum = left.digit_at(weight) + right.digit_at(weight) + carry;
        carry = u16::from(sum >= 10_000);
        sum % 10_000
    });
    Numeric::normalised(negative, high + 1, scale, digits)
}

/// `large - small`, both without their signs.
fn subtract_magnitudes<'a>(
    large: &Numeric<'a>,
    small: &Numeric<'a>,
    negative: bool,
    scale: i32,
    arena: &'a Bump,
) -> Numeric<'a> {
    let (high, low) = span(large, small);
    let mut borrow = 0;
    let digits = combine((high, low), arena, |weight| {
        let minuend = large.digit_at(weight) + 10_000;
        let difference = minuend.saturating_sub(small.digit_at(weight) + borrow);
        borrow = u16::from(difference < 10_000);
        difference % 10_000
    });
    Numeric::normalised(negative, high, scale, digits)
}

pub(crate) fn multiply<'a>(left: &Numeric<'a>, right: &Numeric<'a>, arena: &'a Bump) -> Result<'a> {
    if !left.is_finite() || !right.is_finite() {
        let not_a_number = left.class == Class::NaN || right.class == Class::NaN;
        let signum = left.signum() * right.signum();
        return Ok(infinity(if not_a_number { 0 } else { signum }));
    }
    let scale = left.scale + right.scale;
    let negative = left.negative != right.negative;
    let count = left.digits.len() + right.digits.len();
    let sums: &mut [u64] = arena.alloc_slice_fill_copy(count, 0);
    // A sum has at most 40,000 products of less than 10^8.
    for (index, digit) in left.digits.iter().enumerate() {
        let row = sums.get_mut(index + 1..).unwrap_or_default();
        for (sum, other) in row.iter_mut().zip(right.digits) {
            *sum += u64::from(*digit) * u64::from(*other);
        }
    }
    let digits = arena.alloc_slice_fill_copy(count, 0_u16);
    let mut carry = 0;
    for (digit, sum) in digits.iter_mut().zip(sums.iter()).rev() {
        let sum = sum + carry;
        *digit = u16::try_from(sum % 10_000).unwrap_or(0);
        carry = sum / 10_000;
    }
    let weight = left.weight + right.weight + 1;
    let product = Numeric::normalised(negative, weight, scale, digits);
    if scale > SCALE_MAX {
        return checked(round(&product, SCALE_MAX, arena));
    }
    checked(product)
}

/// Quotient of the absolute values, its digits down to `10000^lowest` and cut there. The divisor is not zero.
fn quotient<'a>(
    left: &Numeric<'a>,
    right: &Numeric<'a>,
    lowest_weight: i32,
    negative: bool,
    scale: i32,
    arena: &'a Bump,
) -> Numeric<'a> {
    let weight = left.weight - right.weight;
    let count = usize::try_from(i64::from(weight) - i64::from(lowest_weight) + 1).unwrap_or(0);
    if count == 0 || left.digits.is_empty() {
        return Numeric {
            scale,
            ..Numeric::ZERO
        };
    }
    let divisor = right.digits;
    // The remainder has one digit more than the divisor: it stays below 10000 times the divisor.
    let width = divisor.len() + 1;
    let remainder: &mut [i64] = arena.alloc_slice_fill_copy(width, 0);
    let digits = arena.alloc_slice_fill_copy(count, 0_u16);
    let head = leading(divisor.iter().map(|digit| i64::from(*digit)));
    let mut incoming = left.digits.iter();
    // The first digits of the dividend, as many as the divisor has but for the last.
    for _ in 1..divisor.len() {
        shift_in(remainder, incoming.next());
    }
    for place in digits.iter_mut() {
        shift_in(remainder, incoming.next());
        let mut digit = 0_i64;
        // Each guess is too small or exact, so a few rounds leave a remainder below the divisor.
        while at_least(remainder, divisor) {
            let top = leading_with_overflow(remainder);
            let guess = (top / (head + 1)).max(1);
            digit += guess;
            take_multiple(remainder, divisor, guess);
        }
        *place = u16::try_from(digit).unwrap_or(0);
    }
    Numeric::normalised(negative, weight, scale, digits)
}

/// The first three digits as one number.
fn leading(mut digits: impl Iterator<Item = i64>) -> i64 {
    (0..3).fold(0, |value, _| value * 10_000 + digits.next().unwrap_or(0))
}

/// The same of a remainder, whose first digit stands before the divisor's first.
fn leading_with_overflow(remainder: &[i64]) -> i64 {
    let mut digits = remainder.iter().copied();
    let first = digits.next().unwrap_or(0);
    first * 1_000_000_000_000 + leading(digits)
}

fn shift_in(remainder: &mut [i64], digit: Option<&u16>) {
    remainder.rotate_left(1);
    if let Some(last) = remainder.last_mut() {
        *last = digit.map_or(0, |digit| i64::from(*digit));
    }
}

fn at_least(remainder: &[i64], divisor: &[u16]) -> bool {
    let Some((first, rest)) = remainder.split_first() else {
        return false;
    };
    *first > 0
        || rest
            .iter()
            .copied()
            .ge(divisor.iter().map(|digit| i64::from(*digit)))
}

fn take_multiple(remainder: &mut [i64], divisor: &[u16], times: i64) {
    let mut carry = 0;
    let digits = divisor.iter().rev().map(|digit| i64::from(*digit));
    for (place, digit) in remainder.iter_mut().rev().zip(digits.chain([0])) {
        let value = *place - digit * times + carry;
        *place = value.rem_euclid(10_000);
        carry = value.div_euclid(10_000);
    }
}

pub(crate) fn divide<'a>(left: &Numeric<'a>, right: &Numeric<'a>, arena: &'a Bump) -> Result<'a> {
    if let Some(special) = special_quotient(left, right)? {
        return Ok(special);
    }
    let first = |number: &Numeric<'_>| number.digits.first().copied().unwrap_or(0);
    let weight = |number: &Numeric<'_>| if number.is_zero() { 0 } else { number.weight };
    let below = i32::from(first(left) <= first(right));
    let quotient_weight = weight(left) - weight(right) - below;
    let scale = (QUOTIENT_DIGITS_MIN - quotient_weight * 4)
        .max(left.scale)
        .max(right.scale)
        .clamp(0, QUOTIENT_SCALE_MAX);
    let negative = left.negative != right.negative;
    let lowest_weight = -(scale / 4) - 2;
    let cut = quotient(left, right, lowest_weight, negative, scale, arena);
    checked(round(&cut, scale, arena))
}

/// `div(a, b)`: the quotient without its fraction.
pub(crate) fn divide_whole<'a>(
    left: &Numeric<'a>,
    right: &Numeric<'a>,
    arena: &'a Bump,
) -> Result<'a> {
    if let Some(special) = special_quotient(left, right)? {
        return Ok(special);
    }
    let negative = left.negative != right.negative;
    checked(quotient(left, right, 0, negative, 0, arena))
}

pub(crate) fn remainder<'a>(
    left: &Numeric<'a>,
    right: &Numeric<'a>,
    arena: &'a Bump,
) -> Result<'a> {
    if !left.is_finite() || !right.is_finite() {
        return Ok(match (left.class, right.class) {
            (Class::NaN, _) | (_, Class::NaN) => nan(),
            (Class::Finite, _) => *left,
            (_, Class::Finite) if right.is_zero() => return Err(FilterError::division_by_zero()),
            _ => nan(),
        });
    }
    if right.is_zero() {
        return Err(FilterError::division_by_zero());
    }
    let negative = left.negative != right.negative;
    let whole = quotient(left, right, 0, negative, 0, arena);
    let product = multiply(&whole, right, arena)?;
    subtract(left, &product, arena)
}

/// The quotient if one side is not finite; an error if the divisor is zero.
fn special_quotient<'a>(
    left: &Numeric<'a>,
    right: &Numeric<'a>,
) -> std::result::Result<Option<Numeric<'a>>, FilterError> {
    if left.class == Class::NaN || right.class == Class::NaN {
        return Ok(Some(nan()));
    }
    match (left.is_finite(), right.is_finite()) {
        (false, false) => Ok(Some(nan())),
        (_, true) if right.is_zero() => Err(FilterError::division_by_zero()),
        (false, true) => Ok(Some(infinity(left.signum() * right.signum()))),
        (true, false) => Ok(Some(Numeric::ZERO)),
        (true, true) => Ok(None),
    }
}

/// Rounds a finite number half away from zero to `scale` digits behind the point, which is not negative.
pub(crate) fn round<'a>(number: &Numeric<'a>, scale: i32, arena: &'a Bump) -> Numeric<'a> {
    let cut = truncate(number, scale, arena);
    let next = decimal_behind(number, scale);
    if next < 5 {
        return cut;
    }
    let unit_weight = -((scale + 3) / 4);
    let unit = [1_u16, 1000, 100, 10];
    let unit = usize::try_from(scale.rem_euclid(4))
        .ok()
        .and_then(|index| unit.get(index));
    let digits = arena.alloc_slice_copy(&[unit.copied().unwrap_or(1)]);
    let unit = Numeric::finite(false, unit_weight, scale, digits);
    add_magnitudes(&cut, &unit, number.negative, scale, arena)
}

/// Cuts a finite number to `scale` digits behind the point.
pub(crate) fn truncate<'a>(number: &Numeric<'a>, scale: i32, arena: &'a Bump) -> Numeric<'a> {
    let last_weight = -((scale + 3) / 4);
    let keep = i64::from(number.weight) - i64::from(last_weight) + 1;
    let keep = usize::try_from(keep).unwrap_or(0).min(number.digits.len());
    let digits = arena.alloc_slice_copy(number.digits.get(..keep).unwrap_or_default());
    let ends_there = lowest(number) <= last_weight;
    if let Some(last) = digits.last_mut().filter(|_| ends_there) {
        let unit = match scale.rem_euclid(4) {
            1 => 1000,
            2 => 100,
            3 => 10,
            _ => 1,
        };
        *last -= *last % unit;
    }
    Numeric::normalised(number.negative, number.weight, scale, digits)
}

/// The decimal digit right behind `scale` digits.
fn decimal_behind(number: &Numeric<'_>, scale: i32) -> u16 {
    let digit = number.digit_at(-(scale / 4) - 1);
    match scale.rem_euclid(4) {
        0 => digit / 1000,
        1 => digit / 100 % 10,
        2 => digit / 10 % 10,
        _ => digit % 10,
    }
}

/// The whole number next to it, towards the given infinity.
pub(crate) fn whole<'a>(number: &Numeric<'a>, up: bool, arena: &'a Bump) -> Numeric<'a> {
    if !number.is_finite() {
        return *number;
    }
    let cut = truncate(number, 0, arena);
    let exact = compare_magnitude(&cut, number).is_eq();
    if exact || number.negative == up {
        return cut;
    }
    let one = Numeric::finite(false, 0, 0, arena.alloc_slice_copy(&[1]));
    add_magnitudes(&cut, &one, number.negative, 0, arena)
}

/// The value rounded to a whole number, if it is within 64 bits.
pub(crate) fn to_int(number: &Numeric<'_>, arena: &Bump) -> Option<i64> {
    let local = arena.alloc_slice_copy(number.digits);
    let number = Numeric {
        digits: local,
        ..*number
    };
    let rounded = round(&number, 0, arena);
    if rounded.weight > 4 {
        return None;
    }
    let value = (0..=rounded.weight).rev().fold(0_i128, |value, weight| {
        value * 10_000 + i128::from(rounded.digit_at(weight))
    });
    i64::try_from(if rounded.negative { -value } else { value }).ok()
}
