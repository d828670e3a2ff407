//! The right to serve a slot.

use std::sync::Arc;

use parking_lot::Mutex;
use pg_proto::Lsn;
use proto::v1::SlotStatus;
use storage_format::log::Log;
use tokio_util::sync::CancellationToken;

use super::{Positions, PositionsError, round};

/// A slot that this fanout serves, shared by its lease and the task that reports.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) slot: SlotStatus,
    /// The number of the session, or 0.
    pub(super) pid: u32,
    claim: Mutex<Claim>,
    pub(super) lost: CancellationToken,
}

/// What the client says is safe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// The highest position that it gave, and that was sent.
    pub(super) lsn: Lsn,
    /// The end of a whole transaction at or below `lsn`.
    pub(super) whole: Lsn,
}

impl Held {
    pub(super) fn new(slot: SlotStatus, pid: u32) -> Self {
        let confirmed = Lsn(slot.confirmed_lsn);
        Self {
            slot,
            pid,
            claim: Mutex::new(Claim {
                lsn: confirmed,
                whole: confirmed,
            }),
            lost: CancellationToken::new(),
        }
    }

    pub(super) fn claim(&self) -> Claim {
        *self.claim.lock()
    }

    /// Notes that the end of a whole transaction was found at `whole`.
    pub(super) fn round(&self, whole: Lsn) {
        let mut claim = self.claim.lock();
        claim.whole = claim.whole.max(whole);
    }

    fn confirm(&self, flush: Lsn, sent: Lsn) {
        let mut claim = self.claim.lock();
        claim.lsn = claim.lsn.max(flush.min(sent));
        if flush >= sent {
            // A stream's position is the end of a whole transaction already.
            claim.whole = claim.whole.max(sent);
        }
    }
}

/// The right to serve a slot, until it is dropped, released or lost.
#[derive(Debug)]
pub struct Lease {
    held: Arc<Held>,
    positions: Positions,
    released: bool,
}

impl Lease {
    pub(super) const fn new(held: Arc<Held>, positions: Positions) -> Self {
        Self {
            held,
            positions,
            released: false,
        }
    }

    /// The slot as it was when the lease was taken.
    #[must_use]
    pub fn slot(&self) -> &SlotStatus {
        &self.held.slot
    }

    /// What is confirmed so far: the end of a whole transaction.
    #[must_use]
    pub fn confirmed(&self) -> Lsn {
        self.held.claim().whole
    }

    /// The client says that everything that ends at or below `flush` is safe; `sent` is the stream's position when
    /// all before it was written to the client's socket. Takes the lower of the two, never goes back, and is
    /// told to the decoder within a second, rounded down to the end of a whole transaction.
    pub fn confirm(&self, flush: Lsn, sent: Lsn) {
        self.held.confirm(flush, sent);
    }

    /// Returns when the slot is no longer this fanout's: dropped, or taken by another. Cancel safe.
    pub async fn lost(&self) {
        self.held.lost.cancelled().await;
    }

    /// Rounds what was confirmed now, not at the next report: for whoever is about to [`Self::release`].
    pub async fn settle(&self, log: &Arc<Log>) {
        round::round_all(log, std::slice::from_ref(&self.held)).await;
    }

    /// Gives the lease back and waits until the decoder has the last confirmed position, or can't be reached.
    /// Merely dropping the lease does the same in the background.
    pub async fn release(mut self) -> Result<(), PositionsError> {
        self.released = true;
        let (positions, held) = (self.positions.clone(), Arc::clone(&self.held));
        // A task of its own: whoever waits here may be dropped, the lease must still be given back.
        let place = positions.begin_giving_back(&held);
        let task = tokio::spawn(async move { positions.give_back(&held, place).await });
        task.await.unwrap_or(Ok(()))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        let (positions, held) = (self.positions.clone(), Arc::clone(&self.held));
        // Without a runtime the process is ending: the lease runs out, or a new incarnation takes it over.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let place = positions.begin_giving_back(&held);
            runtime.spawn(async move {
                if let Err(error) = positions.give_back(&held, place).await {
                    tracing::warn!(slot = held.slot.name, %error, "can't release the slot; its lease will run out");
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(confirmed: u64) -> Held {
        let slot = SlotStatus {
            confirmed_lsn: confirmed,
            ..SlotStatus::default()
        };
        Held::new(slot, 0)
    }

    #[test]
    fn what_was_not_sent_is_not_confirmed() {
        let held = held(100);
        held.confirm(Lsn(500), Lsn(200));
        let claim = held.claim();
        assert_eq!((claim.lsn, claim.whole), (Lsn(200), Lsn(200)));
    }

    #[test]
    fn a_position_inside_waits_to_be_rounded_and_none_goes_back() {
        let held = held(100);
        held.confirm(Lsn(150), Lsn(200));
        assert_eq!((held.claim().lsn, held.claim().whole), (Lsn(150), Lsn(100)));
        held.round(Lsn(140));
        held.confirm(Lsn(0), Lsn(200));
        assert_eq!((held.claim().lsn, held.claim().whole), (Lsn(150), Lsn(140)));
    }
}
