//! Confirmed positions on their way to the decoder.

use std::sync::Arc;
use std::time::Duration;

use proto::v1::{ReportSlotsRequest, SlotReport};
use storage_format::log::Log;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::lease::Held;
use super::{Positions, PositionsError, round};

/// Time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for the decoder to take a report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Reports all leases once a second until `shutdown` is cancelled. What is held then is given back by its owners.
pub async fn report(positions: Positions, log: Arc<Log>, shutdown: CancellationToken) {
    let mut ticks = tokio::time::interval(REPORT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answered = true;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.cancelled() => return,
        }
        let held = positions.held();
        if held.is_empty() {
            continue;
        }
        round::round_all(&log, &held).await;
        match report_once(&positions, &held).await {
            Ok(()) => answered = true,
            Err(error) => {
                if answered {
                    tracing::warn!(
                        error = service::cli::causes(&error),
                        "positions are not reported for now"
                    );
                }
                answered = false;
            }
        }
    }
}

async fn report_once(positions: &Positions, held: &[Arc<Held>]) -> Result<(), PositionsError> {
    let slots = held.iter().map(|held| SlotReport {
        name: held.slot.name.clone(),
        confirmed_lsn: held.claim().whole.0,
        pid: held.pid,
    });
    let request = ReportSlotsRequest {
        holder: positions.holder().to_owned(),
        slots: slots.collect(),
    };
    let mut control = positions.control();
    let answer = positions
        .ask(None, REPORT_TIMEOUT, control.report_slots(request))
        .await?;
    for name in answer.lost {
        if let Some(held) = held.iter().find(|held| held.slot.name == name) {
            check_lost(positions, held).await?;
        }
    }
    Ok(())
}

/// A lease that ran out while the decoder was away is taken again, unless the slot is another one by now or
/// somebody else has it.
async fn check_lost(positions: &Positions, held: &Held) -> Result<(), PositionsError> {
    let name = &held.slot.name;
    match positions.ask_lease(name, held.pid).await {
        Ok(slot) if slot.created_at == held.slot.created_at => Ok(()),
        Err(error @ PositionsError::Unavailable { .. }) => Err(error),
        other => {
            let reason = match other {
                Ok(_) => "it was dropped and made anew".to_owned(),
                Err(error) => error.to_string(),
            };
            tracing::warn!(
                slot = name,
                reason,
                "lost the slot; its subscriber is disconnected"
            );
            held.lost.cancel();
            Ok(())
        }
    }
}
