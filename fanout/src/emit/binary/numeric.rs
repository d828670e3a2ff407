//! `numeric`: digits to the base 10,000, as `numeric_send` has them.

/// Decimal digits in one of the base.
const GROUP: usize = 4;

const POSITIVE: u16 = 0;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const INFINITY: u16 = 0xD000;
const NEGATIVE_INFINITY: u16 = 0xF000;
/// What the server reads as the scale in the header of an infinity.
const INFINITY_SCALE: u16 = 32;

/// Number of digits, weight of the first, sign, digits behind the decimal point.
fn put_head(out: &mut Vec<u8>, count: u16, weight: i16, sign: u16, scale: u16) {
    for field in [count, weight.cast_unsigned(), sign, scale] {
        out.extend_from_slice(&field.to_be_bytes());
    }
}

pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let special = match text {
        b"NaN" => Some((NAN, 0)),
        b"Infinity" => Some((INFINITY, INFINITY_SCALE)),
        b"-Infinity" => Some((NEGATIVE_INFINITY, INFINITY_SCALE)),
        _ => None,
    };
    if let Some((sign, scale)) = special {
        put_head(out, 0, 0, sign, scale);
        return Some(());
    }
    let (sign, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (NEGATIVE, digits),
        None => (POSITIVE, text),
    };
    let point = digits.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(point) => (digits.get(..point)?, digits.get(point + 1..)?),
        None => (digits, &[][..]),
    };
    let scale = u16::try_from(fraction.len()).ok()?;
    if whole.is_empty() || (point.is_some() && fraction.is_empty()) {
        return None;
    }
    let head_at = out.len();
    put_head(out, 0, 0, POSITIVE, scale);
    // Groups of digits before the point are counted from the point to the left, behind it to the right.
    let (first, full) = whole.split_at(whole.len() % GROUP);
    let mut groups = Groups {
        out,
        written: 0,
        trailing_zeros: 0,
        place: i32::try_from(whole.len().div_ceil(GROUP)).ok()?,
        weight: 0,
    };
    if !first.is_empty() {
        groups.push(value(first, first.len())?);
    }
    for group in full.chunks(GROUP).chain(fraction.chunks(GROUP)) {
        groups.push(value(group, GROUP)?);
    }
    let (count, weight) = groups.finish()?;
    let sign = if count == 0 { POSITIVE } else { sign };
    let mut head = Vec::with_capacity(8);
    put_head(&mut head, count, weight, sign, scale);
    out.get_mut(head_at..head_at + head.len())?
        .copy_from_slice(&head);
    Some(())
}

/// The value of some decimal digits, as if zeros filled them up to `length`.
fn value(digits: &[u8], length: usize) -> Option<u16> {
    let mut value = 0;
    for place in 0..length {
        let digit = digits.get(place).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u16::from(digit - b'0');
    }
    Some(value)
}

/// Writes digits without the zeros before the first and behind the last one that is none.
struct Groups<'a> {
    out: &'a mut Vec<u8>,
    written: u16,
    trailing_zeros: u16,
    /// One more than the weight of the next digit.
    place: i32,
    weight: i32,
}

impl Groups<'_> {
    fn push(&mut self, digit: u16) {
        self.place -= 1;
        if digit == 0 {
            if self.written > 0 {
                self.trailing_zeros = self.trailing_zeros.saturating_add(1);
            }
            return;
        }
        if self.written == 0 {
            self.weight = self.place;
        }
        for _ in 0..self.trailing_zeros {
            self.out.extend_from_slice(&[0, 0]);
        }
        self.written = self.written.saturating_add(self.trailing_zeros + 1);
        self.trailing_zeros = 0;
        self.out.extend_from_slice(&digit.to_be_bytes());
    }

    /// Number and weight.
    fn finish(self) -> Option<(u16, i16)> {
        Some((self.written, i16::try_from(self.weight).ok()?))
    }
}
