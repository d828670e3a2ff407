//! Instructions that processes execute, from the processor's counters: what they do, however long it takes them.

use perf_event::events::Hardware;
use perf_event::{Builder, Counter};

/// Counts in all processes that one process begins from now on, as a PostgreSQL server does for each session.
#[derive(Debug)]
pub struct Instructions {
    own: Counter,
    all: Counter,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// In the programs themselves.
    pub own: f64,
    /// With those of the kernel, also where it worked for others on their time.
    pub all: f64,
}

impl Instructions {
    /// `None` where the machine or its settings (`kernel.perf_event_paranoid`) have no counters for this.
    pub fn of_children(id: u32) -> Option<Self> {
        let id = i32::try_from(id).ok()?;
        let counter = |with_kernel: bool| {
            let mut builder = Builder::new(Hardware::INSTRUCTIONS);
            builder.observe_pid(id).inherit(true);
            builder.exclude_kernel(!with_kernel);
            let mut counter = builder.build().ok()?;
            counter.enable().ok()?;
            Some(counter)
        };
        Some(Self {
            own: counter(false)?,
            all: counter(true)?,
        })
    }

    /// So far, also of those that have ended.
    pub fn counts(&mut self) -> Option<Counts> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "to a millionth is exact enough for a table"
        )]
        let read = |counter: &mut Counter| counter.read().ok().map(|count| count as f64);
        Some(Counts {
            own: read(&mut self.own)?,
            all: read(&mut self.all)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_a_process_begins_later_is_counted() {
        const BUSY: &str =
            "read go; (i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done) & wait; read end";
        let shell = Command::new("sh")
            .args(["-c", BUSY])
            .stdin(Stdio::piped())
            .spawn();
        let mut shell = shell.unwrap();
        let counters = Instructions::of_children(shell.id());
        let mut input = shell.stdin.take().unwrap();
        input.write_all(b"go\nend\n").unwrap();
        shell.wait().unwrap();
        let Some(mut counters) = counters else {
            eprintln!("skipped: this machine has no counters of instructions");
            return;
        };
        let counts = counters.counts().unwrap();
        assert!(counts.own > 100_000.0, "{counts:?}");
        assert!(counts.all > counts.own, "{counts:?}");
    }
}
