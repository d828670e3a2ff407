//! The decoder's process on the simulated machine, from its start to its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use decoder::clock::Clock;
use decoder::registry::{Holder, Registry};
use decoder::retention::{Policy, Retention};
use decoder::simulation::{Core, Failure, Ground};
use pg_proto::Lsn;
use service::config::Config;
use storage_format::Identity;
use storage_format::catalog::ServerParameters;
use storage_format::fs::Fs;
use storage_format::segment::read_identity;
use storage_format::write::WriterOptions;

use crate::disk::Disk;
use crate::plan::{Plan, Plant};
use crate::source::{START, Source, Stream};
use crate::store::SimulatedStore;
use crate::world::World;

/// Where the log is. There is no such folder on any real machine.
#[must_use]
pub fn log_folder() -> PathBuf {
    Path::new("/simulated/log").to_owned()
}

/// A decoder at work.
pub struct Process {
    core: Core,
    stream: Stream,
    /// Frames that are on their way.
    frames: Vec<Vec<u8>>,
    registry: Arc<Registry>,
    retention: Retention,
    plant: Plant,
    world: Arc<World>,
}

/// Where the log ends at the start of a process.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// What recovery found.
    pub end_lsn: Lsn,
    /// Where the stream begins.
    pub start: Lsn,
}

impl Process {
    /// Starts as the program does.
    pub fn start(
        world: &Arc<World>,
        disk: &Arc<Disk>,
        store: &SimulatedStore,
        source: &Source,
        plan: &Plan,
    ) -> Result<(Self, Found), Failure> {
        let fs: Arc<dyn Fs> = disk.handle(true);
        let clock: Arc<dyn Clock> = Arc::clone(world) as Arc<dyn Clock>;
        let log = log_folder();
        let known = read_identity(&*fs, &log)?;
        let exists = known.is_some();
        let ground = Ground {
            fs: Arc::clone(&fs),
            clock,
            config: config(plan),
            identity: known.unwrap_or_else(|| identity(source.timeline)),
            start_lsn: START,
        };
        let (mut core, recovery) = Core::open(&ground)?;
        let registry = Registry::with_store(Box::new(store.clone()), exists, world.now())?;
        let registry = Arc::new(registry);
        let policy = Policy::default();
        let retention = Retention::new(fs, log, policy, Arc::clone(&registry));
        let start = core.reset()?;
        core.begin(ServerParameters::default(), source.timeline)?;
        let process = Self {
            core,
            stream: source.connect(start),
            frames: Vec::new(),
            registry,
            retention,
            plant: plan.plant,
            world: Arc::clone(world),
        };
        let end_lsn = recovery.end_lsn;
        Ok((process, Found { end_lsn, start }))
    }

    /// The source sends, or what it sent arrives.
    pub fn receive(&mut self, source: &Source) -> Result<(), Failure> {
        if self.frames.is_empty() {
            self.send(source);
        }
        let whole = self.frames.len();
        let taken = self.world.random(|random| {
            let part = random.place(whole + 1);
            if random.chance(70) { whole } else { part }
        });
        let batch: Vec<u8> = self.frames.drain(..taken).flatten().collect();
        if batch.is_empty() {
            return Ok(());
        }
        self.world
            .note("received", taken as u64, batch.len() as u64);
        self.core.batch(Bytes::from(batch))
    }

    fn send(&mut self, source: &Source) {
        let (items, streams) = self
            .world
            .random(|random| (1 + random.below(4), random.chance(70)));
        for _ in 0..items {
            match self.stream.next(&source.history, streams) {
                Some(frames) => self.frames.extend(split(&frames)),
                None => self.frames.push(self.stream.keepalive()),
            }
        }
        if self.world.random(|random| random.chance(20)) {
            self.frames.push(self.stream.keepalive());
        }
    }

    /// Whether everything that the source has was received.
    #[must_use]
    pub fn is_at_end(&self, source: &Source) -> bool {
        self.frames.is_empty() && self.stream.is_at_end(&source.history)
    }

    /// The connection is lost, and made again.
    pub fn reconnect(&mut self, source: &Source) -> Result<Lsn, Failure> {
        self.frames.clear();
        let start = self.core.reset()?;
        self.stream = source.connect(start);
        self.core
            .begin(ServerParameters::default(), source.timeline)?;
        Ok(start)
    }

    /// The ingest thread has its turn.
    pub fn ingest(&mut self) -> Result<(), Failure> {
        self.core.wake()
    }

    /// The appender has its turn: some work, then a sync or not.
    pub fn append(&mut self, sync: bool) -> Result<(), Failure> {
        while self.core.append()? {
            if self.world.random(|random| random.chance(40)) {
                break;
            }
        }
        if sync { self.core.sync() } else { Ok(()) }
    }

    /// The sealer has its turn.
    pub fn seal(&self) {
        self.core.seal();
    }

    /// What the source is told to be safe.
    #[must_use]
    pub fn confirmed(&self) -> Lsn {
        match self.plant {
            Plant::ConfirmedEarly => self.core.state().head().written_lsn,
            _ => self.core.status().flush,
        }
    }

    /// Where the log ends.
    #[must_use]
    pub fn written(&self) -> Lsn {
        self.core.state().head().written_lsn
    }

    /// The slots.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Slots report, and what nobody needs is deleted.
    pub fn collect(&self, positions: &[(String, Lsn)], persist: bool) -> Result<(), Failure> {
        let holder = Holder {
            name: "fanout".to_owned(),
            incarnation: 1,
        };
        let lost = self.registry.report(&holder, positions, self.world.now());
        debug_assert!(lost.is_empty(), "{lost:?}");
        if persist {
            self.registry.persist()?;
        }
        let collected = self.retention.collect(false, false)?;
        let deleted = collected.verdicts.iter();
        let deleted = deleted.filter(|(_, verdict)| verdict.deletable).count();
        self.world.note("collected", deleted as u64, 0);
        Ok(())
    }

    /// Ends as after a signal: what is complete becomes durable.
    pub fn stop(mut self) -> Result<Lsn, Failure> {
        self.core.reset()?;
        Ok(self.confirmed())
    }
}

fn config(plan: &Plan) -> Config {
    let mut config = Config::default();
    config.log.directory = log_folder();
    config.log.segment_bytes = WriterOptions::MIN_SEGMENT_BYTES;
    config.log.zstd_level = 1;
    config.decoder.staging_memory_bytes = plan.staging_bytes;
    config.decoder.progress_interval_ms = 2;
    config
}

fn identity(timeline: u32) -> Identity {
    Identity {
        system_identifier: 7,
        timeline,
        database: "postgres".to_owned(),
        slot: "decant".to_owned(),
        writer_epoch: 0,
    }
}

/// Each CopyData apart.
fn split(frames: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = frames;
    let mut split = Vec::new();
    while let Some(length) = rest.get(1..5).and_then(|bytes| bytes.first_chunk()) {
        let length = 1 + u32::from_be_bytes(*length) as usize;
        let (frame, behind) = rest.split_at(length.min(rest.len()));
        split.push(frame.to_vec());
        rest = behind;
    }
    split
}
