//! Seeds that are made of recordings of real servers: their streams, and the files of the log that the decoder makes of
//! them.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use decoder::clock::Clock;
use decoder::simulation::{Core, Failure, Ground};
use pg_proto::replication::{BackendCopy, XLogData};
use pg_proto::{Lsn, PgTimestamp};
use service::config::Config;
use simulation::disk::{Disk, Handle};
use simulation::plan::{Plan, Plant};
use simulation::random::Random;
use simulation::world::World;
use storage_format::catalog::ServerParameters;
use storage_format::fs::{Fs, FsFile};
use storage_format::{Identity, Recovery};

/// Where the log is on the simulated disk.
pub(crate) const LOG: &str = "/log";

/// A machine whose disk never fails.
pub(crate) struct Machine {
    pub(crate) fs: Arc<Handle>,
    pub(crate) world: Arc<World>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let world = World::new(0, false);
        let plan = Plan::choose(&mut Random::new(0), Plant::Nothing);
        let disk = Disk::new(&world, plan);
        Self {
            fs: disk.handle(false),
            world,
        }
    }

    /// Puts a file there.
    pub(crate) fn put(&self, path: &Path, content: &[u8]) {
        let folder = path.parent().unwrap_or(path);
        let made = self.fs.create_dir_all(folder);
        let file = made.and_then(|()| self.fs.create_new(path));
        let written = file.and_then(|file| file.write_vectored_at(&[IoSlice::new(content)], 0));
        written.expect("a simulated disk that never fails");
    }

    /// A file's content.
    pub(crate) fn get(&self, path: &Path) -> Vec<u8> {
        let file = self.fs.open(path).expect("the file is there");
        let length = file.length().expect("a simulated disk that never fails");
        let mut content = vec![0; usize::try_from(length).unwrap_or_default()];
        read_whole(&*file, &mut content);
        content
    }

    /// All files of the log with an extension.
    pub(crate) fn files(&self, folder: &str, extension: &str) -> Vec<Vec<u8>> {
        let paths: Vec<PathBuf> = self
            .fs
            .list(&Path::new(LOG).join(folder))
            .unwrap_or_default();
        let wanted = paths.iter().filter(|path| {
            let found = path.extension().unwrap_or_default();
            found == extension
        });
        wanted.map(|path| self.get(path)).collect()
    }

    fn ground(&self) -> Ground {
        let mut config = Config::default();
        config.log.directory = LOG.into();
        // Not larger than the least that a segment can be.
        config.log.segment_bytes = 0;
        config.decoder.staging_memory_bytes = 1 << 10;
        config.decoder.progress_interval_ms = 0;
        Ground {
            fs: Arc::clone(&self.fs) as Arc<dyn Fs>,
            clock: Arc::clone(&self.world) as Arc<dyn Clock>,
            config,
            identity: identity(),
            start_lsn: Lsn(1),
        }
    }

    /// A decoder on it.
    pub(crate) fn core(&self) -> Result<(Core, Recovery), Failure> {
        Core::open(&self.ground())
    }

    fn begun(&self) -> Core {
        let (mut core, _) = self.core().expect("a new log");
        core.reset().expect("a new log");
        let begun = core.begin(ServerParameters::default(), 1);
        begun.expect("a new log");
        core
    }

    /// The files of transactions that are prepared in the course of a recording.
    pub(crate) fn with_prepared() -> Vec<Vec<u8>> {
        let machine = Self::new();
        let mut core = machine.begun();
        let mut files = Vec::new();
        for content in recording_of("15-v3-two-phase.bin") {
            let mut frame = Vec::new();
            framed(&content, &mut frame);
            core.batch(Bytes::from(frame)).expect("what a server sent");
            let prepared = machine.files("prepared", "");
            if files.len() < 4 && prepared.len() == 1 && !prepared.contains(&Vec::new()) {
                files.extend(prepared);
            }
        }
        files.dedup();
        files
    }

    /// What the decoder makes of a recording, sealed as far as `seal` says.
    pub(crate) fn with_log(recording: &str, seal: bool) -> Self {
        let machine = Self::new();
        let mut core = machine.begun();
        let mut frames = Vec::new();
        for content in recording_of(recording) {
            framed(&content, &mut frames);
        }
        core.batch(Bytes::from(frames)).expect("what a server sent");
        while core.append().expect("a disk that never fails") {}
        core.sync().expect("a disk that never fails");
        while seal && core.seal() {}
        machine
    }
}

pub(crate) fn identity() -> Identity {
    Identity {
        system_identifier: 7,
        timeline: 1,
        database: "postgres".to_owned(),
        slot: "decant".to_owned(),
        writer_epoch: 0,
    }
}

fn read_whole(file: &dyn FsFile, content: &mut [u8]) {
    let mut done = 0;
    while let Some(rest) = content.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, done as u64) {
            Ok(read) if read > 0 => done += read,
            _ => return,
        }
    }
}

fn framed(content: &[u8], out: &mut Vec<u8>) {
    pg_proto::wire::put_frame(b'd', out, |out| out.extend_from_slice(content));
}

/// The contents of the CopyData messages that a real server sent: a folder of `proto/pg`.
pub(crate) fn recording_of(name: &str) -> Vec<Vec<u8>> {
    let path = crate::root().join("proto/pg/tests/recordings").join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut rest = &bytes[..];
    let mut contents = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (content, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        contents.push(content.to_vec());
        rest = after;
    }
    contents
}

/// The pgoutput messages of a recording, each kind a few times.
pub(crate) fn messages_of(name: &str) -> Vec<Vec<u8>> {
    let mut seen = std::collections::BTreeMap::<u8, usize>::new();
    let mut messages = Vec::new();
    for content in recording_of(name) {
        if let Ok(BackendCopy::XLogData(XLogData { payload, .. })) = BackendCopy::decode(&content) {
            let count = seen.entry(payload.first().copied().unwrap_or_default());
            let count = count.or_default();
            *count += 1;
            if *count <= 6 {
                messages.push(payload.to_vec());
            }
        }
    }
    messages
}

/// A time for messages that need one.
pub(crate) const TIME: PgTimestamp = PgTimestamp(800_000_000_000_000);
