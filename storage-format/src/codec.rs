//! Little-endian fields of this crate's own structures.
//!
//! PostgreSQL's messages inside blocks stay big-endian; [`pg_proto::read`] reads those.

/// Takes little-endian fields off the front of a slice. Fixed structures are checked for their length once,
/// before the first field is taken, so a field that is missing reads as zero and can't be seen outside.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                *taken
            }
            None => [0; N],
        }
    }

    pub(crate) fn u8(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    pub(crate) fn i64(&mut self) -> i64 {
        i64::from_le_bytes(self.array())
    }
}

/// A length inside a block as it is stored. Blocks are refused long before they reach 4 GiB
/// ([`RAW_LEN_MAX`](crate::block::RAW_LEN_MAX)), so nothing is cut off here.
pub(crate) fn stored_u32(length: usize) -> u32 {
    debug_assert!(u32::try_from(length).is_ok());
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// A stored length as an index.
pub(crate) const fn index(length: u32) -> usize {
    length as usize
}

/// A length as an offset in a file.
pub(crate) const fn offset(length: usize) -> u64 {
    length as u64
}

const _: () = assert!(usize::BITS >= 32 && usize::BITS <= 64);
