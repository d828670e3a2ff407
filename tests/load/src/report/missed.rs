//! What keeps a target from being reached, as far as it is known.

use std::fmt::Write as _;

use super::markdown::number;
use crate::results::Results;

/// Part, how the target's name begins, and the limit. What is not here was reached whenever it was measured, or nobody knows.
const LIMITS: [(&str, &str, &str); 11] = [
    (
        "fan_out",
        "source CPU with Decant",
        "The source does the same for one subscriber as for 64: one walsender sends to the decoder, and a fanout asks the source for nothing while it \
         serves. What grows is the time that the same instructions take, since 64 receivers, the fanout and the walsender share two processors, \
         their caches and their memory. The table of the walsender under *fan_out* has its instructions, where the machine counts them, and the control: \
         the same walsender beside load that is not Decant's.",
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
        "A commit passes four threads: the decoder's reader, assembly and log writer, and one of the fanout. Each of them is waiting when it comes, so it \
         takes a wake-up each, tens of microseconds on a virtual machine and another figure in each run, and `durable` one fdatasync. Nothing in \
         between waits for a time.",
    ),
    (
        "equality",
        "fanout CPU per change",
        "What a change costs grows little with N. What does grow is that subscribers whom nothing concerns are told their positions once a second: that \
         is N messages in the second in which there are 1,000 changes, whatever they are about.",
    ),
    (
        "catch_up",
        "p99 of the follower",
        "While the history is read, the fanout, the receiver of the history and the threads that a commit passes want two processors. \
         The fanout's threads that read it have a lower priority; the receiver, which is on another machine as a rule, has the same as the \
         others here, and so has what the kernel does to carry the bytes. The table has the follower beside a native slot that reads the same, too.",
    ),
    (
        "ingest",
        "decoder CPU per row",
        "The second table has it by threads. The *sealer* compresses full segments and reads them back, once per row: live all of it, from a recording what \
         falls into the measured time, which is another part in each run. Live, *source* and *appender* work for each piece that the walsender sends, and the \
         slower that is, the more pieces there are. The decoder's start is in the figure of *live*, too.",
    ),
    (
        "distinct",
        "fanout CPU per scanned row",
        "Each of the 16 filters is computed for each row, and half of the rows are rewritten without a column: what that takes is the machine's, as is what it takes the \
         native walsenders in the same table.",
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
        "The files of tens of thousands of segments are opened for the first time here: see the note under *seek*.",
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
            text.contains("- **seek, open and seek, p99**: 20 ms instead of 10 ms. The files"),
            "{text}"
        );
    }
}
