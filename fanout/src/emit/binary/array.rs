//! Arrays: `[lower:upper]...={{a,"b",NULL},...}` (`array_out`) to dimensions and elements (`array_send`).

use pg_proto::Oid;

use super::codec::Scalar;
use super::scalar::number;

/// `MAXDIM`.
const DIMENSIONS_MAX: usize = 6;

/// One dimension.
#[derive(Clone, Copy, Debug, Default)]
struct Dimension {
    length: i32,
    lower: i32,
}

pub(super) fn encode(element: Oid, scalar: Scalar, text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (bounds, body) = bounds(text)?;
    let mut parser = Parser {
        rest: body,
        scalar,
        elements: Vec::new(),
        unquoted: Vec::new(),
        has_null: false,
        lengths: [None; DIMENSIONS_MAX],
        element_depth: None,
    };
    parser.list(0)?;
    if !parser.rest.is_empty() {
        return None;
    }
    let dimensions = parser.dimensions(&bounds)?;
    let count = i32::try_from(dimensions.len()).ok()?;
    out.extend_from_slice(&count.to_be_bytes());
    out.extend_from_slice(&i32::from(parser.has_null).to_be_bytes());
    out.extend_from_slice(&element.0.to_be_bytes());
    for dimension in dimensions {
        out.extend_from_slice(&dimension.length.to_be_bytes());
        out.extend_from_slice(&dimension.lower.to_be_bytes());
    }
    out.extend_from_slice(&parser.elements);
    Some(())
}

/// The lower bounds, if they are not all 1, and the rest.
fn bounds(text: &[u8]) -> Option<(Vec<i32>, &[u8])> {
    if text.first() != Some(&b'[') {
        return Some((Vec::new(), text));
    }
    let end = text.iter().position(|byte| *byte == b'=')?;
    let mut lowers = Vec::new();
    for dimension in text
        .get(..end)?
        .strip_suffix(b"]")?
        .split(|byte| *byte == b']')
    {
        let dimension = dimension.strip_prefix(b"[")?;
        let colon = dimension.iter().position(|byte| *byte == b':')?;
        lowers.push(number(dimension.get(..colon)?)?);
    }
    Some((lowers, text.get(end + 1..)?))
}

struct Parser<'a> {
    rest: &'a [u8],
    scalar: Scalar,
    elements: Vec<u8>,
    unquoted: Vec<u8>,
    has_null: bool,
    /// Items of the lists at each depth, once one was read.
    lengths: [Option<i32>; DIMENSIONS_MAX],
    /// Where the elements are, once one was read.
    element_depth: Option<usize>,
}

impl Parser<'_> {
    fn take(&mut self, expected: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == expected => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// `{item,...}`. All lists of one depth have the same length.
    fn list(&mut self, depth: usize) -> Option<()> {
        if depth >= DIMENSIONS_MAX || !self.take(b'{') {
            return None;
        }
        let mut length = 0_i32;
        if !self.take(b'}') {
            loop {
                if self.rest.first() == Some(&b'{') {
                    self.list(depth + 1)?;
                } else {
                    if *self.element_depth.get_or_insert(depth) != depth {
                        return None;
                    }
                    self.element()?;
                }
                length = length.checked_add(1)?;
                if self.take(b'}') {
                    break;
                }
                if !self.take(b',') {
                    return None;
                }
            }
        }
        let known = self.lengths.get_mut(depth)?;
        if known.is_some_and(|known| known != length) {
            return None;
        }
        *known = Some(length);
        Some(())
    }

    fn element(&mut self) -> Option<()> {
        self.unquoted.clear();
        let quoted = self.take(b'"');
        if quoted {
            self.quoted()?;
        } else {
            let end = self
                .rest
                .iter()
                .position(|byte| matches!(byte, b',' | b'}'))?;
            let (element, rest) = self.rest.split_at(end);
            if element.is_empty() || element.contains(&b'\\') {
                return None;
            }
            self.unquoted.extend_from_slice(element);
            self.rest = rest;
        }
        if !quoted && self.unquoted.eq_ignore_ascii_case(b"NULL") {
            self.has_null = true;
            self.elements.extend_from_slice(&(-1_i32).to_be_bytes());
            return Some(());
        }
        let length_at = self.elements.len();
        self.elements.extend_from_slice(&[0; 4]);
        self.scalar.encode(&self.unquoted, &mut self.elements)?;
        let length = i32::try_from(self.elements.len() - length_at - 4).ok()?;
        let place = self.elements.get_mut(length_at..length_at + 4)?;
        place.copy_from_slice(&length.to_be_bytes());
        Some(())
    }

    /// Up to the closing quote.
    fn quoted(&mut self) -> Option<()> {
        loop {
            let (first, rest) = self.rest.split_first()?;
            self.rest = rest;
            match first {
                b'"' => return Some(()),
                b'\\' => {
                    let (escaped, rest) = self.rest.split_first()?;
                    self.unquoted.push(*escaped);
                    self.rest = rest;
                }
                byte => self.unquoted.push(*byte),
            }
        }
    }

    /// None, for an array without elements.
    fn dimensions(&self, lowers: &[i32]) -> Option<Vec<Dimension>> {
        let lengths = self.lengths.iter().map_while(|length| *length);
        let dimensions: Vec<Dimension> = lengths
            .enumerate()
            .map(|(depth, length)| Dimension {
                length,
                lower: lowers.get(depth).copied().unwrap_or(1),
            })
            .collect();
        if self.elements.is_empty() {
            let outer = dimensions.first()?;
            return (dimensions.len() == 1 && outer.length == 0).then(Vec::new);
        }
        // Elements and lists side by side, or bounds of other dimensions.
        let expected = dimensions.iter().try_fold(1_usize, |product, dimension| {
            product.checked_mul(usize::try_from(dimension.length).ok()?)
        })?;
        let fits = lowers.is_empty() || lowers.len() == dimensions.len();
        (fits && expected == self.count()?).then_some(dimensions)
    }

    /// How many elements were read.
    fn count(&self) -> Option<usize> {
        let (mut rest, mut count) = (self.elements.as_slice(), 0);
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
            rest = behind.get(length..)?;
            count += 1;
        }
        Some(count)
    }
}
