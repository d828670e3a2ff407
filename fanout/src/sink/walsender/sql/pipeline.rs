//! What a client has asked of the source by the extended query protocol, and what is answered of it.

use std::collections::VecDeque;

/// A message that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Parse,
    Bind,
    Close,
    Describe,
    Execute,
    Sync,
    Call,
}

/// The messages that are under way.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    asked: VecDeque<Asked>,
    /// After an error the source ignores everything up to Sync, and it is not sent.
    skipping: bool,
    /// The client sends a COPY's data.
    copying_in: bool,
    /// Sync has not been answered.
    open: bool,
}

impl Pipeline {
    /// Whether everything is answered, and the next message may as well be one of another protocol.
    pub(super) fn is_over(&self) -> bool {
        self.asked.is_empty() && !self.skipping && !self.copying_in && !self.open
    }

    /// Whether nothing is unanswered.
    pub(super) fn is_drained(&self) -> bool {
        self.asked.is_empty()
    }

    /// How many messages are unanswered.
    pub(super) fn len(&self) -> usize {
        self.asked.len()
    }

    /// Whether what comes up to Sync is ignored.
    pub(super) const fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// Whether the client sends a COPY's data.
    pub(super) const fn is_copying_in(&self) -> bool {
        self.copying_in
    }

    /// The source was made to fail: it ignores everything up to Sync.
    pub(super) const fn failed(&mut self) {
        self.open = true;
        self.skipping = true;
    }

    /// Notes a message of the client. False: it is not to be sent.
    pub(super) fn pass(&mut self, tag: u8) -> bool {
        if self.copying_in {
            self.copying_in = !matches!(tag, b'c' | b'f');
            // While it copies the source ignores Sync.
            return true;
        }
        if self.skipping && tag != b'S' {
            return false;
        }
        self.open = true;
        let asked = match tag {
            b'P' => Asked::Parse,
            b'B' => Asked::Bind,
            b'C' => Asked::Close,
            b'D' => Asked::Describe,
            b'E' => Asked::Execute,
            b'F' => Asked::Call,
            b'S' => {
                self.skipping = false;
                Asked::Sync
            }
            _ => return true,
        };
        self.asked.push_back(asked);
        true
    }

    /// Notes a message of the source.
    pub(super) fn answered(&mut self, tag: u8) {
        match tag {
            b'E' => return self.error(),
            b'G' if self.asked.front() == Some(&Asked::Execute) => {
                self.copying_in = true;
                self.asked.retain(|asked| *asked != Asked::Sync);
                return;
            }
            b'Z' => self.open = false,
            _ => {}
        }
        let answers = self.asked.front().is_some_and(|asked| match asked {
            Asked::Parse => tag == b'1',
            Asked::Bind => tag == b'2',
            Asked::Close => tag == b'3',
            Asked::Describe => matches!(tag, b'T' | b'n'),
            Asked::Execute => matches!(tag, b'C' | b'I' | b's'),
            Asked::Sync | Asked::Call => tag == b'Z',
        });
        if answers {
            self.asked.pop_front();
        }
        self.open |= !self.asked.is_empty();
    }

    fn error(&mut self) {
        self.copying_in = false;
        if self.asked.front() == Some(&Asked::Call) {
            return;
        }
        while let Some(asked) = self.asked.front() {
            if *asked == Asked::Sync {
                return;
            }
            self.asked.pop_front();
        }
        self.skipping = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(client: &[u8], source: &[u8]) -> Pipeline {
        let mut pipeline = Pipeline::default();
        for tag in client {
            pipeline.pass(*tag);
        }
        for tag in source {
            pipeline.answered(*tag);
        }
        pipeline
    }

    #[test]
    fn a_batch_is_over_when_its_sync_is_answered() {
        assert!(after(b"PBDES", b"12TDDCZ").is_over());
        assert!(!after(b"PBDES", b"12TDDC").is_over());
        // Statement and portal described, closed, a portal suspended.
        assert!(after(b"PDBDECS", b"1tn2nI3Z").is_over());
        assert!(after(b"BEEHS", b"2DsDCZ").is_over());
        let flushed = after(b"PDH", b"1tT");
        assert!(flushed.is_drained() && !flushed.is_over());
        assert!(!after(b"PBES", b"12CZ").is_skipping());
    }

    #[test]
    fn batches_may_follow_each_other_unanswered() {
        let mut pipeline = after(b"PBESPBES", b"12CZ");
        assert!(!pipeline.is_over());
        for tag in b"12CZ" {
            pipeline.answered(*tag);
        }
        assert!(pipeline.is_over());
    }

    #[test]
    fn after_an_error_everything_up_to_sync_is_skipped() {
        assert!(after(b"PBES", b"EZ").is_over());
        assert!(after(b"PBESPBES", b"1EZ12CZ").is_over());
        let mut pipeline = after(b"PBH", b"E");
        assert!(pipeline.is_skipping());
        assert!(!pipeline.pass(b'E'));
        assert!(pipeline.pass(b'S'));
        pipeline.answered(b'Z');
        assert!(pipeline.is_over());
        // A commit that fails at Sync.
        assert!(after(b"PBES", b"12CEZ").is_over());
    }

    #[test]
    fn a_call_by_number_answers_for_itself() {
        assert!(after(b"F", b"VZ").is_over());
        assert!(after(b"F", b"EZ").is_over());
    }

    #[test]
    fn while_data_is_copied_in_sync_is_ignored() {
        let mut pipeline = after(b"PBES", b"12G");
        assert!(pipeline.is_copying_in());
        for tag in b"ddcS" {
            assert!(pipeline.pass(*tag));
        }
        assert!(!pipeline.is_over());
        for tag in b"CZ" {
            pipeline.answered(*tag);
        }
        assert!(pipeline.is_over());
    }
}
