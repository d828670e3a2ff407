//! The rows of a change in the log.

use std::ops::Range;

use pg_proto::Oid;
use pg_proto::pgoutput::tag;
use pg_proto::read::{ReadError, Reader};

use super::RowBytes;

/// The rows of one change after the other, found in the same memory.
#[derive(Debug, Default)]
pub struct Rows {
    /// The old one, or its key.
    pub old: Row,
    /// The new one.
    pub new: Row,
}

/// Where a row's columns are in its message, each with its kind. Empty: the message has no such row.
#[derive(Debug, Default)]
pub struct Row {
    /// 'K', 'O' or 'N'; 0 for none.
    pub letter: u8,
    /// The columns.
    pub columns: Vec<Range<usize>>,
}

impl Rows {
    /// Finds the rows of an INSERT, UPDATE or DELETE; its tag and its relation.
    pub fn find(&mut self, payload: &[u8]) -> Result<(u8, Oid), ReadError> {
        self.old.clear();
        self.new.clear();
        let mut reader = Reader::new(payload);
        let tag = reader.u8("message tag")?;
        if !matches!(tag, tag::INSERT | tag::UPDATE | tag::DELETE) {
            return Err(reader.invalid("tag of a row", tag));
        }
        let relation = Oid(reader.u32("relation oid")?);
        while !reader.rest().is_empty() {
            match reader.u8("row letter")? {
                letter @ (b'K' | b'O') if !self.old.is_there() && !self.new.is_there() => {
                    self.old.take(letter, &mut reader)?;
                }
                letter @ b'N' if !self.new.is_there() => self.new.take(letter, &mut reader)?,
                other => return Err(reader.invalid("row letter", other)),
            }
        }
        Ok((tag, relation))
    }
}

impl Row {
    /// The row, if there is one.
    #[must_use]
    pub fn bytes<'a>(&'a self, payload: &'a [u8]) -> Option<RowBytes<'a>> {
        let columns = &self.columns;
        self.is_there().then_some(RowBytes { payload, columns })
    }

    /// Whether there is one.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        self.letter != 0
    }

    fn clear(&mut self) {
        self.letter = 0;
        self.columns.clear();
    }

    fn take(&mut self, letter: u8, reader: &mut Reader<'_>) -> Result<(), ReadError> {
        self.letter = letter;
        let count = reader.u16("tuple column count")?;
        for _ in 0..count {
            let start = reader.position();
            match reader.u8("column kind")? {
                b'n' | b'u' => {}
                b't' | b'b' => {
                    let length = reader.u32("column length")?;
                    let need = usize::try_from(length).unwrap_or(usize::MAX);
                    reader.bytes(need, "column value")?;
                }
                other => return Err(reader.invalid("column kind", other)),
            }
            self.columns.push(start..reader.position());
        }
        Ok(())
    }
}
