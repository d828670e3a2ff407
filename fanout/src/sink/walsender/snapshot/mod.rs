//! `CREATE_REPLICATION_SLOT ... (SNAPSHOT 'use' | 'export')`: a slot with a snapshot of the source that fits it.
//!
//! ```text
//! rules     what PostgreSQL asks of the client's transaction
//! make      looks for a snapshot and a position of the log that fit, and if there are none has the source make them
//! holder    the transaction at the source that keeps the snapshot, on a connection of the client's own role
//! ```
//!
//! The snapshot is taken in a transaction of its own and exported. For `use` the client's transaction imports it, which
//! leaves that transaction otherwise as it is, and the other one ends at once. For `export` it stays until the client's
//! next command. Which snapshots fit which positions: see [`snapshot`](crate::snapshot).

mod holder;
mod make;
mod rules;

use std::pin::pin;

use pg_proto::Lsn;
use pg_proto::replication::SnapshotAction;
use pg_proto::wire::{ErrorFields, sqlstate};

use self::holder::Holder;
use self::make::Maker;
use super::session::Session;
use super::upstream::lost;

/// A snapshot, and the position of the log that fits it.
pub(super) struct Snapshot {
    /// Its name for other transactions, which may import it as long as the holder lives.
    name: String,
    /// The snapshot sees exactly the transactions that commit before this.
    position: Lsn,
    holder: Holder,
}

impl Snapshot {
    /// Where a slot has to start that goes on from it.
    pub(super) const fn position(&self) -> Lsn {
        self.position
    }
}

/// A snapshot that was exported for the client, which has until its next command to import it elsewhere.
#[derive(Debug)]
pub(super) struct Exported(Holder);

impl Session<'_> {
    /// Whether this may be asked for now.
    pub(super) async fn check_snapshot(
        &mut self,
        action: SnapshotAction,
    ) -> Result<(), ErrorFields> {
        let (version, status) = (self.source.version, self.upstream.status());
        match action {
            SnapshotAction::Nothing => Ok(()),
            SnapshotAction::Export => rules::export(version, status),
            SnapshotAction::Use => {
                rules::inside_transaction(version, status)?;
                rules::using(version, self.upstream.open().await?).await
            }
        }
    }

    /// Takes the snapshot that was asked for. For `use` it is that of the client's transaction when this returns.
    pub(super) async fn take_snapshot(
        &mut self,
        action: SnapshotAction,
    ) -> Result<Option<Snapshot>, ErrorFields> {
        if action == SnapshotAction::Nothing {
            return Ok(None);
        }
        let taken = match self.make_snapshot().await {
            Ok(snapshot) if action == SnapshotAction::Use => self.import(snapshot).await,
            other => other,
        };
        if taken.is_err() {
            self.shared.services.snapshots.count_failed();
        }
        taken.map(Some)
    }

    /// What becomes of the snapshot once the slot stands: its name, if the client is to import it.
    pub(super) async fn hand_over(
        &mut self,
        snapshot: Snapshot,
        action: SnapshotAction,
    ) -> Option<String> {
        if action == SnapshotAction::Export {
            self.exported = Some(Box::new(Exported(snapshot.holder)));
            return Some(snapshot.name);
        }
        snapshot.holder.close().await;
        None
    }

    /// Ends the snapshot that was exported last, as every command does (`SnapBuildClearExportedSnapshot`).
    pub(super) async fn end_export(&mut self) {
        if let Some(exported) = self.exported.take() {
            exported.0.close().await;
        }
    }

    /// Makes it, unless the client cancels, leaves, or the fanout shuts down.
    async fn make_snapshot(&mut self) -> Result<Snapshot, ErrorFields> {
        let shared = self.shared;
        let options = self.upstream.options().clone();
        let maker = Maker::new(&shared.services, options, self.source.version);
        let cancelled = self.backend.cancelled();
        let mut cancel = pin!(cancelled.notified());
        cancel.as_mut().enable();
        let made = tokio::select! {
            made = maker.make() => made,
            () = cancel => Err(ErrorFields::error(
                sqlstate::QUERY_CANCELED,
                "canceling statement due to user request",
            )),
            () = self.client.receiver.gone() => Err(ErrorFields::fatal(
                sqlstate::CONNECTION_FAILURE,
                "connection to client lost",
            )),
            () = shared.shutdown.cancelled() => Err(ErrorFields::fatal(
                sqlstate::ADMIN_SHUTDOWN,
                "terminating connection due to administrator command",
            )),
        };
        if made.is_err() {
            maker.abandon();
        }
        made
    }

    async fn import(&mut self, snapshot: Snapshot) -> Result<Snapshot, ErrorFields> {
        let sql = format!(
            "SET TRANSACTION SNAPSHOT '{}'",
            snapshot.name.replace('\'', "''")
        );
        match self.upstream.open().await?.simple_query(&sql).await {
            Ok(_) => Ok(snapshot),
            Err(error) => Err(error.server().cloned().unwrap_or_else(|| lost(&error))),
        }
    }
}
