//! A disk with a page cache in front of it, which fails when chance says so.
//!
//! * Written bytes are in the page cache until a file is synced. When the power is lost, some of the sectors that were not
//!   synced have reached the disk and some have not. They may also get there at any time before.
//! * Names are the folder's: a file that was created, renamed or removed is so for ever only when the folder was synced.
//!   When the power is lost, changes of names that were not synced may be undone: the last of them, or any.
//! * After a failed sync the page cache holds what the disk does not have, and takes it for written.
//! * Writes can be short; the disk can be full for a while; any operation can fail; and at any operation the process or the
//!   machine can end.
//!
//! Files are memory that can be mapped, so that readers map them as they do in reality.

mod file;
mod handle;
mod inode;
mod names;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::plan::{Plan, Plant};
use crate::random::Random;
use crate::world::World;
pub use handle::Handle;
use inode::Inode;
use names::Names;

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

/// The disk of a machine.
#[derive(Debug)]
pub struct Disk {
    world: Arc<World>,
    plan: Plan,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    names: Names,
    inodes: BTreeMap<u64, Inode>,
    locked: bool,
    /// The process ends at the operation with this number.
    crash_at: u64,
    operations: u64,
    crashed: bool,
    /// How often something failed that need not have failed.
    failures: u64,
    healthy: bool,
    /// Microsecond from which on there is room again.
    full_until: u64,
}

/// What a call is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Done,
    /// The first so many bytes are written.
    Short(u64),
    /// Some of it is done, and the process is gone.
    Crash,
    Fails,
    Full,
}

impl Disk {
    /// An empty disk.
    #[must_use]
    pub fn new(world: &Arc<World>, plan: Plan) -> Arc<Self> {
        Arc::new(Self {
            world: Arc::clone(world),
            plan,
            state: Mutex::default(),
        })
    }

    /// The process ends after so many operations.
    pub fn crash_after(&self, operations: u64) {
        let mut state = self.state.lock();
        state.crash_at = state.operations + operations;
    }

    /// From now on nothing fails.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.healthy = true;
        state.full_until = 0;
        state.crash_at = u64::MAX;
    }

    /// Whether the process is gone.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        self.state.lock().crashed
    }

    /// The process is gone, wherever it was.
    pub fn kill(&self) {
        self.state.lock().crashed = true;
    }

    /// How often the disk has failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.state.lock().failures
    }

    /// There is no room for so long.
    pub fn fill(&self, micros: u64) {
        self.state.lock().full_until = self.world.micros() + micros;
        self.world.note("disk full", micros, 0);
    }

    /// Another process may begin. What the page cache has it still has.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        state.crashed = false;
        state.locked = false;
    }

    /// The machine loses its power and starts again: all processes are gone, and what was not on the disk.
    pub fn lose_power(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let state = &mut *state;
        self.world.note("power lost", 0, 0);
        self.world
            .random(|random| state.names.lose_power(random, self.plan.journal));
        let names = &state.names;
        state.inodes.retain(|number, _| names.has(*number));
        for inode in state.inodes.values_mut() {
            self.world
                .random(|random| inode.lose_power(random, self.plan.survives))?;
        }
        state.crashed = false;
        state.locked = false;
        Ok(())
    }

    /// The page cache writes something of its own accord.
    pub fn write_back(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        for inode in state.inodes.values_mut() {
            self.world
                .random(|random| inode.write_some(random, 30, false))?;
        }
        Ok(())
    }

    /// The way of a process to the disk; only the decoder's operations fail.
    #[must_use]
    pub fn handle(self: &Arc<Self>, fails: bool) -> Arc<Handle> {
        Arc::new(Handle::new(Arc::clone(self), fails))
    }

    /// Decides what becomes of an operation of the decoder.
    fn fate(&self, state: &mut State, what: &'static str, name: &Arc<str>, length: u64) -> Fate {
        self.world.pass(10);
        if state.crashed {
            return Fate::Crash;
        }
        state.operations += 1;
        let fate = self.choose(state, what, length);
        let number = match fate {
            Fate::Done => 0,
            Fate::Short(length) => length,
            Fate::Crash => 0xDEAD,
            Fate::Fails => 0xBAD,
            Fate::Full => 0xF011,
        };
        self.world.note_of(what, name, length, number);
        fate
    }

    fn choose(&self, state: &mut State, what: &'static str, length: u64) -> Fate {
        if state.operations >= state.crash_at {
            state.crashed = true;
            return Fate::Crash;
        }
        let takes_room = matches!(what, "write" | "allocate" | "create" | "copy");
        if takes_room && self.world.micros() < state.full_until {
            return Fate::Full;
        }
        if state.healthy {
            return Fate::Done;
        }
        let Plan {
            errors,
            short_writes,
            ..
        } = self.plan;
        self.world.random(|random| {
            if random.once_in(errors) {
                state.failures += 1;
                return Fate::Fails;
            }
            if matches!(what, "write" | "copy") && length > 1 && random.once_in(short_writes) {
                return Fate::Short(1 + random.below(length - 1));
            }
            Fate::Done
        })
    }

    /// Whether a sync is left out by the planted mistake.
    fn is_left_out(&self, name: &str) -> bool {
        match self.plan.plant {
            Plant::AppendNotSynced => name.ends_with(".active"),
            Plant::SealNotSynced => name.ends_with(".seg.tmp"),
            Plant::PrepareNotSynced => name.ends_with(".staged"),
            _ => false,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn random<T>(&self, ask: impl FnOnce(&mut Random) -> T) -> T {
        self.world.random(ask)
    }
}

fn failed() -> io::Error {
    io::Error::from_raw_os_error(EIO)
}

fn full() -> io::Error {
    io::Error::from_raw_os_error(ENOSPC)
}

fn short_name(path: &Path) -> Arc<str> {
    let name = path.file_name().unwrap_or_default();
    Arc::from(name.to_string_lossy())
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_owned()
}
