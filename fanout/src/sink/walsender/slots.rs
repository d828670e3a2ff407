//! The commands about slots. Slots live in the decoder's registry; nothing of them is at the source.

use std::error::Error;
use std::time::Duration;

use pg_proto::Lsn;
use pg_proto::replication::CommandOption;
use pg_proto::wire::{ErrorFields, FieldDescription, sqlstate};
use proto::v1::SlotStatus;
use tokio::time::Instant;
use tonic::Code;

use super::session::Session;
use super::snapshot::Snapshot;
use super::upstream::with_causes;
use super::{slot_name, slot_options};
use crate::positions::{NewSlot, PositionsError};

/// The output plugin whose messages are in the log.
pub(super) const PLUGIN: &str = "pgoutput";
/// `DROP_REPLICATION_SLOT ... WAIT` gives a dying connection this long: it runs inside a user's session.
const DROP_WAIT_MAX: Duration = Duration::from_secs(60);
/// What to do about a slot that can't be used any more.
pub(super) const MAKE_ANEW: &str =
    "Drop the slot, or the subscription, make it anew and copy the tables.";
/// Between two looks whether a slot is free.
const DROP_WAIT_STEP: Duration = Duration::from_millis(100);

impl Session<'_> {
    pub(super) async fn create_slot(
        &mut self,
        slot: &str,
        temporary: bool,
        plugin: &str,
        options: &[CommandOption],
    ) -> Result<(), ErrorFields> {
        let options = slot_options::create(self.source.version, options)?;
        self.require_database()?;
        slot_name::validate(slot)?;
        let existing = self.shared.services.positions.slot(slot).await;
        if existing.map_err(|error| self.slot_error(&error))?.is_some() {
            return Err(exists(slot));
        }
        self.check_snapshot(options.snapshot).await?;
        if plugin != PLUGIN {
            return Err(no_plugin(plugin));
        }
        let snapshot = Box::pin(self.take_snapshot(options.snapshot)).await?;
        let new = NewSlot {
            name: slot.to_owned(),
            start: snapshot.as_ref().map(Snapshot::position),
            temporary,
            two_phase: options.two_phase,
            failover: options.failover,
            creator: self.login.user.clone(),
            plugin: plugin.to_owned(),
        };
        let created = self.make_slot(new).await?;
        let snapshot_name = match snapshot {
            Some(snapshot) => self.hand_over(snapshot, options.snapshot).await,
            None => None,
        };
        let columns = [
            "slot_name",
            "consistent_point",
            "snapshot_name",
            "output_plugin",
        ];
        self.row(
            columns.map(FieldDescription::text).to_vec(),
            &[
                Some(slot),
                Some(&Lsn(created.confirmed_lsn).to_string()),
                snapshot_name.as_deref(),
                Some(plugin),
            ],
            "CREATE_REPLICATION_SLOT",
        );
        Ok(())
    }

    /// Makes a slot; a temporary one is this session's.
    pub(super) async fn make_slot(&mut self, new: NewSlot) -> Result<SlotStatus, ErrorFields> {
        let (name, temporary) = (new.name.clone(), new.temporary);
        let created = self.shared.services.positions.create_slot(new).await;
        let created = created.map_err(|error| self.slot_error(&error))?;
        if temporary {
            let (positions, pid) = (&self.shared.services.positions, self.backend.pid());
            let lease = positions.acquire_for(&name, pid).await;
            let lease = lease.map_err(|error| self.slot_error(&error))?;
            self.temporary.insert(name, lease);
        }
        Ok(created)
    }

    pub(super) async fn drop_slot(&mut self, slot: &str, wait: bool) -> Result<(), ErrorFields> {
        self.drop_now(slot, wait).await?;
        self.client.sender.complete("DROP_REPLICATION_SLOT");
        Ok(())
    }

    /// Drops a slot that nobody streams from; `wait`: as soon as nobody does.
    pub(super) async fn drop_now(&mut self, slot: &str, wait: bool) -> Result<(), ErrorFields> {
        let own = self.temporary.remove(slot);
        let is_own = own.is_some();
        if let Some(lease) = own {
            // A temporary slot ends with its lease. If the decoder did not hear of it, it is dropped next.
            let _ = lease.release().await;
        }
        let deadline = Instant::now() + DROP_WAIT_MAX;
        loop {
            match self.shared.services.positions.drop_slot(slot, false).await {
                Ok(()) => break,
                Err(PositionsError::UnknownSlot { .. }) if is_own => break,
                Err(PositionsError::SlotInUse { .. })
                    if wait
                        && Instant::now() < deadline
                        && !self.shared.shutdown.is_cancelled() =>
                {
                    tokio::time::sleep(DROP_WAIT_STEP).await;
                }
                Err(error) => return Err(self.slot_error(&error)),
            }
        }
        Ok(())
    }

    pub(super) async fn alter_slot(
        &mut self,
        slot: &str,
        options: &[CommandOption],
    ) -> Result<(), ErrorFields> {
        let change = slot_options::alter(self.source.version, options)?;
        let positions = &self.shared.services.positions;
        let altered = positions.alter_slot(slot, change.two_phase, change.failover);
        altered.await.map_err(|error| self.slot_error(&error))?;
        self.client.sender.complete("ALTER_REPLICATION_SLOT");
        Ok(())
    }

    pub(super) async fn read_slot(&mut self, slot: &str) -> Result<(), ErrorFields> {
        let existing = self.shared.services.positions.slot(slot).await;
        if existing.map_err(|error| self.slot_error(&error))?.is_some() {
            return Err(ErrorFields::error(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "cannot use READ_REPLICATION_SLOT with a logical replication slot",
            ));
        }
        let columns = vec![
            FieldDescription::text("slot_type"),
            FieldDescription::text("restart_lsn"),
            FieldDescription::int8("restart_tli"),
        ];
        self.row(columns, &[None, None, None], "READ_REPLICATION_SLOT");
        Ok(())
    }

    /// What a client is told when the registry says no.
    pub(super) fn slot_error(&self, error: &PositionsError) -> ErrorFields {
        match error {
            PositionsError::UnknownSlot { slot } => unknown(slot),
            PositionsError::SlotExists { slot } => exists(slot),
            PositionsError::SlotInUse { slot, holder, pid } => {
                let message = format!("replication slot \"{slot}\" is active for PID {pid}");
                let report = ErrorFields::error(sqlstate::OBJECT_IN_USE, message);
                if self.shared.backends.streaming(slot) == Some(*pid) {
                    return report;
                }
                report.with_detail(format!("It is served elsewhere: {holder}"))
            }
            PositionsError::Invalidated { slot, reason, .. } => {
                let message = self.source.version.invalidated_slot(slot);
                let report = ErrorFields::error(error.sqlstate(), message)
                    .with_detail(self.source.version.invalidation(reason));
                match reason.as_str() {
                    // No server has this reason, so that none says what to do.
                    "forked" => report.with_hint(MAKE_ANEW),
                    _ => report,
                }
            }
            // It did answer: it can't do it now.
            PositionsError::Unavailable { source, .. }
                if source.code() == Code::Unavailable && source.source().is_none() =>
            {
                ErrorFields::error(error.sqlstate(), source.message())
            }
            PositionsError::Unavailable { source, .. } => {
                ErrorFields::error(error.sqlstate(), error.to_string())
                    .with_detail(source.message())
                    .with_hint("Streams that have begun go on; slots are kept by the decoder.")
            }
            other => {
                let report = ErrorFields::error(other.sqlstate(), other.to_string());
                match other.source() {
                    Some(cause) => report.with_detail(with_causes(cause)),
                    None => report,
                }
            }
        }
    }
}

pub(super) fn exists(slot: &str) -> ErrorFields {
    ErrorFields::error(
        sqlstate::DUPLICATE_OBJECT,
        format!("replication slot \"{slot}\" already exists"),
    )
}

pub(super) fn unknown(slot: &str) -> ErrorFields {
    ErrorFields::error(
        sqlstate::UNDEFINED_OBJECT,
        format!("replication slot \"{slot}\" does not exist"),
    )
}

/// Only one plugin's messages are here.
pub(super) fn no_plugin(plugin: &str) -> ErrorFields {
    let message = format!("could not access file \"{plugin}\": No such file or directory");
    ErrorFields::error(sqlstate::UNDEFINED_FILE, message)
        .with_hint("This endpoint has the output plugin pgoutput.")
}
