//! `inet` and `cidr`.

use std::cmp::Ordering;
use std::net::IpAddr;

/// An address with its number of network bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inet {
    pub(crate) v6: bool,
    pub(crate) bits: u8,
    /// An IPv4 address stands in the first four bytes.
    pub(crate) address: [u8; 16],
}

impl Inet {
    /// As `inet_out` and `cidr_out` print it.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
            None => (text, None),
        };
        let mut bytes = [0; 16];
        let v6 = match address.parse::<IpAddr>().ok()? {
            IpAddr::V4(address) => {
                bytes
                    .first_chunk_mut::<4>()?
                    .copy_from_slice(&address.octets());
                false
            }
            IpAddr::V6(address) => {
                bytes = address.octets();
                true
            }
        };
        let bits_max = if v6 { 128 } else { 32 };
        let bits = bits.unwrap_or(bits_max);
        (bits <= bits_max).then_some(Self {
            v6,
            bits,
            address: bytes,
        })
    }

    /// A constant's bytes behind the varlena header: family (2 or 3), bits, address.
    pub(crate) fn from_datum(bytes: &[u8]) -> Option<Self> {
        let (&[family, bits], rest) = bytes.split_first_chunk::<2>()?;
        let mut address = [0; 16];
        match (family, rest.len()) {
            (2, 4) => address.first_chunk_mut::<4>()?.copy_from_slice(rest),
            (3, 16) => address.copy_from_slice(rest),
            _ => return None,
        }
        let v6 = family == 3;
        (bits <= if v6 { 128 } else { 32 }).then_some(Self { v6, bits, address })
    }

    /// Whether the first bits of both addresses are the same.
    fn same_network(&self, other: &Self, bits: u8) -> bool {
        self.network(bits) == other.network(bits)
    }

    fn network(&self, bits: u8) -> u128 {
        let all = u128::from_be_bytes(self.address);
        let shift = 128_u32.saturating_sub(u32::from(bits));
        all.checked_shr(shift).unwrap_or(0)
    }

    /// Family, common network bits, number of bits, whole address.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let common = self.bits.min(other.bits);
        self.v6
            .cmp(&other.v6)
            .then_with(|| self.network(common).cmp(&other.network(common)))
            .then(self.bits.cmp(&other.bits))
            .then(self.address.cmp(&other.address))
    }

    /// `<<=`; `<<` if `strict`.
    pub(crate) fn is_within(&self, other: &Self, strict: bool) -> bool {
        let narrower = if strict {
            self.bits > other.bits
        } else {
            self.bits >= other.bits
        };
        self.v6 == other.v6 && narrower && self.same_network(other, other.bits)
    }

    /// `&&`
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.v6 == other.v6 && self.same_network(other, self.bits.min(other.bits))
    }
}
