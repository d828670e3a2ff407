//! The checked reader on which every parser of this workspace is built.

/// The bytes end before the field that the format says comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Fewer bytes are left than the field takes.
    #[error("truncated at byte {at}: {field} needs {need} bytes, {left} are left")]
    Truncated {
        /// Offset of the field from the start of the message.
        at: usize,
        /// The field's name.
        field: &'static str,
        /// Bytes that the field takes.
        need: usize,
        /// Bytes that are there.
        left: usize,
    },
    /// A string without its terminating zero.
    #[error("byte {at}: {field} is not terminated by a zero byte")]
    Unterminated {
        /// Offset of the string's first byte.
        at: usize,
        /// The field's name.
        field: &'static str,
    },
    /// A field holds a value that the format does not know.
    #[error("byte {at}: {field} is {value}, which the format does not allow")]
    Invalid {
        /// Offset of the field.
        at: usize,
        /// The field's name.
        field: &'static str,
        /// What was read.
        value: i64,
    },
    /// The message should have ended.
    #[error("byte {at}: {left} bytes follow the end of {what}")]
    Trailing {
        /// Offset of the first byte too many.
        at: usize,
        /// The message's name.
        what: &'static str,
        /// How many follow.
        left: usize,
    },
}

/// Reads big-endian fields from a slice. Every take names its field, so that an error says what was missing
/// and where.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, at: 0 }
    }

    /// Offset of the next byte from the start.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.at
    }

    /// What has not been read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether all has been read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `need` bytes.
    pub fn bytes(&mut self, need: usize, field: &'static str) -> Result<&'a [u8], ReadError> {
        let Some((taken, rest)) = self.rest.split_at_checked(need) else {
            return Err(ReadError::Truncated {
                at: self.at,
                field,
                need,
                left: self.rest.len(),
            });
        };
        self.rest = rest;
        self.at += need;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ReadError> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(ReadError::Truncated {
                at: self.at,
                field,
                need: N,
                left: self.rest.len(),
            });
        };
        self.rest = rest;
        self.at += N;
        Ok(*taken)
    }

    /// One byte.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, ReadError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    /// Two bytes, unsigned.
    pub fn u16(&mut self, field: &'static str) -> Result<u16, ReadError> {
        self.array(field).map(u16::from_be_bytes)
    }

    /// Two bytes, signed.
    pub fn i16(&mut self, field: &'static str) -> Result<i16, ReadError> {
        self.array(field).map(i16::from_be_bytes)
    }

    /// Four bytes, unsigned.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, ReadError> {
        self.array(field).map(u32::from_be_bytes)
    }

    /// Four bytes, signed.
    pub fn i32(&mut self, field: &'static str) -> Result<i32, ReadError> {
        self.array(field).map(i32::from_be_bytes)
    }

    /// Eight bytes, unsigned.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, ReadError> {
        self.array(field).map(u64::from_be_bytes)
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self, field: &'static str) -> Result<i64, ReadError> {
        self.array(field).map(i64::from_be_bytes)
    }

    /// A string up to its zero byte, which is consumed and not returned.
    pub fn cstr(&mut self, field: &'static str) -> Result<&'a [u8], ReadError> {
        let Some(end) = self.rest.iter().position(|&byte| byte == 0) else {
            return Err(ReadError::Unterminated { at: self.at, field });
        };
        let text = self.bytes(end, field)?;
        self.bytes(1, field)?;
        Ok(text)
    }

    /// An [`ReadError::Invalid`] for a field whose last byte was just read.
    #[must_use]
    pub fn invalid(&self, field: &'static str, value: impl Into<i64>) -> ReadError {
        ReadError::Invalid {
            at: self.at,
            field,
            value: value.into(),
        }
    }

    /// Fails if anything is left.
    pub const fn finish(&self, what: &'static str) -> Result<(), ReadError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(ReadError::Trailing {
                at: self.at,
                what,
                left: self.rest.len(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_field_that_is_missing() {
        let mut reader = Reader::new(&[0, 1, 2]);
        assert_eq!(reader.u16("first").unwrap(), 1);
        assert_eq!(
            reader.u32("second"),
            Err(ReadError::Truncated {
                at: 2,
                field: "second",
                need: 4,
                left: 1
            })
        );
        assert_eq!(reader.u8("third").unwrap(), 2);
        assert!(reader.finish("message").is_ok());
    }

    #[test]
    fn strings_end_at_their_zero() {
        let mut reader = Reader::new(b"ab\0c");
        assert_eq!(reader.cstr("name").unwrap(), b"ab");
        assert_eq!(
            reader.cstr("name"),
            Err(ReadError::Unterminated {
                at: 3,
                field: "name"
            })
        );
    }
}
