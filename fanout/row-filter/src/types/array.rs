//! Arrays: their text, their bytes in a constant, equality and containment.

use bumpalo::Bump;
use bumpalo::collections::Vec;

use super::text_scan::{Scan, int};
use crate::functions::compare::equal;
use crate::kind::{Base, Kind};
use crate::value::Value;

/// PostgreSQL's `MAXDIM`.
const DIMENSIONS_MAX: usize = 6;

/// Length and lower bound of each dimension (none if it is empty), and the elements in row-major order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array<'a> {
    pub(crate) dimensions: &'a [(i32, i32)],
    pub(crate) elements: &'a [Value<'a>],
}

impl<'a> Array<'a> {
    /// One dimension with the lower bound 1.
    pub(crate) fn of(elements: &'a [Value<'a>], arena: &'a Bump) -> Option<Self> {
        let length = i32::try_from(elements.len()).ok()?;
        let dimensions: &[(i32, i32)] = if length == 0 {
            &[]
        } else {
            arena.alloc_slice_copy(&[(length, 1)])
        };
        Some(Self {
            dimensions,
            elements,
        })
    }

    /// Same shape, same elements; null equals null.
    pub(crate) fn equals(&self, other: &Self, base: Base) -> bool {
        let same = |(left, right): (&Value<'_>, &Value<'_>)| match (left, right) {
            (Value::Null, Value::Null) => true,
            (Value::Null, _) | (_, Value::Null) => false,
            _ => equal(base, left, right),
        };
        self.dimensions == other.dimensions
            && self.elements.len() == other.elements.len()
            && self.elements.iter().zip(other.elements).all(same)
    }

    fn has(&self, wanted: &Value<'_>, base: Base) -> bool {
        let elements = self.elements.iter().filter(|element| !element.is_null());
        !wanted.is_null() && elements.into_iter().any(|one| equal(base, one, wanted))
    }

    /// `@>`: a null is contained in nothing.
    pub(crate) fn contains(&self, other: &Self, base: Base) -> bool {
        other.elements.iter().all(|element| self.has(element, base))
    }

    /// `&&`
    pub(crate) fn overlaps(&self, other: &Self, base: Base) -> bool {
        other.elements.iter().any(|element| self.has(element, base))
    }
}

/// Turns an element's text into a value.
pub(crate) type ParseElement = for<'a> fn(Base, &'a [u8], &'a Bump) -> Option<Value<'a>>;

/// As `array_out` prints it: `[0:1]={{1,NULL},{"a b",2}}`.
pub(crate) fn parse<'a>(
    base: Base,
    text: &'a [u8],
    arena: &'a Bump,
    element: ParseElement,
) -> Option<Array<'a>> {
    let mut scan = Scan::new(text);
    let bounds = bounds(&mut scan)?;
    let mut reader = Reader {
        scan,
        base,
        element,
        arena,
        elements: Vec::new_in(arena),
        lengths: [None; DIMENSIONS_MAX],
    };
    reader.level(0)?;
    if !reader.scan.is_at_end() {
        return None;
    }
    let lengths = reader.lengths.iter().map_while(|length| *length);
    let mut dimensions = Vec::new_in(arena);
    if !reader.elements.is_empty() {
        for (index, length) in lengths.enumerate() {
            let lower = match bounds {
                Some(bounds) => bounds.get(index).copied()??,
                None => 1,
            };
            dimensions.push((length, lower));
        }
    }
    Some(Array {
        dimensions: dimensions.into_bump_slice(),
        elements: reader.elements.into_bump_slice(),
    })
}

/// `[1:2][0:3]=`, the lower bounds.
fn bounds(scan: &mut Scan<'_>) -> Option<Option<[Option<i32>; DIMENSIONS_MAX]>> {
    if scan.peek() != Some(b'[') {
        return Some(None);
    }
    let mut lower = [None; DIMENSIONS_MAX];
    for bound in &mut lower {
        if !scan.eat(b"[") {
            break;
        }
        let start = scan.rest();
        let colon = start.iter().position(|byte| *byte == b':')?;
        *bound = i32::try_from(int(start.get(..colon)?)?).ok();
        let end = start.iter().position(|byte| *byte == b']')?;
        *scan = Scan::new(start.get(end + 1..)?);
    }
    scan.expect(b"=")?;
    Some(Some(lower))
}

struct Reader<'a> {
    scan: Scan<'a>,
    base: Base,
    element: ParseElement,
    arena: &'a Bump,
    elements: Vec<'a, Value<'a>>,
    lengths: [Option<i32>; DIMENSIONS_MAX],
}

impl<'a> Reader<'a> {
    /// What stands in one pair of braces.
    fn level(&mut self, depth: usize) -> Option<()> {
        self.lengths.get(depth)?;
        self.scan.expect(b"{")?;
        let mut count = 0_i32;
        if !self.scan.eat(b"}") {
            loop {
                if self.scan.peek() == Some(b'{') {
                    self.level(depth + 1)?;
                } else {
                    let value = self.value()?;
                    self.elements.push(value);
                }
                count = count.checked_add(1)?;
                match self.scan.byte()? {
                    b',' => {}
                    b'}' => break,
                    _ => return None,
                }
            }
        }
        let known = self.lengths.get_mut(depth)?;
        match known {
            Some(known) if *known != count => None,
            _ => {
                *known = Some(count);
                Some(())
            }
        }
    }

    fn value(&mut self) -> Option<Value<'a>> {
        if self.scan.eat(b"\"") {
            let text = self.quoted()?;
            return (self.element)(self.base, text, self.arena);
        }
        let rest = self.scan.rest();
        let end = rest.iter().position(|byte| b",}".contains(byte))?;
        let (text, rest) = rest.split_at_checked(end)?;
        self.scan = Scan::new(rest);
        if text == b"NULL" {
            return Some(Value::Null);
        }
        (self.element)(self.base, text, self.arena)
    }

    fn quoted(&mut self) -> Option<&'a [u8]> {
        let rest = self.scan.rest();
        let plain = rest.iter().position(|byte| b"\"\\".contains(byte))?;
        if rest.get(plain) == Some(&b'"') {
            self.scan = Scan::new(rest.get(plain + 1..)?);
            return rest.get(..plain);
        }
        let mut text = Vec::new_in(self.arena);
        loop {
            match self.scan.byte()? {
                b'"' => return Some(text.into_bump_slice()),
                b'\\' => text.push(self.scan.byte()?),
                byte => text.push(byte),
            }
        }
    }
}

/// Turns an element's stored bytes into a value.
pub(crate) type DecodeElement = for<'a> fn(Base, &'a [u8], &'a Bump) -> Option<Value<'a>>;

/// A constant's bytes behind the varlena header, on a little-endian server. `element_oid` is what they must say.
pub(crate) fn from_datum<'a>(
    kind: Kind,
    bytes: &'a [u8],
    arena: &'a Bump,
    layout: Layout,
    decode: DecodeElement,
) -> Option<Array<'a>> {
    let word = |at: usize| {
        let bytes = bytes.get(at..at.checked_add(4)?)?;
        Some(i32::from_le_bytes(bytes.try_into().ok()?))
    };
    let count = usize::try_from(word(0)?)
        .ok()
        .filter(|count| *count <= DIMENSIONS_MAX)?;
    let data_offset = word(4)?;
    let mut dimensions = Vec::new_in(arena);
    let mut total = usize::from(count > 0);
    for index in 0..count {
        let length = word(12 + 4 * index)?;
        dimensions.push((length, word(12 + 4 * count + 4 * index)?));
        total = total.checked_mul(usize::try_from(length).ok()?)?;
    }
    if total > bytes.len().checked_mul(8)? {
        return None;
    }
    let header = 12 + 8 * count;
    let nulls = (data_offset != 0).then_some(header);
    // Offsets count the varlena header, which was taken away.
    let mut at = match usize::try_from(data_offset).ok()? {
        0 => (header + 4).next_multiple_of(8),
        offset => offset,
    };
    let mut elements = Vec::with_capacity_in(total, arena);
    for index in 0..total {
        let present = nulls.is_none_or(|nulls| {
            let byte = bytes.get(nulls + index / 8);
            byte.is_some_and(|byte| byte >> (index % 8) & 1 == 1)
        });
        if !present {
            elements.push(Value::Null);
            continue;
        }
        let (start, end) = layout.next(bytes, &mut at)?;
        let value = bytes.get(start..end)?;
        elements.push(decode(kind.base, value, arena)?);
    }
    Some(Array {
        dimensions: dimensions.into_bump_slice(),
        elements: elements.into_bump_slice(),
    })
}

/// How the elements of an array lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// So many bytes, aligned so.
    Fixed(usize, usize),
    /// With a length word or a length byte, aligned so.
    Variable(usize),
}

impl Layout {
    /// The next element's place. `at` counts the array's own varlena header of four bytes, the answer does not.
    fn next(self, bytes: &[u8], at: &mut usize) -> Option<(usize, usize)> {
        match self {
            Self::Fixed(length, alignment) => {
                let start = at.checked_next_multiple_of(alignment)?.checked_sub(4)?;
                *at = start.checked_add(length)?.checked_add(4)?;
                Some((start, start + length))
            }
            Self::Variable(alignment) => {
                // A length byte is odd and never padding.
                let first = *bytes.get(at.checked_sub(4)?)?;
                let start = if first & 1 == 1 {
                    at.checked_sub(4)?
                } else {
                    at.checked_next_multiple_of(alignment)?.checked_sub(4)?
                };
                let length = varlena_length(bytes.get(start..)?)?;
                *at = start.checked_add(length)?.checked_add(4)?;
                Some((start, start + length))
            }
        }
    }
}

/// Length of a varlena with its header, if it is plain.
fn varlena_length(bytes: &[u8]) -> Option<usize> {
    let first = *bytes.first()?;
    if first & 1 == 1 {
        return Some(usize::from(first >> 1)).filter(|length| *length > 0);
    }
    let header = u32::from_le_bytes(*bytes.first_chunk::<4>()?);
    let length = usize::try_from(header >> 2).ok()?;
    (header & 3 == 0 && length >= 4).then_some(length)
}

/// What stands behind a varlena's header, if it is plain and as long as it says.
pub(crate) fn varlena(bytes: &[u8]) -> Option<&[u8]> {
    if varlena_length(bytes)? != bytes.len() {
        return None;
    }
    let header = if bytes.first()? & 1 == 1 { 1 } else { 4 };
    bytes.get(header..)
}
