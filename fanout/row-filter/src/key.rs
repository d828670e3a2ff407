//! Values as keys of an index: what an equality operator calls equal has the same key.

use std::hash::{DefaultHasher, Hash, Hasher};

use bumpalo::Bump;

use crate::column;
use crate::evaluate::Scratch;
use crate::functions::compare::unpadded;
use crate::kind::Kind;
use crate::types::numeric::Numeric;
use crate::value::Value;

/// How a column's text becomes a key. Keys of different kinds have nothing to do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyKind {
    pub(crate) kind: Kind,
    /// Blanks at the end do not count: `character(n)`.
    pub(crate) padded: bool,
}

impl KeyKind {
    /// The key of a column's text. `None` if the text can't be read: whoever evaluates it says why.
    pub fn key(self, text: &[u8], scratch: &mut Scratch) -> Option<u32> {
        let arena: &Bump = scratch.begin();
        let value = column::parse(self.kind, text, arena).ok()?;
        key(&value, self.padded)
    }
}

/// The key of a value; none of nulls, arrays and documents. Different values may have the same key.
pub(crate) fn key(value: &Value<'_>, padded: bool) -> Option<u32> {
    let mut hasher = DefaultHasher::new();
    match value {
        Value::Bool(value) => value.hash(&mut hasher),
        Value::Int(value) => value.hash(&mut hasher),
        Value::Float4(value) => float(f64::from(*value)).hash(&mut hasher),
        Value::Float8(value) => float(*value).hash(&mut hasher),
        Value::Bytes(bytes) if padded => unpadded(bytes).hash(&mut hasher),
        Value::Bytes(bytes) => bytes.hash(&mut hasher),
        Value::Numeric(number) => numeric(number, &mut hasher),
        Value::TimeTz(value) => (value.utc(), value.zone).hash(&mut hasher),
        Value::Interval(value) => value.span().hash(&mut hasher),
        Value::Inet(value) => (value.v6, value.bits, value.address).hash(&mut hasher),
        Value::Null | Value::Array(_) | Value::Json(_) => return None,
    }
    // The lower half is as good as the upper one.
    u32::try_from(hasher.finish() & u64::from(u32::MAX)).ok()
}

/// Both zeros are equal, and all that are not a number.
const fn float(value: f64) -> u64 {
    if value.is_nan() {
        u64::MAX
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}

/// Without the scale: 1.0 is 1.00.
fn numeric(number: &Numeric<'_>, hasher: &mut DefaultHasher) {
    std::mem::discriminant(&number.class).hash(hasher);
    (number.negative, number.weight, number.digits).hash(hasher);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::compare::equal;
    use crate::kind::Base;

    const TEXTS: [(Base, &[&str]); 12] = [
        (Base::Int4, &["0", "-1", "7", "2147483647"]),
        (Base::Bool, &["t", "f"]),
        (Base::Float8, &["0", "-0", "NaN", "1.5", "Infinity"]),
        (Base::Float4, &["0", "-0", "NaN", "1.5", "-Infinity"]),
        (
            Base::Numeric,
            &[
                "0",
                "0.00",
                "1",
                "1.0",
                "1.00",
                "-1",
                "10000",
                "10000.0",
                "0.0001",
                "NaN",
                "Infinity",
                "-Infinity",
                "100",
                "1e0",
            ],
        ),
        (Base::Text, &["", "a", "a ", "ä"]),
        (Base::Bpchar, &["", "a", "a ", "a   ", " a"]),
        (
            Base::Interval,
            &["1 day", "24:00:00", "1 mon", "30 days", "-1 mons"],
        ),
        (
            Base::TimeTz,
            &[
                "12:00:00+00",
                "13:00:00+01",
                "12:00:00-01",
                "12:00:00+00:30",
            ],
        ),
        (
            Base::Inet,
            &["10.0.0.1", "10.0.0.1/32", "10.0.0.1/24", "::1", "::1/128"],
        ),
        (
            Base::Timestamp,
            &["2024-02-29 12:00:00", "infinity", "-infinity"],
        ),
        (Base::Date, &["2024-02-29", "infinity"]),
    ];

    #[test]
    fn what_is_equal_has_the_same_key() {
        let arena = Bump::new();
        for (base, texts) in TEXTS {
            let parse =
                |text: &&'static str| column::parse(base.scalar(), text.as_bytes(), &arena).ok();
            let values: Vec<Value<'_>> = texts.iter().filter_map(parse).collect();
            assert!(values.len() > 1, "{base:?}");
            let padded = base == Base::Bpchar;
            for left in &values {
                for right in &values {
                    // Hashes of so few values do not meet by chance, or for ever.
                    let same = key(left, padded) == key(right, padded);
                    assert_eq!(same, equal(base, left, right), "{left:?} {right:?}");
                }
            }
        }
    }
}
