//! A run: a machine with a disk, on which decoders live one after the other, and readers beside them.

use std::sync::Arc;

use decoder::clock::Clock;
use decoder::registry::{Holder, NewSlot};
use decoder::simulation::Failure;
use pg_proto::Lsn;
use storage_format::log::Serve;
use storage_format::verify::{repair, verify};

use crate::decoder::{Found, Process, log_folder};
use crate::disk::Disk;
use crate::plan::{Plan, Plant};
use crate::reader::{Reader, Wrong};
use crate::source::{History, START, Source};
use crate::store::SimulatedStore;
use crate::world::World;

/// Steps in which a healthy machine has to come to its end.
const LAST_STEPS: usize = 3000;

/// The machine.
pub struct Machine {
    world: Arc<World>,
    disk: Arc<Disk>,
    store: SimulatedStore,
    source: Source,
    readers: Vec<Reader>,
    plan: Plan,
    /// Readers of what is durable were shown everything up to here.
    shown: Lsn,
}

/// How a decoder ended.
enum End {
    /// It was told to stop, or killed; the machine goes on.
    Process,
    Power,
}

impl Machine {
    /// A new one.
    #[must_use]
    pub fn new(world: &Arc<World>, plant: Plant) -> Self {
        let plan = world.random(|random| Plan::choose(random, plant));
        Self {
            world: Arc::clone(world),
            disk: Disk::new(world, plan),
            store: SimulatedStore::default(),
            source: Source {
                history: History::new(&plan),
                confirmed: START,
                timeline: 1,
            },
            readers: Vec::new(),
            plan,
            shown: START,
        }
    }

    /// Lives through it all.
    pub fn run(mut self) -> Result<(), Wrong> {
        for life in 0..self.plan.lives {
            self.world.note("life", life, 0);
            self.live()?;
        }
        self.finish()
    }

    /// One decoder, from its start to its end.
    fn live(&mut self) -> Result<(), Wrong> {
        // Often in the middle of the start, which is recovery.
        let operations = self.world.random(|random| {
            let most = if random.chance(30) { 40 } else { 600 };
            1 + random.below(most)
        });
        self.disk.crash_after(operations);
        let failures = self.disk.failures();
        match self.start() {
            Ok(process) => {
                let mut process = Some(process);
                let failure = self.work(&mut process)?;
                self.judge(failure, failures)?;
                drop(process);
            }
            Err(Some(failure)) => self.judge(Some(failure), failures)?,
            Err(None) => return Err(self.lost("the log's end")),
        }
        let power = self.world.random(|random| random.chance(50));
        self.end(if power { End::Power } else { End::Process })
    }

    /// Starts a decoder; `None` as an error: something is lost that must not be.
    fn start(&mut self) -> Result<Process, Option<Failure>> {
        let Self {
            world,
            disk,
            store,
            source,
            plan,
            ..
        } = self;
        let (process, found) = Process::start(world, disk, store, source, plan).map_err(Some)?;
        let Found { end_lsn, start } = found;
        self.world.note("started", end_lsn.0, start.0);
        if end_lsn < self.source.confirmed || end_lsn < self.shown || start < end_lsn {
            return Err(None);
        }
        Ok(process)
    }

    fn lost(&self, what: &str) -> Wrong {
        format!(
            "{what} is before what the source was told to be safe ({}) or what readers were shown as durable ({})",
            self.source.confirmed, self.shown
        )
    }

    /// A decoder may end by itself only if the disk has failed, or the process was killed.
    fn judge(&self, failure: Option<Failure>, failures_before: u64) -> Result<(), Wrong> {
        let Some(failure) = failure else {
            return Ok(());
        };
        self.world.note("failed", 0, 0);
        if self.disk.has_crashed() || self.disk.failures() > failures_before {
            return Ok(());
        }
        let retryable = failure
            .downcast_ref::<storage_format::FormatError>()
            .is_some_and(storage_format::FormatError::is_retryable);
        if retryable {
            // A disk that is full at the start.
            return Ok(());
        }
        let cause = failure.source().map(|cause| format!(": {cause}"));
        Err(format!(
            "the decoder ended for no reason: {failure}{}",
            cause.unwrap_or_default()
        ))
    }

    /// What the readers keep open ends with the machine only.
    fn end(&mut self, end: End) -> Result<(), Wrong> {
        match end {
            End::Process => self.disk.restart(),
            End::Power => {
                self.readers.iter_mut().for_each(Reader::close);
                self.store.lose_power();
                self.disk
                    .lose_power()
                    .map_err(|error| format!("the simulated disk: {error}"))?;
            }
        }
        Ok(())
    }

    /// Works until the life ends: `Ok(Some)`, it ended by itself.
    fn work(&mut self, process: &mut Option<Process>) -> Result<Option<Failure>, Wrong> {
        let steps = self.world.random(|random| random.below(self.plan.steps));
        for _ in 0..steps {
            self.world.pass(1000);
            let Some(process) = process.as_mut() else {
                break;
            };
            if let Err(failure) = self.step(process)? {
                return Ok(Some(failure));
            }
            if self.disk.has_crashed() {
                return Ok(None);
            }
        }
        if self.world.random(|random| random.chance(25)) {
            if let Some(stopped) = process.take().map(Process::stop) {
                match stopped {
                    Ok(confirmed) => self.confirm(confirmed),
                    Err(failure) => return Ok(Some(failure)),
                }
            }
        } else {
            self.disk.kill();
        }
        Ok(None)
    }

    fn step(&mut self, process: &mut Process) -> Result<Result<(), Failure>, Wrong> {
        let choice = self.world.random(|random| random.below(20));
        let done = match choice {
            0..=2 => {
                let history = &mut self.source.history;
                self.world.random(|random| history.go_on(random));
                Ok(())
            }
            3..=6 => process.receive(&self.source),
            7 | 8 => process.ingest(),
            9 => process.append(false),
            10 | 11 => process.append(true),
            12 | 13 => {
                self.confirm(process.confirmed());
                Ok(())
            }
            14 => {
                process.seal();
                Ok(())
            }
            15 | 16 => {
                self.read(process)?;
                Ok(())
            }
            17 => self.keep_house(process),
            18 => return self.reconnect(process),
            _ => {
                self.disturb()?;
                Ok(())
            }
        };
        Ok(done)
    }

    fn confirm(&mut self, lsn: Lsn) {
        if lsn > self.source.confirmed {
            self.world.note("confirmed", lsn.0, 0);
            self.source.confirmed = lsn;
        }
    }

    fn reconnect(&mut self, process: &mut Process) -> Result<Result<(), Failure>, Wrong> {
        if self.world.random(|random| random.chance(15)) {
            self.source.timeline += 1;
        }
        match process.reconnect(&self.source) {
            Ok(start) if start < self.source.confirmed || start < self.shown => {
                Err(self.lost("the start of a new connection"))
            }
            Ok(start) => {
                self.world.note("reconnected", start.0, 0);
                Ok(Ok(()))
            }
            Err(failure) => Ok(Err(failure)),
        }
    }

    /// The disk is full for a while, or the page cache writes something.
    fn disturb(&self) -> Result<(), Wrong> {
        if self.world.random(|random| random.once_in(self.plan.full)) {
            let micros = self.world.random(|random| random.below(5_000_000));
            self.disk.fill(micros);
        }
        let written = self.disk.write_back();
        written.map_err(|error| format!("the simulated disk: {error}"))
    }

    /// A reader comes, reads or goes.
    fn read(&mut self, process: &Process) -> Result<(), Wrong> {
        if self.readers.len() < 4 && self.world.random(|random| random.chance(30)) {
            self.new_reader(process)?;
        }
        let (place, records, close) = self.world.random(|random| {
            let place = random.place(self.readers.len());
            (place, 1 + random.below(200), random.chance(15))
        });
        let Some(reader) = self.readers.get_mut(place) else {
            return Ok(());
        };
        let expected = self.source.history.expected();
        if !reader.is_open() {
            let fs = self.disk.handle(false);
            reader.open(fs, &log_folder(), expected)?;
        }
        let at_head = reader.read(records, expected)?;
        if reader.durable {
            self.shown = self.shown.max(reader.position);
        }
        let position = reader.position.0;
        if close {
            reader.close();
        }
        self.world.note("read", position, u64::from(at_head));
        Ok(())
    }

    /// At some position that is kept.
    fn new_reader(&mut self, process: &Process) -> Result<(), Wrong> {
        let expected = self.source.history.expected();
        let place = self.world.random(|random| random.place(expected.len() + 1));
        let kept = self.kept(process)?;
        let wanted = place
            .checked_sub(1)
            .and_then(|place| expected.get(place))
            .map_or(kept.0, |one| one.end);
        let position = wanted.clamp(kept.0, kept.1);
        let name = format!("reader_{}", self.readers.len());
        let durable = self.world.random(|random| random.chance(70));
        let serve = match (durable, self.plan.plant) {
            (true, Plant::ServedEarly) | (false, _) => Serve::Written,
            (true, _) => Serve::Durable,
        };
        let slot = NewSlot {
            name: name.clone(),
            start_lsn: position,
            holder: Some(holder()),
            ..NewSlot::default()
        };
        let made = process.registry().create(slot, self.world.now());
        made.map_err(|error| format!("a slot can't be made: {error}"))?;
        self.world.note("reader", position.0, u64::from(durable));
        self.readers
            .push(Reader::new(name, position, durable, serve));
        Ok(())
    }

    fn kept(&self, process: &Process) -> Result<(Lsn, Lsn), Wrong> {
        let unreadable = |error: &dyn std::fmt::Display| format!("the log can't be read: {error}");
        let fs = self.disk.handle(false);
        let log = storage_format::log::Log::open_on(fs, &log_folder(), Default::default());
        let kept = log.map_err(|error| unreadable(&error))?.kept();
        let kept = kept.map_err(|error| unreadable(&error))?;
        debug_assert!(kept.newest <= process.written());
        Ok((kept.oldest, kept.newest))
    }

    /// Slots report and old segments go.
    fn keep_house(&mut self, process: &Process) -> Result<(), Failure> {
        let positions: Vec<(String, Lsn)> = self
            .readers
            .iter()
            .map(|reader| (reader.name.clone(), reader.position))
            .collect();
        let persist = self.world.random(|random| random.chance(50));
        if positions.is_empty() {
            return Ok(());
        }
        process.collect(&positions, persist)
    }

    /// Nothing fails any more: everything has to come to its end, and every reader has to find it.
    fn finish(mut self) -> Result<(), Wrong> {
        self.disk.heal();
        let history = &mut self.source.history;
        self.world.random(|random| history.finish(random));
        self.world.note("healed", self.source.history.end().0, 0);
        let ended = |failure: Failure| format!("a healthy decoder ended: {failure}");
        let mut process = match self.start() {
            Ok(process) => process,
            Err(Some(failure)) => return Err(ended(failure)),
            Err(None) => return Err(self.lost("the log's end")),
        };
        let last = self.source.history.expected().last();
        let last = last.map_or(START, |one| one.end);
        for step in 0.. {
            if process.is_at_end(&self.source) && process.confirmed() >= last {
                break;
            }
            if step == LAST_STEPS {
                return Err("a healthy decoder does not come to the end".to_owned());
            }
            self.world.pass(5000);
            process.receive(&self.source).map_err(ended)?;
            process.append(true).map_err(ended)?;
            process.ingest().map_err(ended)?;
            process.seal();
            self.confirm(process.confirmed());
        }
        self.read_all(&process)?;
        process.stop().map_err(ended)?;
        self.verify()
    }

    /// As `decctl verify` does, after `--repair`: an index may be gone with the power, and is made anew.
    fn verify(&self) -> Result<(), Wrong> {
        self.disk.restart();
        let fs = self.disk.handle(false);
        let repaired = repair(&*fs, &log_folder());
        let repaired = repaired.map_err(|error| format!("the log can't be repaired: {error}"))?;
        self.world
            .note("repaired", repaired.indexes.len() as u64, 0);
        let report = verify(&*fs, &log_folder(), &mut |_| {});
        let report = report.map_err(|error| format!("the log can't be verified: {error}"))?;
        if report.is_sound() {
            return Ok(());
        }
        Err(format!("the log is not sound: {:?}", report.findings))
    }

    fn read_all(&mut self, process: &Process) -> Result<(), Wrong> {
        let (oldest, _) = self.kept(process)?;
        let all = Reader::new("reader_of_all".to_owned(), oldest, true, Serve::Durable);
        self.readers.push(all);
        let expected = self.source.history.expected();
        for reader in &mut self.readers {
            if !reader.is_open()
                && !reader.open(self.disk.handle(false), &log_folder(), expected)?
                && reader.is_served_early()
                && expected.last().is_none_or(|one| one.end <= reader.position)
            {
                // The position went with the power, and no transaction with it: the source's next word brings it again.
                self.world.note("ahead", reader.position.0, 0);
                continue;
            }
            while !reader.read(1000, expected)? {}
            if reader.next() != expected.len() {
                let missing = expected.get(reader.next());
                return Err(format!("{} never gets {missing:?}", reader.name));
            }
            self.world.note("read all", reader.position.0, 0);
        }
        Ok(())
    }
}

fn holder() -> Holder {
    Holder {
        name: "fanout".to_owned(),
        incarnation: 1,
    }
}
