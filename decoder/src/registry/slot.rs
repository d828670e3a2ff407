//! Slots and who holds them.

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use pg_proto::{Lsn, PgTimestamp};

use super::error::RegistryError;

/// PostgreSQL's limit, `NAMEDATALEN - 1`.
const NAME_LEN_MAX: usize = 63;

/// Longest name of a holder.
const HOLDER_LEN_MAX: usize = 255;

/// A fanout process: its name, and a number that is higher in a later process of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The fanout's name.
    pub name: String,
    /// Which of its processes.
    pub incarnation: u64,
}

/// The text names no holder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" names no holder: expected name/incarnation with a number behind the slash")]
pub struct InvalidHolder {
    /// What was given, at most 64 characters of it.
    pub text: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.incarnation)
    }
}

impl FromStr for Holder {
    type Err = InvalidHolder;

    fn from_str(text: &str) -> Result<Self, InvalidHolder> {
        let parse = || {
            let (name, incarnation) = text.rsplit_once('/')?;
            let allowed = !name.is_empty()
                && text.len() <= HOLDER_LEN_MAX
                && !name.contains('/')
                && incarnation.bytes().all(|digit| digit.is_ascii_digit());
            allowed.then_some(Self {
                name: name.to_owned(),
                incarnation: incarnation.parse().ok()?,
            })
        };
        parse().ok_or_else(|| InvalidHolder {
            text: text.chars().take(64).collect(),
        })
    }
}

/// Who serves a slot, and until when without another report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who.
    pub holder: Holder,
    /// Until when.
    pub until: Instant,
    /// The number of the session there, for others to see; 0 if it is not known, or has none. Not stored.
    pub pid: u32,
}

/// Why a slot can't be used any more. It stays, so that its subscriber is told, until it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// What it needs was given up for a limit of `[retention]`.
    WalRemoved,
    /// Its subscriber has transactions that the source never had: they were cut off the log.
    Forked,
}

impl Invalidation {
    /// What `pg_replication_slots.invalidation_reason` says; the second one is Decant's own.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WalRemoved => "wal_removed",
            Self::Forked => "forked",
        }
    }
}

/// A subscriber's named position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// Every whole transaction that ends at or below it is safe at the subscriber.
    pub confirmed_lsn: Lsn,
    /// The log is kept from here on.
    pub restart_lsn: Lsn,
    /// Whether it vanishes with its lease.
    pub temporary: bool,
    /// Whether its subscriber gets transactions when they are prepared.
    pub two_phase: bool,
    /// If so, those that are prepared at or after this position.
    pub two_phase_at: Lsn,
    /// What the client asked for; without meaning here.
    pub failover: bool,
    /// Who made it.
    pub creator: String,
    /// The output plugin that the client named.
    pub plugin: String,
    /// When it was made.
    pub created_at: PgTimestamp,
    /// Who serves it.
    pub lease: Option<Lease>,
    /// Why it can't be used any more.
    pub invalidation: Option<Invalidation>,
}

impl Slot {
    /// The lowest position that must be kept for it.
    pub(super) fn needs(&self) -> Option<Lsn> {
        self.invalidation.is_none().then_some(self.restart_lsn)
    }

    /// The lease, if it is in force.
    #[must_use]
    pub fn lease_at(&self, now: Instant) -> Option<&Lease> {
        self.lease.as_ref().filter(|lease| lease.until > now)
    }

    /// Sets or clears two-phase commit; true if that changed something. What is set stays as it was set first.
    pub(super) fn set_two_phase(&mut self, since: Option<Lsn>) -> bool {
        let changed = self.two_phase != since.is_some();
        if changed {
            self.two_phase = since.is_some();
            self.two_phase_at = since.unwrap_or_default();
        }
        changed
    }

    /// Raises the positions; true if that changed something.
    pub(super) fn confirm(&mut self, lsn: Lsn) -> bool {
        let higher = lsn > self.confirmed_lsn;
        if higher {
            self.confirmed_lsn = lsn;
            self.restart_lsn = lsn;
        }
        higher
    }
}

/// What a new slot is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewSlot {
    /// Its name.
    pub name: String,
    /// Where it starts.
    pub start_lsn: Lsn,
    /// Whether it vanishes with its lease.
    pub temporary: bool,
    /// Whether its subscriber gets transactions when they are prepared.
    pub two_phase: bool,
    /// What the client asked for.
    pub failover: bool,
    /// Who makes it.
    pub creator: String,
    /// The output plugin that the client named.
    pub plugin: String,
    /// Who has it from the start; a temporary slot needs one.
    pub holder: Option<Holder>,
}

/// What is to be different of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotChange {
    /// Whether its subscriber gets transactions when they are prepared.
    pub two_phase: Option<bool>,
    /// From where on it does; 0: from where the slot stands.
    pub two_phase_at: Lsn,
    /// What the client asked for.
    pub failover: Option<bool>,
    /// Where it stands, also further back.
    pub position: Option<Lsn>,
}

impl SlotChange {
    pub(super) fn apply(self, slot: &mut Slot) {
        if let Some(two_phase) = self.two_phase {
            let given = Some(self.two_phase_at).filter(|at| at.is_valid());
            let since = given.unwrap_or(slot.confirmed_lsn);
            slot.set_two_phase(two_phase.then_some(since));
        }
        slot.failover = self.failover.unwrap_or(slot.failover);
        if let Some(position) = self.position {
            slot.confirmed_lsn = position;
            slot.restart_lsn = position;
        }
    }
}

/// PostgreSQL's rule (`ReplicationSlotValidateName`).
pub(super) fn check_name(name: &str) -> Result<(), RegistryError> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let problem = if name.is_empty() {
        "is too short"
    } else if name.len() > NAME_LEN_MAX {
        "is too long"
    } else if name.bytes().all(allowed) {
        return Ok(());
    } else {
        "contains invalid characters"
    };
    Err(RegistryError::InvalidName {
        name: name.chars().take(NAME_LEN_MAX + 1).collect(),
        problem,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_a_name_and_a_number() {
        let holder: Holder = "fanout-1/17".parse().unwrap();
        assert_eq!((holder.name.as_str(), holder.incarnation), ("fanout-1", 17));
        assert_eq!(holder.to_string(), "fanout-1/17");
        let long = format!("{}/1", "a".repeat(300));
        for bad in [
            "",
            "/",
            "a",
            "a/",
            "/1",
            "a/b",
            "a/+1",
            "a/b/1",
            "a/18446744073709551616",
            &long,
        ] {
            assert!(bad.parse::<Holder>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_follow_postgresql() {
        assert!(check_name("sub_1").is_ok());
        assert!(check_name(&"a".repeat(63)).is_ok());
        for bad in ["", "Sub", "sub-1", "sübe", "a b", &"a".repeat(64)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
