//! Reading what output functions print.

/// A place in a text. Every method takes what it describes, or leaves the place and says none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan<'a> {
    rest: &'a [u8],
}

impl<'a> Scan<'a> {
    pub(crate) const fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    pub(crate) const fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    pub(crate) fn eat(&mut self, text: &[u8]) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    pub(crate) fn expect(&mut self, text: &[u8]) -> Option<()> {
        self.eat(text).then_some(())
    }

    /// Decimal digits, at least one, as a number below 10^18. Also says how many there were.
    pub(crate) fn counted_number(&mut self) -> Option<(i64, usize)> {
        let count = self
            .rest
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if count == 0 || count > 18 {
            return None;
        }
        let (digits, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        let value = digits
            .iter()
            .fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
        Some((value, count))
    }

    pub(crate) fn number(&mut self) -> Option<i64> {
        self.counted_number().map(|(value, _)| value)
    }

    /// Exactly two digits.
    pub(crate) fn two(&mut self) -> Option<i64> {
        let mut ahead = *self;
        let (value, count) = ahead.counted_number()?;
        (count == 2).then(|| {
            *self = ahead;
            value
        })
    }

    /// `hh:mm:ss[.ffffff]` in microseconds. Hours may have more digits than two.
    pub(crate) fn clock(&mut self) -> Option<i64> {
        let hours = self.number()?;
        self.expect(b":")?;
        let minutes = self.two()?;
        self.expect(b":")?;
        let seconds = self.two()?;
        let mut micros = 0;
        if self.eat(b".") {
            let (fraction, count) = self.counted_number()?;
            let digits = u32::try_from(count).ok().filter(|count| *count <= 6)?;
            micros = fraction * 10_i64.pow(6 - digits);
        }
        let whole = hours
            .checked_mul(3600)?
            .checked_add(minutes * 60 + seconds)?;
        whole.checked_mul(1_000_000)?.checked_add(micros)
    }
}

/// A whole number with an optional sign.
pub(crate) fn int(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    // Below zero there is one value more.
    let value = digits.iter().try_fold(0_i64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| i64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_sub(digit)
    })?;
    if negative {
        Some(value)
    } else {
        value.checked_neg()
    }
}

/// Two hexadecimal digits a byte, into `out`, which has room for half of `text`.
pub(crate) fn hex(text: &[u8], out: &mut [u8]) -> Option<()> {
    if text.len() != out.len().checked_mul(2)? {
        return None;
    }
    for (pair, byte) in text.chunks_exact(2).zip(out) {
        let [high, low] = pair else { return None };
        *byte = hex_digit(*high)? << 4 | hex_digit(*low)?;
    }
    Some(())
}

pub(crate) const fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
