//! What the registry needs every second.

use std::sync::Arc;
use std::time::Instant;

use tokio::task::spawn_blocking;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::registry::{Registry, RegistryError, SWEEP_INTERVAL};

/// Ends what has no lease any more and makes positions durable, every second and at the end. A failure is logged once
/// until it works again: positions that are not durable only keep more of the log.
pub async fn maintain_registry(registry: Arc<Registry>, shutdown: CancellationToken) {
    let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failed = false;
    loop {
        let ending = tokio::select! {
            () = shutdown.cancelled() => true,
            _ = ticks.tick() => false,
        };
        let kept = Arc::clone(&registry);
        match spawn_blocking(move || keep(&kept)).await {
            Ok(Ok(())) => failed = false,
            Ok(Err(error)) if !failed => {
                failed = true;
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "positions of slots can't be stored");
            }
            Ok(Err(_)) => {}
            Err(error) => tracing::error!(%error, "keeping the registry failed"),
        }
        if ending {
            return;
        }
    }
}

fn keep(registry: &Registry) -> Result<(), RegistryError> {
    for slot in registry.sweep(Instant::now())? {
        tracing::info!(slot, "temporary slot ended with its lease");
    }
    registry.persist()
}
