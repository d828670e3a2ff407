//! Deletes what may go.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pg_proto::Lsn;
use storage_format::FormatError;
use storage_format::fs::Fs;
use storage_format::segment::delete_segment;
use tokio::task::spawn_blocking;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::clock::AgeClock;
use super::decide::{Needs, Policy, SegmentFacts, Verdict, decide};
use super::facts;
use super::reason::Reason;
use crate::registry::{Invalidation, Registry, RegistryError, Slot};

/// Looking at the log or deleting failed.
#[derive(Debug, thiserror::Error)]
pub enum RetentionError {
    /// The files.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The registry.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// What was decided and done.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// All segments, oldest first, each with its verdict.
    pub verdicts: Vec<(SegmentFacts, Verdict)>,
    /// Bytes of those that were deleted, or in a dry run would be.
    pub bytes_freed: u64,
}

/// How much of the log there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The lowest position that is kept; `None` if there is no segment yet.
    pub oldest: Option<Lsn>,
    /// How many segments.
    pub segments: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

/// Decides and deletes. Its methods block on the disk.
#[derive(Debug)]
pub struct Retention {
    fs: Arc<dyn Fs>,
    log: PathBuf,
    policy: Policy,
    registry: Arc<Registry>,
    clock: AgeClock,
    /// Held while segments are deleted, and while a slot is made at an old position.
    collecting: Mutex<()>,
}

impl Retention {
    /// For the log in the directory `log`.
    #[must_use]
    pub fn new(fs: Arc<dyn Fs>, log: PathBuf, policy: Policy, registry: Arc<Registry>) -> Self {
        Self {
            fs,
            log,
            policy,
            registry,
            clock: AgeClock::start(),
            collecting: Mutex::new(()),
        }
    }

    /// The segments, oldest first.
    pub fn segments(&self) -> Result<Vec<SegmentFacts>, FormatError> {
        facts::segments(self.fs.as_ref(), &self.log)
    }

    /// How much there is. Cheaper than [`Self::segments`].
    pub fn usage(&self) -> Result<Usage, FormatError> {
        facts::usage(self.fs.as_ref(), &self.log)
    }

    /// As long as the guard lives, nothing is deleted: what is found kept can be asked to be kept.
    pub fn pause(&self) -> MutexGuard<'_, ()> {
        self.collecting.lock()
    }

    /// Decides, and deletes what may go unless it is a dry run. `by_operator`: somebody asked for it, who thereby
    /// goes on without the slots of a registry that was lost.
    pub fn collect(&self, dry_run: bool, by_operator: bool) -> Result<Collected, RetentionError> {
        let _collecting = self.collecting.lock();
        if by_operator && !dry_run && self.registry.is_lost() {
            tracing::warn!("an operator goes on without the slots of the registry that was lost");
            self.registry.acknowledge_loss()?;
        }
        let segments = self.segments()?;
        // What slots need is what is durable of them. On a full disk that may be less than they confirmed, and something
        // can go all the same.
        let persisted = self.registry.persist();
        if let Err(error) = &persisted {
            tracing::warn!(%error, "the slots' positions could not be made durable, so that more of the log is kept");
        }
        let verdicts = decide(&segments, &self.needs(), self.policy, self.clock.now());
        if !dry_run {
            self.give_up(&segments, &verdicts, persisted)?;
        }
        let mut collected = Collected::default();
        for (segment, verdict) in segments.into_iter().zip(verdicts) {
            if verdict.deletable {
                collected.bytes_freed += segment.bytes;
                if !dry_run {
                    self.delete(&segment, &verdict)?;
                }
            }
            collected.verdicts.push((segment, verdict));
        }
        Ok(collected)
    }

    /// Invalidates the slots that need what is about to go; before it goes, so that none of them finds a hole. No slot is
    /// made or moved back meanwhile.
    fn give_up(
        &self,
        segments: &[SegmentFacts],
        verdicts: &[Verdict],
        persisted: Result<(), RegistryError>,
    ) -> Result<(), RegistryError> {
        let last = segments
            .iter()
            .zip(verdicts)
            .rfind(|(_, verdict)| matches!(verdict.reason, Reason::GivenUp { .. }));
        let Some(end_lsn) = last.and_then(|(segment, _)| segment.end_lsn) else {
            return Ok(());
        };
        persisted?;
        let behind = |slot: &Slot| (slot.restart_lsn < end_lsn).then_some(Invalidation::WalRemoved);
        for slot in self.registry.invalidate(behind)? {
            tracing::error!(
                slot = slot.name,
                restart = %slot.restart_lsn,
                limit = %end_lsn,
                "slot invalidated: it is too far behind for retention.slot_keep_bytes_max or slot_keep_seconds_max"
            );
        }
        Ok(())
    }

    /// Oldest first: whenever this process ends, the log has no hole.
    fn delete(&self, segment: &SegmentFacts, verdict: &Verdict) -> Result<(), FormatError> {
        delete_segment(self.fs.as_ref(), &self.log, segment.name)?;
        tracing::info!(
            segment = %segment.name,
            bytes = segment.bytes,
            reason = %verdict.reason,
            "segment deleted"
        );
        Ok(())
    }

    fn needs(&self) -> Needs {
        Needs {
            slots: self.registry.needs(),
            registry_lost: self.registry.is_lost(),
        }
    }

    /// Collects every `interval` until `shutdown`; never, if it is zero. What fails is logged and tried again.
    pub async fn run(self: Arc<Self>, interval: Duration, shutdown: CancellationToken) {
        if interval.is_zero() {
            return;
        }
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let retention = Arc::clone(&self);
            match spawn_blocking(move || retention.collect(false, false)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::error!(%error, "deleting old segments failed"),
                Err(error) => tracing::error!(%error, "deleting old segments failed"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use storage_format::fs::RealFs;
    use storage_format::segment::{SegmentExtension, SegmentName};

    use super::*;
    use crate::registry::{MemoryStore, NewSlot, Pairs, Store, StoreError};

    const SEALED: [u64; 3] = [1, 2, 3];

    fn name(sequence: u64) -> SegmentName {
        SegmentName {
            sequence,
            first_lsn: Lsn(sequence * 10),
        }
    }

    /// Three sealed segments, with their indexes, and an active one.
    fn write_log(log: &Path) {
        std::fs::create_dir_all(SegmentName::folder(log)).unwrap();
        for sequence in SEALED {
            std::fs::write(name(sequence).path(log, SegmentExtension::Sealed), [0; 50]).unwrap();
            std::fs::write(name(sequence).path(log, SegmentExtension::Index), [0; 5]).unwrap();
        }
        std::fs::write(name(4).path(log, SegmentExtension::Active), [0; 50]).unwrap();
    }

    fn retention(log: &Path, lost: bool) -> Retention {
        let registry = Registry::with_store(Box::<MemoryStore>::default(), lost, Instant::now());
        let policy = Policy::default();
        Retention::new(
            Arc::new(RealFs),
            log.to_owned(),
            policy,
            Arc::new(registry.unwrap()),
        )
    }

    fn add_slot(retention: &Retention, lsn: u64) {
        let new = NewSlot {
            name: format!("slot_{lsn}"),
            start_lsn: Lsn(lsn),
            ..NewSlot::default()
        };
        retention.registry.create(new, Instant::now()).unwrap();
    }

    fn files(log: &Path) -> usize {
        std::fs::read_dir(SegmentName::folder(log)).unwrap().count()
    }

    #[test]
    fn deletes_what_a_dry_run_announces() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path();
        write_log(log);
        let retention = retention(log, false);
        add_slot(&retention, 35);
        let dry = retention.collect(true, true).unwrap();
        assert_eq!((dry.bytes_freed, files(log)), (100, 7));
        let real = retention.collect(false, true).unwrap();
        assert_eq!((real.bytes_freed, files(log)), (100, 3));
        assert_eq!(real.verdicts, dry.verdicts);
        assert_eq!(retention.usage().unwrap().oldest, Some(Lsn(30)));
        let again = retention.collect(false, true).unwrap();
        assert_eq!((again.bytes_freed, files(log)), (0, 3));
    }

    /// A store on a disk that may be full.
    #[derive(Clone, Debug, Default)]
    struct SmallStore {
        pairs: Arc<MemoryStore>,
        full: Arc<AtomicBool>,
    }

    impl Store for SmallStore {
        fn scan(&self, prefix: &[u8]) -> Result<Pairs, StoreError> {
            self.pairs.scan(prefix)
        }

        fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
            self.pairs.put(key, value)
        }

        fn remove(&self, key: &[u8]) -> Result<(), StoreError> {
            self.pairs.remove(key)
        }

        fn flush(&self) -> Result<(), StoreError> {
            if self.full.load(Ordering::Relaxed) {
                return Err(StoreError::Failed {
                    action: "flush",
                    source: Box::new(std::io::Error::from(std::io::ErrorKind::StorageFull)),
                });
            }
            self.pairs.flush()
        }
    }

    #[test]
    fn nothing_goes_for_a_position_that_is_not_durable() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path();
        write_log(log);
        let store = SmallStore::default();
        let registry = Registry::with_store(Box::new(store.clone()), false, Instant::now());
        let registry = Arc::new(registry.unwrap());
        let retention = Retention::new(
            Arc::new(RealFs),
            log.to_owned(),
            Policy::default(),
            Arc::clone(&registry),
        );
        add_slot(&retention, 20);
        let holder = "a/1".parse().unwrap();
        registry
            .acquire("slot_20", &holder, Instant::now())
            .unwrap();
        let lost = registry.report(&holder, &[("slot_20".to_owned(), Lsn(35))], Instant::now());
        assert!(lost.is_empty());
        store.full.store(true, Ordering::Relaxed);
        // What ends at or before the position that is durable goes even so: that makes room.
        assert_eq!(retention.collect(false, false).unwrap().bytes_freed, 50);
        assert_eq!(registry.needs(), [("slot_20".to_owned(), Lsn(20))]);
        store.full.store(false, Ordering::Relaxed);
        assert_eq!(retention.collect(false, false).unwrap().bytes_freed, 50);
        assert_eq!(registry.needs(), [("slot_20".to_owned(), Lsn(35))]);
        assert_eq!(retention.usage().unwrap().oldest, Some(Lsn(30)));
    }

    #[test]
    fn a_slot_that_is_being_dropped_is_needed_until_that_is_durable() {
        let store = SmallStore::default();
        let registry = Registry::with_store(Box::new(store.clone()), false, Instant::now());
        let registry = registry.unwrap();
        let new = NewSlot {
            name: "a".to_owned(),
            start_lsn: Lsn(20),
            ..NewSlot::default()
        };
        registry.create(new, Instant::now()).unwrap();
        store.full.store(true, Ordering::Relaxed);
        registry
            .drop_slot("a", None, false, Instant::now())
            .unwrap_err();
        assert_eq!(registry.needs(), [("a".to_owned(), Lsn(20))]);
        store.full.store(false, Ordering::Relaxed);
        registry.persist().unwrap();
        assert_eq!(registry.needs(), []);
    }

    #[test]
    fn a_lost_registry_holds_everything_until_an_operator_asks() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path();
        write_log(log);
        let retention = retention(log, true);
        add_slot(&retention, 100);
        assert_eq!(retention.collect(false, false).unwrap().bytes_freed, 0);
        assert_eq!(retention.collect(true, true).unwrap().bytes_freed, 0);
        assert_eq!(files(log), 7);
        assert_eq!(retention.collect(false, true).unwrap().bytes_freed, 150);
        assert_eq!(files(log), 1);
    }

    #[test]
    fn a_log_that_does_not_exist_has_nothing_to_delete() {
        let folder = tempfile::tempdir().unwrap();
        let retention = retention(&folder.path().join("none"), false);
        assert!(retention.collect(false, true).unwrap().verdicts.is_empty());
        assert_eq!(retention.usage().unwrap().oldest, None);
    }

    #[tokio::test]
    async fn runs_until_it_is_told_to_stop() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().to_owned();
        write_log(&log);
        let retention = Arc::new(retention(&log, false));
        add_slot(&retention, 20);
        let shutdown = CancellationToken::new();
        let task =
            tokio::spawn(Arc::clone(&retention).run(Duration::from_millis(5), shutdown.clone()));
        while files(&log) > 5 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        shutdown.cancel();
        task.await.unwrap();
        assert_eq!(retention.usage().unwrap().oldest, Some(Lsn(20)));
    }
}
