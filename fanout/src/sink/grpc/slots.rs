//! Slots that gRPC streams of this fanout hold, for Acknowledge.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pg_proto::Lsn;

use crate::error::StreamError;
use crate::positions::{Lease, whole_transaction};
use crate::replay::Replay;

/// A slot that a stream holds.
#[derive(Debug)]
pub(super) struct ServedSlot {
    lease: Lease,
    sent: AtomicU64,
}

impl ServedSlot {
    pub(super) const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Everything below `position` was handed to the client's connection.
    pub(super) fn set_sent(&self, position: Lsn) {
        self.sent.store(position.0, Ordering::Release);
    }

    /// The client has everything that ends at or below `lsn`; returns what is confirmed now.
    pub(super) async fn acknowledge(&self, replay: &Replay, lsn: Lsn) -> Result<Lsn, StreamError> {
        let sent = Lsn(self.sent.load(Ordering::Acquire));
        let floor = self.lease.confirmed();
        self.lease.confirm(lsn, sent);
        let lsn = lsn.min(sent);
        if lsn > self.lease.confirmed() {
            let whole = whole_transaction(replay.log(), floor, lsn).await?;
            self.lease.confirm(whole, whole);
        }
        Ok(self.lease.confirmed())
    }
}

/// The slots that streams hold now.
#[derive(Clone, Debug, Default)]
pub(super) struct ServedSlots {
    by_name: Arc<Mutex<HashMap<String, Arc<ServedSlot>>>>,
}

impl ServedSlots {
    /// Lists a slot for as long as the guard lives.
    pub(super) fn serve(&self, lease: Lease, sent: Lsn) -> ServedGuard {
        let name = lease.slot().name.clone();
        let slot = Arc::new(ServedSlot {
            lease,
            sent: AtomicU64::new(sent.0),
        });
        self.by_name.lock().insert(name, Arc::clone(&slot));
        ServedGuard {
            slot,
            slots: self.clone(),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<ServedSlot>> {
        self.by_name.lock().get(name).cloned()
    }
}

/// A slot's place in the list; when it is dropped, so is the lease.
#[derive(Debug)]
pub(super) struct ServedGuard {
    slot: Arc<ServedSlot>,
    slots: ServedSlots,
}

impl ServedGuard {
    pub(super) fn slot(&self) -> &ServedSlot {
        &self.slot
    }
}

impl Drop for ServedGuard {
    fn drop(&mut self) {
        let name = &self.slot.lease.slot().name;
        self.slots.by_name.lock().remove(name);
    }
}
