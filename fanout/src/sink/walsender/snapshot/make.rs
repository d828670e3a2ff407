//! From nothing to a snapshot and a position that fit.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pg_client::{CancelToken, ConnectOptions};
use pg_proto::Lsn;
use pg_proto::wire::{ErrorFields, sqlstate};
use tokio::time::{Instant, sleep, timeout};

use super::super::upstream::with_causes;
use super::super::version::ServerVersion;
use super::Snapshot;
use super::holder::{Holder, Look};
use crate::error::StreamError;
use crate::sink::Services;
use crate::snapshot::{CutSearch, Method, Probe, SCAN_BYTES_MAX, scan};

/// The log moves on by itself within this time, or the source is idle and nothing makes it tell where it is.
const NUDGE_AFTER: Duration = Duration::from_millis(100);
/// First and longest pause between two tries: for the next one transactions must have ended, or a commit be flushed,
/// and a busy disk takes its time for that.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// How often the source is asked again for a snapshot when its own waiting made it fail.
const SLOT_RETRIES: u32 = 3;

/// Makes slots' names at the source different.
static SLOTS: AtomicU64 = AtomicU64::new(0);

/// Makes one snapshot.
pub(super) struct Maker<'a> {
    services: &'a Services,
    options: ConnectOptions,
    version: ServerVersion,
    /// Ends the statement that may take long.
    waiting: Mutex<Option<CancelToken>>,
}

/// What came of one look.
enum Attempt {
    /// The snapshot fits this position.
    Fits(Lsn),
    /// It fits none.
    NoCut,
    /// There is nothing to go by yet.
    NothingKnown,
    /// A standby tells too little.
    Standby,
}

impl<'a> Maker<'a> {
    pub(super) const fn new(
        services: &'a Services,
        options: ConnectOptions,
        version: ServerVersion,
    ) -> Self {
        Self {
            services,
            options,
            version,
            waiting: Mutex::new(None),
        }
    }

    /// Looks for a cut in the log as often as is set; then the source has to make one.
    pub(super) async fn make(&self) -> Result<Snapshot, ErrorFields> {
        if let Some(snapshot) = self.by_cut().await? {
            self.services.snapshots.count_made(Method::Cut);
            return Ok(snapshot);
        }
        let snapshot = self.by_slot().await?;
        self.services.snapshots.count_made(Method::Slot);
        Ok(snapshot)
    }

    /// To be called when nobody waits for [`Self::make`] any more. Its connection has been dropped, but the source would
    /// notice that only after its own waiting.
    pub(super) fn abandon(&self) {
        if let Some(token) = self.waiting.lock().take() {
            tokio::spawn(async move { token.cancel().await });
        }
    }

    async fn by_cut(&self) -> Result<Option<Snapshot>, ErrorFields> {
        let tries = self.services.config.fanout.snapshot_tries;
        if tries == 0 {
            return Ok(None);
        }
        let mut holder = Holder::connect(&self.options, self.version, false).await?;
        let mut pause = PAUSES.0;
        for number in 1..=tries {
            match self.attempt(&mut holder).await? {
                Attempt::Fits(position) => {
                    let name = holder.export().await?;
                    tracing::debug!(%position, tries = number, "a snapshot that fits the log");
                    return Ok(Some(Snapshot {
                        name,
                        position,
                        holder,
                    }));
                }
                Attempt::NoCut | Attempt::NothingKnown => {
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
                Attempt::Standby => break,
            }
        }
        holder.close().await;
        Ok(None)
    }

    async fn attempt(&self, holder: &mut Holder) -> Result<Attempt, ErrorFields> {
        let snapshots = &self.services.snapshots;
        // Before the snapshot is taken: see `Horizon`.
        let settled = snapshots.horizon().settled();
        let Some(look) = holder.look().await? else {
            return Ok(Attempt::Standby);
        };
        snapshots.count_look();
        self.log_reaches(look.insert_lsn).await?;
        let base = {
            let mut horizon = snapshots.horizon();
            let base = horizon.base(settled, &look.visibility);
            horizon.probe(Probe {
                lsn: look.insert_lsn,
                next_xid: look.next_xid,
            });
            base
        };
        match base {
            Some(base) if look.insert_lsn.bytes_since(base) <= SCAN_BYTES_MAX => {
                self.search(base, &look).await
            }
            _ => Ok(Attempt::NothingKnown),
        }
    }

    async fn search(&self, base: Lsn, look: &Look) -> Result<Attempt, ErrorFields> {
        let mut search = CutSearch::new(&look.visibility, look.insert_lsn);
        let log = self.services.replay.log();
        let mut show = |xid, lsn| search.commit(xid, lsn);
        match scan(log, base, look.insert_lsn, &mut show).await {
            Ok(true) => {}
            // Deleted meanwhile, because the last snapshot was long ago; or the log has gone back.
            Ok(false) | Err(StreamError::NotKept { .. } | StreamError::NotReached { .. }) => {
                return Ok(Attempt::NothingKnown);
            }
            Err(error) => {
                let report = ErrorFields::error(error.sqlstate(), error.to_string());
                return Err(report.with_detail(with_causes(&error)));
            }
        }
        let cut = search.finish();
        self.services.snapshots.horizon().settle(cut.position);
        Ok(if cut.exact {
            Attempt::Fits(cut.position)
        } else {
            Attempt::NoCut
        })
    }

    async fn by_slot(&self) -> Result<Snapshot, ErrorFields> {
        let mut again = SLOT_RETRIES;
        let (holder, position, name) = loop {
            let mut holder = Holder::connect(&self.options, self.version, true).await?;
            *self.waiting.lock() = Some(holder.cancel_token());
            let slot = self.slot_name();
            tracing::debug!(slot, "the source makes a snapshot");
            let standby = holder.is_at_standby().await?;
            let making = holder.make_by_slot(&slot);
            let made = if standby {
                self.with_nudges(making).await
            } else {
                making.await
            };
            self.waiting.lock().take();
            match made {
                Ok((position, name)) => break (holder, position, name),
                Err(error) if again > 0 && failed_by_waiting(&error) => again -= 1,
                Err(error) => return Err(error),
            }
        };
        self.log_reaches(position).await?;
        Ok(Snapshot {
            name,
            position,
            holder,
        })
    }

    /// A standby waits until its primary has said which transactions run, which that does when it is written to: the
    /// decoder can do that.
    async fn with_nudges<T>(&self, making: impl Future<Output = T>) -> T {
        let mut making = pin!(making);
        loop {
            tokio::select! {
                biased;
                made = &mut making => return made,
                () = self.nudge() => {}
            }
        }
    }

    async fn nudge(&self) {
        sleep(NUDGE_AFTER).await;
        if let Err(error) = self.services.positions.refresh_catalog().await {
            tracing::debug!(%error, "the decoder can't have the primary written to");
        }
    }

    /// Nobody else's, at this source: a slot's name there has 63 characters, `a-z0-9_`.
    fn slot_name(&self) -> String {
        let holder = self.services.positions.holder();
        let incarnation = holder.rsplit('/').next().unwrap_or_default();
        let process = std::process::id();
        let number = SLOTS.fetch_add(1, Ordering::Relaxed);
        format!("decant_snapshot_{incarnation}_{process}_{number}")
    }

    /// Waits until the log has everything before `lsn`. What a snapshot sees may not even be flushed at the source yet
    /// (`synchronous_commit = off`), and an idle source does not say how far it is: then the decoder has it commit
    /// something.
    async fn log_reaches(&self, lsn: Lsn) -> Result<(), ErrorFields> {
        let Services {
            replay, positions, ..
        } = self.services;
        let limit = Duration::from_millis(self.services.config.fanout.snapshot_wait_ms);
        let (mut head, mut moved_at) = (replay.head(), Instant::now());
        loop {
            if let Ok(reached) = timeout(NUDGE_AFTER, replay.reached(lsn)).await {
                return reached
                    .map_err(|error| ErrorFields::error(error.sqlstate(), error.to_string()));
            }
            let now = replay.head();
            if now > head {
                (head, moved_at) = (now, Instant::now());
                continue;
            }
            if moved_at.elapsed() >= limit {
                return Err(standing_still(lsn, head, limit));
            }
            tokio::select! {
                reached = replay.reached(lsn) => return reached.map_err(|error| {
                    ErrorFields::error(error.sqlstate(), error.to_string())
                }),
                asked = positions.refresh_catalog() => if let Err(error) = asked {
                    tracing::debug!(%error, "the decoder can't make the source move on");
                },
            }
        }
    }
}

/// PostgreSQL 15 may fail so, at the end of its wait for a transaction that waited for a synchronous standby.
fn failed_by_waiting(error: &ErrorFields) -> bool {
    let words = "cannot build an initial slot snapshot";
    error.code() == sqlstate::INTERNAL_ERROR && error.message().starts_with(words)
}

fn standing_still(lsn: Lsn, head: Lsn, limit: Duration) -> ErrorFields {
    let message = "the log does not reach the snapshot";
    ErrorFields::error(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .with_detail(format!(
            "The snapshot was taken at {lsn}; the log is at {head} and has not moved for {} ms.",
            limit.as_millis()
        ))
        .with_hint("Is the decoder running, and connected to the source?")
}
