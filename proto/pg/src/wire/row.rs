//! RowDescription and DataRow.

use super::frame::{put_cstr, put_frame};
use crate::Oid;
use crate::read::{ReadError, Reader};

/// A column of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldDescription<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The table it comes from, 0 for none.
    pub table: Oid,
    /// Its number in that table, 0 for none.
    pub column: i16,
    /// Its type.
    pub type_oid: Oid,
    /// `pg_type.typlen`.
    pub type_length: i16,
    /// `pg_attribute.atttypmod`, -1 for none.
    pub type_modifier: i32,
    /// 0 text, 1 binary.
    pub format: i16,
}

impl<'a> FieldDescription<'a> {
    /// A column of type `text`, as text.
    #[must_use]
    pub const fn text(name: &'a str) -> Self {
        Self::of_type(name, Oid(25), -1)
    }

    /// A column of type `int4`, as text.
    #[must_use]
    pub const fn int4(name: &'a str) -> Self {
        Self::of_type(name, Oid(23), 4)
    }

    /// A column of type `int8`, as text.
    #[must_use]
    pub const fn int8(name: &'a str) -> Self {
        Self::of_type(name, Oid(20), 8)
    }

    /// A column that comes from no table, as text.
    #[must_use]
    pub const fn of_type(name: &'a str, type_oid: Oid, type_length: i16) -> Self {
        Self {
            name: name.as_bytes(),
            table: Oid(0),
            column: 0,
            type_oid,
            type_length,
            type_modifier: -1,
            format: 0,
        }
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, ReadError> {
        Ok(Self {
            name: reader.cstr("column name")?,
            table: Oid(reader.u32("column table")?),
            column: reader.i16("column number")?,
            type_oid: Oid(reader.u32("column type")?),
            type_length: reader.i16("column type length")?,
            type_modifier: reader.i32("column type modifier")?,
            format: reader.i16("column format")?,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_cstr(self.name, out);
        out.extend_from_slice(&self.table.0.to_be_bytes());
        out.extend_from_slice(&self.column.to_be_bytes());
        out.extend_from_slice(&self.type_oid.0.to_be_bytes());
        out.extend_from_slice(&self.type_length.to_be_bytes());
        out.extend_from_slice(&self.type_modifier.to_be_bytes());
        out.extend_from_slice(&self.format.to_be_bytes());
    }
}

pub(super) fn take_fields<'a>(
    reader: &mut Reader<'a>,
) -> Result<Vec<FieldDescription<'a>>, ReadError> {
    let count = usize::from(reader.u16("column count")?);
    // A field takes at least 19 bytes.
    let mut fields = Vec::with_capacity(count.min(reader.rest().len() / 19));
    for _ in 0..count {
        fields.push(FieldDescription::take(reader)?);
    }
    Ok(fields)
}

pub(super) fn put_fields(fields: &[FieldDescription<'_>], out: &mut Vec<u8>) {
    let count = u16::try_from(fields.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&count.to_be_bytes());
    for field in fields.iter().take(usize::from(count)) {
        field.put(out);
    }
}

pub(super) fn take_values<'a>(reader: &mut Reader<'a>) -> Result<Vec<Option<&'a [u8]>>, ReadError> {
    let count = usize::from(reader.u16("value count")?);
    let mut values = Vec::with_capacity(count.min(reader.rest().len() / 4));
    for _ in 0..count {
        values.push(match reader.i32("value length")? {
            -1 => None,
            length => {
                let need = usize::try_from(length);
                let need = need.map_err(|_| reader.invalid("value length", length))?;
                Some(reader.bytes(need, "value")?)
            }
        });
    }
    Ok(values)
}

/// Appends a whole DataRow. A value of 2 GiB or more can't travel and is sent as null.
pub fn put_data_row<'a>(values: impl IntoIterator<Item = Option<&'a [u8]>>, out: &mut Vec<u8>) {
    put_frame(b'D', out, |out| {
        let start = out.len();
        out.extend_from_slice(&[0; 2]);
        let mut count = 0_u16;
        for value in values.into_iter().take(usize::from(u16::MAX)) {
            count += 1;
            let sized = value.and_then(|value| Some((value, i32::try_from(value.len()).ok()?)));
            let (value, length) = sized.unwrap_or((&[], -1));
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(value);
        }
        if let Some(place) = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut::<2>) {
            *place = count.to_be_bytes();
        }
    });
}
