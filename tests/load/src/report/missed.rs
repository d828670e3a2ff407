//! What keeps a target from being reached, as far as it is known.

use std::fmt::Write as _;

use super::markdown::number;
use crate::results::Results;

/// Part, how the target's name begins, and the limit. What is not here was reached whenever it was measured, or nobody knows.
const LIMITS: [(&str, &str, &str); 9] = [
    (
        "fan_out",
        "source CPU with Decant",
        "The source does the same for one subscriber as for 64: one walsender sends to the decoder, and a fanout asks the source for nothing while it \
         serves. What grows is the time that the same instructions take, since 64 receivers, the fanout and the walsender share two processors, \
         their caches and their memory. The note under *fan_out* has the control: the same walsender beside load that is not Decant's. With the source on a \
         machine of its own nothing of it is left.",
    ),
    (
        "fan_out",
        "rows/s in sum",
        "Sender and receivers share two processors. Beyond 16 subscribers the copies into and out of the sockets are nearly all of it, as the loopback \
         sender shows, which has no logic at all.",
    ),
    (
        "selective",
        "CPU of the native walsenders",
        "The larger part of Decant's CPU is the decoder's, which takes each row once, however many tables and subscribers there are; native cost \
         grows with both. So the ratio grows with N, and it is the decoder's cost per row (see *ingest*) that limits it at 64.",
    ),
    (
        "latency",
        "p50 above native",
        "A commit passes five threads: the decoder's reader, assembly, the log's writer, the fanout's head watcher, the subscriber's task. Each of them is \
         waiting when it comes, so it takes a wake-up each, tens of microseconds on a virtual machine, and `durable` one fdatasync. Nothing in between waits for a time.",
    ),
    (
        "catch_up",
        "p99 of the follower",
        "While the history is read, the fanout, the receiver of the history and the five threads that a commit passes want two processors. \
         The reader gives way after each write, so that what is left is the kernel's scheduler. The table has the follower beside a native \
         slot that reads the same, too.",
    ),
    (
        "ingest",
        "decoder CPU per row, live",
        "The walsender flushes its socket after every message. The decoder lets messages gather for a tick of the clock when they come thick and \
         fast; each tick is then a round through its threads with an fsync and a word to the fanouts, for what came in a millisecond. The stream \
         takes so long that full segments are compressed meanwhile; what that and each thread costs is in the second table. The decoder's start \
         is in it, too. From a recording, where it reads as much as it likes, it is the first figure.",
    ),
    (
        "grpc",
        "rows/s in sum, gRPC columns",
        "A change is measured and written once for all who asked for the same. What each subscriber costs is HTTP/2: its \
         frames, its windows, and the way through two tasks. PostgreSQL's own row messages (*raw*) are a little shorter.",
    ),
    (
        "storage",
        "sealed log / WAL",
        "Without pages as a whole a transaction of pgbench is about 730 bytes of WAL, and what it changes is about 160 bytes of compressed log: numbers, times and positions \
         that no compression can guess.",
    ),
    (
        "seek",
        "open and seek",
        "Opening a log lists its folder, which is in proportion to the number of files: the kernel takes about half a microsecond for each, and a segment has two. \
         A fanout does it when it starts and when a segment was finished. To find a position in an open log takes the time under *seek*, which grows with the logarithm.",
    ),
];

/// The section; empty if every target is reached.
pub(super) fn render(results: &Results) -> String {
    let mut text = String::new();
    for (part, outcome) in &results.parts {
        for target in outcome.targets.iter().filter(|target| !target.met) {
            let limit = LIMITS
                .iter()
                .find(|(name, begins, _)| name == part && target.name.starts_with(begins));
            let why = limit.map_or("What limits it is not known yet.", |(_, _, why)| *why);
            writeln!(
                text,
                "- **{part}, {}**: {} {} instead of {} {}. {why}",
                target.name,
                number(target.value),
                target.unit,
                number(target.target),
                target.unit
            )
            .expect("text can be written");
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("\n## What was not reached, and why\n\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Outcome, Target};

    #[test]
    fn what_was_reached_needs_no_reason() {
        let mut results = Results::default();
        let part = |value| Outcome {
            targets: vec![Target::at_most("open and seek, p99", value, 10.0, "ms")],
            ..Outcome::default()
        };
        results.put("seek", part(5.0));
        assert_eq!(render(&results), "");
        results.put("seek", part(20.0));
        let text = render(&results);
        assert!(
            text.contains("- **seek, open and seek, p99**: 20 ms instead of 10 ms. Opening"),
            "{text}"
        );
    }
}
