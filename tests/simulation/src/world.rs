//! What all parts of a simulation share: chance, time, the trace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use decoder::clock::Clock;
use parking_lot::Mutex;
use pg_proto::PgTimestamp;

use crate::random::Random;
use crate::trace::Trace;

/// One simulated machine's chance, time and history.
#[derive(Debug)]
pub struct World {
    /// What simulated time is counted from; only differences are ever looked at.
    base: Instant,
    inner: Mutex<Inner>,
    nameless: Arc<str>,
}

#[derive(Debug)]
struct Inner {
    random: Random,
    micros: u64,
    trace: Trace,
}

impl World {
    /// The world of a seed.
    #[must_use]
    pub fn new(seed: u64, aloud: bool) -> Arc<Self> {
        Arc::new(Self {
            base: Instant::now(),
            inner: Mutex::new(Inner {
                random: Random::new(seed),
                micros: 0,
                trace: Trace::new(aloud),
            }),
            nameless: Arc::from(""),
        })
    }

    /// Asks chance.
    pub fn random<T>(&self, ask: impl FnOnce(&mut Random) -> T) -> T {
        ask(&mut self.inner.lock().random)
    }

    /// Lets time pass.
    pub fn pass(&self, micros: u64) {
        self.inner.lock().micros += micros;
    }

    /// Simulated microseconds since the start.
    #[must_use]
    pub fn micros(&self) -> u64 {
        self.inner.lock().micros
    }

    /// Notes what happens.
    pub fn note(&self, what: &'static str, a: u64, b: u64) {
        self.note_of(what, &self.nameless, a, b);
    }

    /// Notes what happens to a file.
    pub fn note_of(&self, what: &'static str, name: &Arc<str>, a: u64, b: u64) {
        let mut inner = self.inner.lock();
        let at = inner.micros;
        inner.trace.add(at, what, name, a, b);
    }

    /// See [`Trace::hash`].
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.inner.lock().trace.hash()
    }

    /// See [`Trace::end`].
    #[must_use]
    pub fn trace_end(&self) -> String {
        self.inner.lock().trace.end()
    }
}

impl Clock for World {
    fn now(&self) -> Instant {
        self.base + Duration::from_micros(self.micros())
    }

    fn time_of_day(&self) -> PgTimestamp {
        PgTimestamp(i64::try_from(self.micros()).unwrap_or(i64::MAX) + 1)
    }

    fn sleep(&self, duration: Duration) {
        self.pass(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }
}
