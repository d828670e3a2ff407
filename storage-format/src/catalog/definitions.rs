//! The publications as they were from one position to the next.
//!
//! A change is judged by the definition whose transaction committed at or before the change's own position: as at the
//! source, where the snapshot under which a row is decoded is that of the row's place in WAL. A transaction that commits
//! now may have written rows before a definition that has committed meanwhile, so older definitions stay known for as
//! long as such a transaction can be open. How far back that is, the *horizon*, comes with every publications record;
//! what ended before it is forgotten then. So the definitions are made by the log's records alone, and every replay makes
//! the same.

use std::sync::Arc;

use pg_proto::Lsn;
use pg_proto::read::{ReadError, Reader};

use super::merge::merged;
use super::{PublicationState, codec};

/// Most definitions that are kept beside the one in force.
const OLDER_MAX: usize = 1024;
/// Most bytes of theirs, as they are stored in a snapshot.
const OLDER_BYTES_MAX: usize = 16 << 20;

/// What one publications record says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicationsRecord {
    /// In a snapshot: the position from which on it counts. Elsewhere it counts from the commit of its transaction.
    pub since: Option<Lsn>,
    /// Where it stands in its transaction: what committed before this and no more is in it beside what the transaction
    /// itself changed. `0/0`: all that committed before its transaction is in it.
    pub place: Lsn,
    /// No transaction that commits behind it has a change before this; in a snapshot, [`Definitions::known_from`].
    pub horizon: Lsn,
    /// The publications.
    pub state: PublicationState,
}

const HAS_SINCE: u8 = 1;

impl PublicationsRecord {
    /// Appends the payload of a publications record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Self {
            since,
            place,
            horizon,
            state,
        } = self;
        put_head(*since, *place, *horizon, out);
        state.encode(out);
    }

    /// The inverse of [`Self::encode`].
    pub fn decode(payload: &[u8]) -> Result<Self, ReadError> {
        let mut reader = Reader::new(payload);
        let flags = reader.u8("publications flags")?;
        if flags & !HAS_SINCE != 0 {
            return Err(reader.invalid("publications flags", flags));
        }
        let mut lsn = |field| codec::take_lsn(&mut reader, field);
        let since = lsn("start of publications")?;
        let place = lsn("place of publications")?;
        let horizon = lsn("horizon of publications")?;
        Ok(Self {
            since: (flags & HAS_SINCE != 0).then_some(since),
            place,
            horizon,
            state: PublicationState::decode(reader.rest())?,
        })
    }
}

/// Appends what stands before the publications in a record of theirs.
pub(super) fn put_head(since: Option<Lsn>, place: Lsn, horizon: Lsn, out: &mut Vec<u8>) {
    out.push(u8::from(since.is_some()) * HAS_SINCE);
    for lsn in [since.unwrap_or(Lsn::INVALID), place, horizon] {
        out.extend_from_slice(&lsn.0.to_le_bytes());
    }
}

/// One state of the publications.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// Commit LSN of the transaction that made it; `0/0` for the first one that is known, which counts from ever.
    pub since: Lsn,
    /// The publications.
    pub state: Arc<PublicationState>,
    /// Its bytes in a snapshot.
    bytes: usize,
}

/// The publications in force, and those that were in force when changes were made that may still come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definitions {
    /// Oldest first.
    older: Vec<Definition>,
    current: Definition,
    known_from: Lsn,
}

impl Definitions {
    /// The publications in force for changes behind all definitions.
    #[must_use]
    pub const fn current(&self) -> &Definition {
        &self.current
    }

    /// What was in force before, oldest first.
    #[must_use]
    pub fn older(&self) -> &[Definition] {
        &self.older
    }

    /// Definitions that ended at or before this position are forgotten. A change before it is judged by the oldest
    /// one that is known; there is none unless there were more definitions beside one open transaction than are kept.
    #[must_use]
    pub const fn known_from(&self) -> Lsn {
        self.known_from
    }

    /// The publications by which a change at `lsn` is judged: those of the last transaction that committed at or before it.
    #[must_use]
    pub fn at(&self, lsn: Lsn) -> &Arc<PublicationState> {
        if lsn >= self.current.since {
            return &self.current.state;
        }
        let later = self.older.partition_point(|one| one.since <= lsn);
        let found = self.older.get(later.saturating_sub(1));
        found.map_or(&self.current.state, |one| &one.state)
    }

    /// Those of others that the transaction which commits at `commit_lsn` had seen when it stated its own at `place`.
    #[must_use]
    pub fn seen_at(&self, place: Lsn, commit_lsn: Lsn) -> &Arc<PublicationState> {
        if place.is_valid() {
            // A commit record that begins where the message ends came behind it.
            self.at(Lsn(place.0 - 1))
        } else {
            self.before(commit_lsn)
        }
    }

    /// Nothing but `state`, as the one in force.
    pub(super) fn only(state: &Arc<PublicationState>) -> Self {
        Self {
            current: Definition {
                state: Arc::clone(state),
                ..Definition::default()
            },
            ..Self::default()
        }
    }

    /// Those in force before the transaction that commits at `commit_lsn`.
    fn before(&self, commit_lsn: Lsn) -> &Arc<PublicationState> {
        match self.older.last() {
            Some(older) if self.current.since == commit_lsn => &older.state,
            _ => &self.current.state,
        }
    }

    fn is_stated(&self) -> bool {
        self.current.since.is_valid()
            || !self.older.is_empty()
            || *self.current.state != PublicationState::default()
    }

    /// What a record of the transaction that commits at `commit_lsn` makes of them; `None` if nothing changes.
    pub(super) fn with(&self, record: PublicationsRecord, commit_lsn: Lsn) -> Option<Self> {
        if record.since.is_some() {
            return Some(self.with_snapshot(record));
        }
        let state = self.restated(record.place, record.state, commit_lsn);
        if state == *self.current.state {
            return None;
        }
        let mut next = self.clone();
        let definition = Definition::new(commit_lsn, state);
        if !self.is_stated() {
            // Nothing says that it was ever otherwise.
            next.current = Definition {
                since: Lsn::INVALID,
                ..definition
            };
        } else if self.current.since == commit_lsn {
            next.current = definition;
        } else {
            let before = std::mem::replace(&mut next.current, definition);
            next.older.push(before);
            next.forget(record.horizon);
        }
        Some(next)
    }

    /// The state behind the transaction: what it changed itself, and what others changed whose commits it had not seen.
    fn restated(&self, place: Lsn, stated: PublicationState, commit_lsn: Lsn) -> PublicationState {
        let others = self.before(commit_lsn);
        let seen = self.seen_at(place, commit_lsn);
        if Arc::ptr_eq(seen, others) || seen == others {
            return stated;
        }
        merged(seen, &stated, others)
    }

    fn with_snapshot(&self, record: PublicationsRecord) -> Self {
        let mut next = self.clone();
        let since = record.since.unwrap_or(Lsn::INVALID);
        let definition = Definition::new(since, record.state);
        let before = std::mem::replace(&mut next.current, definition);
        if self.is_stated() {
            next.older.push(before);
        }
        next.known_from = next.known_from.max(record.horizon);
        next
    }

    /// Drops what no change that comes can need, and what is too much.
    fn forget(&mut self, horizon: Lsn) {
        let mut ended = 0;
        let mut bytes: usize = self.older.iter().map(|one| one.bytes).sum();
        let ends = self.older.iter().skip(1).chain([&self.current]);
        for (one, next) in self.older.iter().zip(ends) {
            let too_much = self.older.len() - ended > OLDER_MAX || bytes > OLDER_BYTES_MAX;
            if next.since > horizon && !too_much {
                break;
            }
            bytes -= one.bytes;
            ended += 1;
        }
        if ended > 0 {
            self.older.drain(..ended);
            self.known_from = self.older.first().unwrap_or(&self.current).since;
        }
    }

    /// As the records of a snapshot, oldest first.
    pub(super) fn records(&self) -> impl Iterator<Item = PublicationsRecord> {
        let all = self.older.iter().chain([&self.current]);
        let known_from = self.known_from;
        all.filter(|_| self.is_stated())
            .map(move |one| PublicationsRecord {
                since: Some(one.since),
                place: Lsn::INVALID,
                horizon: known_from,
                state: PublicationState::clone(&one.state),
            })
    }
}

impl Definition {
    fn new(since: Lsn, state: PublicationState) -> Self {
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        Self {
            since,
            state: Arc::new(state),
            bytes: bytes.len(),
        }
    }
}

#[cfg(test)]
#[path = "definitions_tests.rs"]
mod tests;
