//! Rows.

use crate::read::{ReadError, Reader};

/// One column's value as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnValue<'a> {
    /// 'n'.
    Null,
    /// 'u': a TOASTed value that the change left alone; unknown here, not null.
    UnchangedToast,
    /// 't': the type's output function's text.
    Text(&'a [u8]),
    /// 'b': the type's send function's bytes.
    Binary(&'a [u8]),
}

/// A row: its bytes, checked when it was taken from its message, so that iterating it can't fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple<'a> {
    columns: u16,
    bytes: &'a [u8],
}

impl<'a> Tuple<'a> {
    /// Takes a TupleData from the reader and checks it whole.
    pub fn take(reader: &mut Reader<'a>) -> Result<Self, ReadError> {
        let columns = reader.u16("tuple column count")?;
        let start = *reader;
        for _ in 0..columns {
            take_value(reader)?;
        }
        let length = reader.position() - start.position();
        let bytes = start.rest().get(..length).unwrap_or_default();
        Ok(Self { columns, bytes })
    }

    /// Number of columns.
    #[must_use]
    pub const fn column_count(&self) -> u16 {
        self.columns
    }

    /// The values in order.
    #[must_use]
    pub const fn columns(&self) -> Columns<'a> {
        Columns {
            left: self.columns,
            reader: Reader::new(self.bytes),
        }
    }

    /// The columns' bytes behind the count, as they travel.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

fn take_value<'a>(reader: &mut Reader<'a>) -> Result<ColumnValue<'a>, ReadError> {
    let kind = reader.u8("column kind")?;
    let value = |reader: &mut Reader<'a>| {
        let length = reader.i32("column length")?;
        let need = usize::try_from(length).map_err(|_| reader.invalid("column length", length))?;
        reader.bytes(need, "column value")
    };
    match kind {
        b'n' => Ok(ColumnValue::Null),
        b'u' => Ok(ColumnValue::UnchangedToast),
        b't' => value(reader).map(ColumnValue::Text),
        b'b' => value(reader).map(ColumnValue::Binary),
        other => Err(reader.invalid("column kind", other)),
    }
}

/// Builds a row.
#[derive(Clone, Debug, Default)]
pub struct TupleBuf {
    columns: u16,
    bytes: Vec<u8>,
}

impl TupleBuf {
    /// A row without columns.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            columns: 0,
            bytes: Vec::new(),
        }
    }

    /// Appends a column. False, and nothing changes, if the row or the value is larger than the format allows.
    pub fn push(&mut self, value: ColumnValue<'_>) -> bool {
        let (kind, content) = match value {
            ColumnValue::Null => (b'n', None),
            ColumnValue::UnchangedToast => (b'u', None),
            ColumnValue::Text(text) => (b't', Some(text)),
            ColumnValue::Binary(bytes) => (b'b', Some(bytes)),
        };
        let Some(columns) = self.columns.checked_add(1) else {
            return false;
        };
        let Ok(length) = i32::try_from(content.map_or(0, <[u8]>::len)) else {
            return false;
        };
        self.columns = columns;
        self.bytes.push(kind);
        if let Some(content) = content {
            self.bytes.extend_from_slice(&length.to_be_bytes());
            self.bytes.extend_from_slice(content);
        }
        true
    }

    /// Makes it a row without columns again; the memory stays.
    pub fn clear(&mut self) {
        self.columns = 0;
        self.bytes.clear();
    }

    /// The row.
    #[must_use]
    pub fn as_tuple(&self) -> Tuple<'_> {
        Tuple {
            columns: self.columns,
            bytes: &self.bytes,
        }
    }
}

impl<'a> Extend<ColumnValue<'a>> for TupleBuf {
    /// Appends columns as [`TupleBuf::push`] does.
    fn extend<I: IntoIterator<Item = ColumnValue<'a>>>(&mut self, values: I) {
        for value in values {
            self.push(value);
        }
    }
}

/// Iterates the values of a [`Tuple`].
#[derive(Clone, Debug)]
pub struct Columns<'a> {
    left: u16,
    reader: Reader<'a>,
}

impl<'a> Iterator for Columns<'a> {
    type Item = ColumnValue<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        take_value(&mut self.reader).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

impl ExactSizeIterator for Columns<'_> {}
