//! How a slot is stored.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | form, 1 |
//! | 1 | flags: 1 temporary, 2 two-phase, 4 failover, 8 two-phase from a position on, 16 invalidated; the others are 0 |
//! | 8 | confirmed LSN |
//! | 8 | restart LSN |
//! | 8 | made at, microseconds since 1970-01-01 UTC |
//! | 2 + n | creator, UTF-8 |
//! | 2 + n | plugin |
//! | 2 + n | holder, empty if there is none |
//! | 8 | two-phase from here on, if flag 8 |
//! | 1 | why, if flag 16: 1 limits of retention, 2 cut off the log |
//!
//! Numbers are big-endian. The store has checksums of its own. A form or flag that is not known is refused: a slot
//! of a later version must not lose what this one does not understand.

use std::time::Instant;

use pg_proto::read::{ReadError, Reader};
use pg_proto::{Lsn, PgTimestamp};

use super::slot::{Holder, Invalidation, Lease, Slot};

const FORM: u8 = 1;

const TEMPORARY: u8 = 1;
const TWO_PHASE: u8 = 1 << 1;
const FAILOVER: u8 = 1 << 2;
const TWO_PHASE_AT: u8 = 1 << 3;
const INVALIDATED: u8 = 1 << 4;

/// The stored form of a slot. Its name is the key, and when its lease ends is not stored.
pub(super) fn encode(slot: &Slot) -> Vec<u8> {
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let flags = flag(slot.temporary, TEMPORARY)
        | flag(slot.two_phase, TWO_PHASE)
        | flag(slot.failover, FAILOVER)
        | flag(slot.two_phase_at.is_valid(), TWO_PHASE_AT)
        | flag(slot.invalidation.is_some(), INVALIDATED);
    let holder = slot.lease.as_ref().map(|lease| lease.holder.to_string());
    let mut value = vec![FORM, flags];
    value.extend_from_slice(&slot.confirmed_lsn.0.to_be_bytes());
    value.extend_from_slice(&slot.restart_lsn.0.to_be_bytes());
    value.extend_from_slice(&slot.created_at.unix_micros().to_be_bytes());
    put_str(&mut value, &slot.creator);
    put_str(&mut value, &slot.plugin);
    put_str(&mut value, &holder.unwrap_or_default());
    if slot.two_phase_at.is_valid() {
        value.extend_from_slice(&slot.two_phase_at.0.to_be_bytes());
    }
    match slot.invalidation {
        None => {}
        Some(Invalidation::WalRemoved) => value.push(1),
        Some(Invalidation::Forked) => value.push(2),
    }
    value
}

/// The inverse of [`encode`]. A lease holds until `lease_until`.
pub(super) fn decode(name: &str, value: &[u8], lease_until: Instant) -> Result<Slot, ReadError> {
    let mut reader = Reader::new(value);
    let form = reader.u8("form")?;
    if form != FORM {
        return Err(reader.invalid("form", form));
    }
    let flags = reader.u8("flags")?;
    if flags & !(TEMPORARY | TWO_PHASE | FAILOVER | TWO_PHASE_AT | INVALIDATED) != 0 {
        return Err(reader.invalid("flags", flags));
    }
    let slot = Slot {
        name: name.to_owned(),
        confirmed_lsn: Lsn(reader.u64("confirmed LSN")?),
        restart_lsn: Lsn(reader.u64("restart LSN")?),
        temporary: flags & TEMPORARY != 0,
        two_phase: flags & TWO_PHASE != 0,
        failover: flags & FAILOVER != 0,
        created_at: PgTimestamp::from_unix_micros(reader.i64("time of creation")?),
        creator: take_str(&mut reader, "creator")?,
        plugin: take_str(&mut reader, "plugin")?,
        lease: take_holder(&mut reader)?.map(|holder| Lease {
            holder,
            until: lease_until,
            pid: 0,
        }),
        two_phase_at: if flags & TWO_PHASE_AT == 0 {
            Lsn::INVALID
        } else {
            Lsn(reader.u64("two-phase position")?)
        },
        invalidation: if flags & INVALIDATED == 0 {
            None
        } else {
            Some(match reader.u8("invalidation")? {
                1 => Invalidation::WalRemoved,
                2 => Invalidation::Forked,
                other => return Err(reader.invalid("invalidation", other)),
            })
        },
    };
    reader.finish("slot")?;
    Ok(slot)
}

fn take_holder(reader: &mut Reader<'_>) -> Result<Option<Holder>, ReadError> {
    let text = take_str(reader, "holder")?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|_| reader.invalid("holder", 0))
}

/// A text that is too long for its length field is cut: names of roles and plugins are not positions.
pub(super) fn put_str(value: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(usize::from(u16::MAX));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text.get(..end).unwrap_or_default();
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    value.extend_from_slice(&length.to_be_bytes());
    value.extend_from_slice(text.as_bytes());
}

pub(super) fn take_str(reader: &mut Reader<'_>, field: &'static str) -> Result<String, ReadError> {
    let length = reader.u16(field)?;
    let bytes = reader.bytes(usize::from(length), field)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| reader.invalid(field, length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slot(until: Instant) -> impl Strategy<Value = Slot> {
        (
            any::<(u64, u64, bool, bool, bool, i32, u8)>(),
            (".{0,9}", ".{0,9}"),
            prop::option::of(("[^/]{1,9}", any::<u64>())),
        )
            .prop_map(move |(numbers, (creator, plugin), holder)| Slot {
                name: "s".into(),
                confirmed_lsn: Lsn(numbers.0),
                restart_lsn: Lsn(numbers.1),
                temporary: numbers.2,
                two_phase: numbers.3,
                two_phase_at: Lsn(if numbers.3 { numbers.1 } else { 0 }),
                failover: numbers.4,
                invalidation: match numbers.6 % 3 {
                    0 => None,
                    1 => Some(Invalidation::WalRemoved),
                    _ => Some(Invalidation::Forked),
                },
                creator,
                plugin,
                created_at: PgTimestamp(i64::from(numbers.5)),
                lease: holder.map(|(name, incarnation)| Lease {
                    holder: Holder { name, incarnation },
                    until,
                    pid: 0,
                }),
            })
    }

    /// As the first version wrote it: it must stay readable.
    const GOLDEN: &[u8] = b"\x01\x02\0\0\0\x16\xB3\x74\xD8\x48\0\0\0\x16\xB3\x74\xD8\x40\0\x06\x0D\xE5\x40\xB0\xC0\x00\
        \0\x08postgres\0\x08pgoutput\0\x0Afanout-1/7";

    #[test]
    fn the_first_form_stays_readable() {
        let until = Instant::now();
        let slot = decode("sub", GOLDEN, until).unwrap();
        assert_eq!(slot.confirmed_lsn, Lsn(0x16_B374_D848));
        assert_eq!(slot.restart_lsn, Lsn(0x16_B374_D840));
        assert_eq!(slot.created_at.unix_micros(), 0x0006_0DE5_40B0_C000);
        assert!(slot.two_phase);
        assert!(!slot.temporary);
        assert_eq!(
            (slot.creator.as_str(), slot.plugin.as_str()),
            ("postgres", "pgoutput")
        );
        assert_eq!(
            slot.lease.as_ref().unwrap().holder.to_string(),
            "fanout-1/7"
        );
        assert_eq!(encode(&slot), GOLDEN);
    }

    #[test]
    fn other_forms_flags_and_lengths_are_refused() {
        let now = Instant::now();
        for (at, byte) in [(0, 2), (0, 0), (1, 8), (1, 16), (1, 0x80), (26, 0xFF)] {
            let mut value = GOLDEN.to_vec();
            value[at] = byte;
            assert!(decode("sub", &value, now).is_err(), "{at}");
        }
        let mut value = GOLDEN.to_vec();
        value.push(0);
        assert!(decode("sub", &value, now).is_err());
        for end in 0..GOLDEN.len() {
            assert!(decode("sub", &GOLDEN[..end], now).is_err(), "{end}");
        }
    }

    #[test]
    fn an_endless_creator_is_cut() {
        let mut value = Vec::new();
        put_str(&mut value, &"é".repeat(40_000));
        let text = take_str(&mut Reader::new(&value), "creator").unwrap();
        assert_eq!(text.len(), 65_534);
    }

    proptest! {
        #[test]
        fn round_trips(slot in slot(Instant::now())) {
            let until = slot.lease.as_ref().map_or_else(Instant::now, |lease| lease.until);
            prop_assert_eq!(decode("s", &encode(&slot), until).unwrap(), slot);
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode("s", &bytes, Instant::now());
        }
    }
}
