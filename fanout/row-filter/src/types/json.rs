//! `jsonb` as documents in memory.

use bumpalo::Bump;
use bumpalo::collections::Vec;

use super::numeric::{Numeric, OwnedNumeric, compare};
use super::text_scan::{Scan, hex_digit};

/// Deepest nesting that is read: reading and comparing recurse as deep.
const DEPTH_MAX: usize = 256;

/// A document.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Json<'a> {
    Null,
    Bool(bool),
    Number(Numeric<'a>),
    String(&'a [u8]),
    Array(&'a [Json<'a>]),
    /// In the order in which jsonb keeps keys; none is there twice.
    Object(&'a [(&'a [u8], Json<'a>)]),
}

/// A constant.
#[derive(Clone, Debug)]
pub(crate) enum OwnedJson {
    Null,
    Bool(bool),
    Number(OwnedNumeric),
    String(Box<[u8]>),
    Array(Box<[OwnedJson]>),
    Object(Box<[(Box<[u8]>, OwnedJson)]>),
}

impl OwnedJson {
    pub(crate) fn get<'a>(&'a self, arena: &'a Bump) -> Json<'a> {
        match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            Self::Number(number) => Json::Number(number.get()),
            Self::String(text) => Json::String(text),
            Self::Array(elements) => Json::Array(
                arena.alloc_slice_fill_iter(elements.iter().map(|element| element.get(arena))),
            ),
            Self::Object(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| (&**key, value.get(arena)));
                Json::Object(arena.alloc_slice_fill_iter(pairs))
            }
        }
    }
}

impl From<&Json<'_>> for OwnedJson {
    fn from(json: &Json<'_>) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => Self::Number((*number).into()),
            Json::String(text) => Self::String((*text).into()),
            Json::Array(elements) => Self::Array(elements.iter().map(Self::from).collect()),
            Json::Object(pairs) => Self::Object(
                pairs
                    .iter()
                    .map(|(key, value)| ((*key).into(), Self::from(value)))
                    .collect(),
            ),
        }
    }
}

impl<'a> Json<'a> {
    const fn is_scalar(&self) -> bool {
        !matches!(self, Self::Array(_) | Self::Object(_))
    }

    /// `=`
    pub(crate) fn equals(&self, other: &Json<'_>) -> bool {
        match (self, other) {
            (Self::Null, Json::Null) => true,
            (Self::Bool(left), Json::Bool(right)) => left == right,
            (Self::Number(left), Json::Number(right)) => compare(left, right).is_eq(),
            (Self::String(left), Json::String(right)) => left == right,
            (Self::Array(left), Json::Array(right)) => {
                left.len() == right.len()
                    && left.iter().zip(*right).all(|(one, two)| one.equals(two))
            }
            (Self::Object(left), Json::Object(right)) => {
                let mut pairs = left.iter().zip(*right);
                left.len() == right.len()
                    && pairs.all(|(one, two)| one.0 == two.0 && one.1.equals(&two.1))
            }
            _ => false,
        }
    }

    /// `@>`. At the top a scalar counts as an element that an array may contain.
    pub(crate) fn contains(&self, other: &Json<'_>) -> bool {
        match (self, other) {
            (Self::Array(elements), scalar) if scalar.is_scalar() => {
                elements.iter().any(|element| element.equals(scalar))
            }
            _ => self.contains_inside(other),
        }
    }

    fn contains_inside(&self, other: &Json<'_>) -> bool {
        match (self, other) {
            (Self::Object(pairs), Json::Object(wanted)) => {
                pairs.len() >= wanted.len()
                    && wanted.iter().all(|(key, value)| {
                        self.field(key)
                            .is_some_and(|found| found.contains_inside(value))
                    })
            }
            (Self::Array(elements), Json::Array(wanted)) => wanted.iter().all(|value| {
                elements
                    .iter()
                    .any(|element| element.contains_inside(value))
            }),
            _ => self.is_scalar() && self.equals(other),
        }
    }

    /// A member's value.
    pub(crate) fn field(&self, key: &[u8]) -> Option<&'a Json<'a>> {
        let Self::Object(pairs) = *self else {
            return None;
        };
        let found = pairs.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| value)
    }

    /// An element, from the end if the index is below zero.
    pub(crate) fn element(&self, index: i64) -> Option<&'a Json<'a>> {
        let Self::Array(elements) = *self else {
            return None;
        };
        let index = if index < 0 {
            elements.len().checked_sub(usize::try_from(-index).ok()?)?
        } else {
            usize::try_from(index).ok()?
        };
        elements.get(index)
    }

    /// `?`: a key of an object, a string element of an array, or the string itself.
    pub(crate) fn has_key(&self, key: &[u8]) -> bool {
        match self {
            Self::Object(_) => self.field(key).is_some(),
            Self::Array(elements) => elements
                .iter()
                .any(|element| matches!(element, Json::String(text) if *text == key)),
            Self::String(text) => *text == key,
            _ => false,
        }
    }

    /// `jsonb_typeof`
    pub(crate) const fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }

    /// Appends what `jsonb_out` prints.
    pub(crate) fn print(&self, out: &mut Vec<'_, u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(true) => out.extend_from_slice(b"true"),
            Self::Bool(false) => out.extend_from_slice(b"false"),
            Self::Number(number) => number.print(out),
            Self::String(text) => print_string(text, out),
            Self::Array(elements) => {
                out.push(b'[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        out.extend_from_slice(b", ");
                    }
                    element.print(out);
                }
                out.push(b']');
            }
            Self::Object(pairs) => {
                out.push(b'{');
                for (index, (key, value)) in pairs.iter().enumerate() {
                    if index > 0 {
                        out.extend_from_slice(b", ");
                    }
                    print_string(key, out);
                    out.extend_from_slice(b": ");
                    value.print(out);
                }
                out.push(b'}');
            }
        }
    }
}

fn print_string(text: &[u8], out: &mut Vec<'_, u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            0..32 => {
                out.extend_from_slice(b"\\u00");
                for half in [byte >> 4, byte & 15] {
                    out.push(HEX.get(usize::from(half)).copied().unwrap_or(b'0'));
                }
            }
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

/// What `jsonb_out` prints.
pub(crate) fn parse<'a>(text: &'a [u8], arena: &'a Bump) -> Option<&'a Json<'a>> {
    let mut reader = Reader {
        scan: Scan::new(text),
        arena,
    };
    let json = reader.value(0)?;
    reader.scan.is_at_end().then(|| &*arena.alloc(json))
}

struct Reader<'a> {
    scan: Scan<'a>,
    arena: &'a Bump,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Option<Json<'a>> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.scan.peek()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string().map(Json::String),
            b'n' => self.scan.expect(b"null").map(|()| Json::Null),
            b't' => self.scan.expect(b"true").map(|()| Json::Bool(true)),
            b'f' => self.scan.expect(b"false").map(|()| Json::Bool(false)),
            _ => {
                let rest = self.scan.rest();
                let is_part = |byte: &&u8| b"-.0123456789".contains(byte);
                let length = rest.iter().take_while(is_part).count();
                let (number, rest) = rest.split_at_checked(length)?;
                self.scan = Scan::new(rest);
                Numeric::parse(number, self.arena).map(Json::Number)
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<Json<'a>> {
        self.scan.expect(b"[")?;
        let mut elements = Vec::new_in(self.arena);
        while !self.scan.eat(b"]") {
            if !elements.is_empty() {
                self.scan.expect(b", ")?;
            }
            elements.push(self.value(depth + 1)?);
        }
        Some(Json::Array(elements.into_bump_slice()))
    }

    fn object(&mut self, depth: usize) -> Option<Json<'a>> {
        self.scan.expect(b"{")?;
        let mut pairs = Vec::new_in(self.arena);
        while !self.scan.eat(b"}") {
            if !pairs.is_empty() {
                self.scan.expect(b", ")?;
            }
            let key = self.string()?;
            self.scan.expect(b": ")?;
            pairs.push((key, self.value(depth + 1)?));
        }
        Some(Json::Object(pairs.into_bump_slice()))
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        self.scan.expect(b"\"")?;
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
                b'\\' => text.push(self.escape()?),
                byte => text.push(byte),
            }
        }
    }

    fn escape(&mut self) -> Option<u8> {
        match self.scan.byte()? {
            byte @ (b'"' | b'\\') => Some(byte),
            b'n' => Some(b'\n'),
            b'r' => Some(b'\r'),
            b't' => Some(b'\t'),
            b'b' => Some(8),
            b'f' => Some(12),
            b'u' => {
                self.scan.expect(b"00")?;
                let high = hex_digit(self.scan.byte()?)?;
                Some(high << 4 | hex_digit(self.scan.byte()?)?)
            }
            _ => None,
        }
    }
}
