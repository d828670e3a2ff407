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
