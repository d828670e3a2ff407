//! Facts and errors in the words of the contract.

use std::time::{Instant, SystemTime};

use pg_proto::{Lsn, PgTimestamp};
use proto::v1;
use tonic::{Code, Status};

use crate::catalog::ExplainError;
use crate::registry::{Invalidation, RegistryError, Slot};
use crate::retention::{SegmentFacts, Verdict};
use crate::state::{CatalogMode, Head, RefreshError, SourceState};

pub(super) fn head(head: Head) -> v1::Head {
    v1::Head {
        writer_epoch: head.writer_epoch,
        written_lsn: head.written_lsn.0,
        durable_lsn: head.durable_lsn.0,
        staging_changes: head.staging_changes,
    }
}

/// A slot as of `now`, with its distance from the log's durable end.
pub(super) fn slot(slot: &Slot, durable: Lsn, now: Instant) -> v1::SlotStatus {
    let lease = slot.lease_at(now);
    let holder = lease.map(|lease| lease.holder.to_string());
    let left = lease.map(|lease| lease.until.saturating_duration_since(now));
    let reason = slot.invalidation.map_or("", Invalidation::as_str);
    let pid = lease.map(|lease| lease.pid);
    let lease_until = left.map(|left| unix_micros(SystemTime::now() + left));
    v1::SlotStatus {
        name: slot.name.clone(),
        confirmed_lsn: slot.confirmed_lsn.0,
        restart_lsn: slot.restart_lsn.0,
        temporary: slot.temporary,
        two_phase: slot.two_phase,
        two_phase_at: slot.two_phase_at.0,
        failover: slot.failover,
        creator: slot.creator.clone(),
        created_at: slot.created_at.unix_micros(),
        holder: holder.unwrap_or_default(),
        lease_until: lease_until.unwrap_or_default(),
        plugin: slot.plugin.clone(),
        lag_bytes: durable.bytes_since(slot.confirmed_lsn),
        invalidation_reason: reason.to_owned(),
        holder_pid: pid.unwrap_or_default(),
    }
}

/// A segment; the last one ends where the log does.
pub(super) fn segment(facts: &SegmentFacts, log_end: Lsn) -> v1::Segment {
    let extension = if facts.sealed { "seg" } else { "active" };
    v1::Segment {
        sequence: facts.name.sequence,
        file_name: format!("{}.{extension}", facts.name),
        sealed: facts.sealed,
        first_lsn: facts.name.first_lsn.0,
        end_lsn: facts.end_lsn.unwrap_or(log_end).0,
        bytes: facts.bytes,
        raw_bytes: facts.raw_bytes,
        modified_at: unix_micros(facts.modified_at),
    }
}

pub(super) fn verdict(facts: &SegmentFacts, verdict: &Verdict, log_end: Lsn) -> v1::SegmentVerdict {
    v1::SegmentVerdict {
        segment: Some(segment(facts, log_end)),
        deletable: verdict.deletable,
        reason: verdict.reason.to_string(),
    }
}

pub(super) const fn source_state(state: SourceState) -> v1::SourceState {
    match state {
        SourceState::Connecting => v1::SourceState::Connecting,
        SourceState::Streaming => v1::SourceState::Streaming,
        SourceState::Backoff => v1::SourceState::Backoff,
        SourceState::Failed => v1::SourceState::Failed,
    }
}

pub(super) const fn catalog_mode(mode: CatalogMode) -> v1::CatalogMode {
    match mode {
        CatalogMode::Unknown => v1::CatalogMode::Unspecified,
        CatalogMode::Triggers => v1::CatalogMode::Triggers,
        CatalogMode::Polling => v1::CatalogMode::Polling,
    }
}

/// What the caller did wrong, or that this side failed, which is logged here.
pub(super) fn registry_error(error: RegistryError) -> Status {
    let text = error.to_string();
    match error {
        RegistryError::Exists { .. } => Status::already_exists(text),
        RegistryError::NotFound { .. } => Status::not_found(text),
        RegistryError::InvalidName { .. }
        | RegistryError::InvalidHolder(_)
        | RegistryError::HolderMissing { .. } => Status::invalid_argument(text),
        RegistryError::Held { pid, .. } => {
            let detail = v1::ErrorDetail {
                holder_pid: pid,
                ..v1::ErrorDetail::default()
            };
            proto::status::with_detail(Code::FailedPrecondition, text, &detail)
        }
        RegistryError::Superseded { .. } => Status::failed_precondition(text),
        // Its own code: it is neither in use nor unknown.
        RegistryError::Invalidated { reason, .. } => {
            let detail = v1::ErrorDetail {
                invalidation_reason: reason.as_str().to_owned(),
                ..v1::ErrorDetail::default()
            };
            proto::status::with_detail(Code::DataLoss, text, &detail)
        }
        RegistryError::TooMany { .. } => Status::resource_exhausted(text),
        RegistryError::Store(_)
        | RegistryError::Value { .. }
        | RegistryError::Publication { .. } => internal(&error),
    }
}

pub(super) fn refresh_error(error: &RefreshError) -> Status {
    Status::unavailable(error.to_string())
}

/// A failure of this side, with its causes; it is logged where it is handled, which is here.
pub(super) fn internal(error: &(dyn std::error::Error + 'static)) -> Status {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    tracing::error!(error = text, "a control request failed");
    Status::internal(text)
}

fn unix_micros(time: SystemTime) -> i64 {
    PgTimestamp::from(time).unix_micros()
}

pub(super) fn explain_error(error: ExplainError) -> Status {
    let message = service::cli::causes(&error);
    match error {
        ExplainError::Refused(words) => Status::invalid_argument(words),
        ExplainError::Right(_) => Status::failed_precondition(message),
        ExplainError::Source(_) | ExplainError::Timeout => Status::unavailable(message),
    }
}
