//! What happened, in order: its hash, by which two runs are compared, and its end, which a failure shows.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Events that a failure shows.
const KEPT: usize = 160;

/// Something that happened.
#[derive(Clone, Debug)]
pub struct Event {
    /// Simulated microseconds.
    at: u64,
    what: &'static str,
    /// A file, or nothing.
    name: Arc<str>,
    a: u64,
    b: u64,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            what,
            name,
            a,
            b,
        } = self;
        write!(f, "{at:>10} {what:<24} {a:>12X} {b:>10X} {name}")
    }
}

/// All events of a run.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    last: VecDeque<Event>,
    aloud: bool,
}

impl Trace {
    /// An empty one; `aloud`: each event is printed when it happens.
    #[must_use]
    pub const fn new(aloud: bool) -> Self {
        Self {
            hash: 0xCBF2_9CE4_8422_2325,
            last: VecDeque::new(),
            aloud,
        }
    }

    /// Adds an event.
    pub fn add(&mut self, at: u64, what: &'static str, name: &Arc<str>, a: u64, b: u64) {
        for byte in what.bytes().chain(name.bytes()) {
            self.mix(u64::from(byte));
        }
        for number in [at, a, b] {
            self.mix(number);
        }
        let event = Event {
            at,
            what,
            name: Arc::clone(name),
            a,
            b,
        };
        if self.aloud {
            println!("{event}");
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(event);
    }

    /// FNV-1a over words.
    const fn mix(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01B3);
    }

    /// The same for two runs in which the same happened.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// The last events, one in a line.
    #[must_use]
    pub fn end(&self) -> String {
        let lines: Vec<String> = self.last.iter().map(ToString::to_string).collect();
        lines.join("\n")
    }
}
