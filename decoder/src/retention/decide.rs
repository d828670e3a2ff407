//! The decision, segment by segment.

use std::time::{Duration, SystemTime};

use pg_proto::Lsn;
use storage_format::segment::SegmentName;

use super::reason::Reason;

/// What is known of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Its sequence and first LSN.
    pub name: SegmentName,
    /// Whether its file is sealed.
    pub sealed: bool,
    /// Where it ends: where the next one begins; `None` for the last one.
    pub end_lsn: Option<Lsn>,
    /// Size of its file.
    pub bytes: u64,
    /// Size before compression, if it says so.
    pub raw_bytes: Option<u64>,
    /// When its file was changed last.
    pub modified_at: SystemTime,
}

/// What is kept although no slot needs it, and what is not kept although one does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// At least so many bytes of the newest segments; 0: no limit.
    pub keep_bytes: u64,
    /// What is younger; zero: no limit.
    pub keep_age: Duration,
    /// Slots hold a segment only while fewer sealed bytes than this are behind it; 0: always.
    pub slot_keep_bytes_max: u64,
    /// Slots hold a segment only while it is not older; zero: always.
    pub slot_keep_age_max: Duration,
}

impl Policy {
    const fn has_limit(self) -> bool {
        self.keep_bytes > 0 || !self.keep_age.is_zero()
    }

    /// Whether slots no longer hold a segment of this age with so many bytes behind it.
    fn gives_up(self, newer: u64, age: Duration) -> bool {
        let bytes = self.slot_keep_bytes_max > 0 && newer >= self.slot_keep_bytes_max;
        bytes || (!self.slot_keep_age_max.is_zero() && age > self.slot_keep_age_max)
    }
}

/// Who needs what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Each slot's name and restart LSN.
    pub slots: Vec<(String, Lsn)>,
    /// Whether slots may be unknown.
    pub registry_lost: bool,
}

/// Whether a segment may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it may.
    pub deletable: bool,
    /// Why, or why not.
    pub reason: Reason,
}

/// A verdict on each segment; `segments` are all of the log's, oldest first.
#[must_use]
pub fn decide(
    segments: &[SegmentFacts],
    needs: &Needs,
    policy: Policy,
    now: SystemTime,
) -> Vec<Verdict> {
    let mut newer: u64 = segments.iter().map(sealed_bytes).sum();
    let mut stays = None;
    let mut verdicts = Vec::with_capacity(segments.len());
    for segment in segments {
        newer = newer.saturating_sub(sealed_bytes(segment));
        let reason = holds(segment, needs, policy, newer, now)
            .or_else(|| stays.map(|sequence| Reason::EarlierStays { sequence }));
        if reason.is_some() && stays.is_none() {
            stays = Some(segment.name.sequence);
        }
        verdicts.push(Verdict {
            deletable: reason.is_none(),
            reason: reason.unwrap_or_else(|| why_it_may_go(segment, needs)),
        });
    }
    verdicts
}

fn why_it_may_go(segment: &SegmentFacts, needs: &Needs) -> Reason {
    let behind = segment
        .end_lsn
        .and_then(|end_lsn| farthest_behind(&needs.slots, end_lsn));
    match behind {
        Some((slot, restart_lsn, others)) => Reason::GivenUp {
            slot,
            restart_lsn,
            others,
        },
        None => Reason::Unneeded {
            slots: needs.slots.len(),
        },
    }
}

/// The file of an active segment is longer than what is in it, so it does not count.
fn sealed_bytes(segment: &SegmentFacts) -> u64 {
    if segment.sealed { segment.bytes } else { 0 }
}

/// What holds a segment, whatever is before it.
fn holds(
    segment: &SegmentFacts,
    needs: &Needs,
    policy: Policy,
    newer: u64,
    now: SystemTime,
) -> Option<Reason> {
    let Some(end_lsn) = segment.end_lsn else {
        return Some(Reason::Active);
    };
    if !segment.sealed {
        return Some(Reason::Unsealed);
    }
    if needs.registry_lost {
        return Some(Reason::RegistryLost);
    }
    if needs.slots.is_empty() && !policy.has_limit() {
        return Some(Reason::NoSlots);
    }
    // A time in the future is a clock that was put back: as if just written.
    let age = now.duration_since(segment.modified_at).unwrap_or_default();
    let needed = if policy.gives_up(newer, age) {
        None
    } else {
        needed(&needs.slots, end_lsn)
    };
    needed
        .or_else(|| {
            (newer < policy.keep_bytes).then_some(Reason::KeepBytes {
                newer,
                keep: policy.keep_bytes,
            })
        })
        .or_else(|| {
            (age < policy.keep_age).then_some(Reason::KeepAge {
                age,
                keep: policy.keep_age,
            })
        })
}

fn needed(slots: &[(String, Lsn)], end_lsn: Lsn) -> Option<Reason> {
    let (slot, restart_lsn, others) = farthest_behind(slots, end_lsn)?;
    Some(Reason::Needed {
        slot,
        restart_lsn,
        end_lsn,
        others,
    })
}

/// The slot that needs most of what ends at `end_lsn`, and how many others need some of it.
fn farthest_behind(slots: &[(String, Lsn)], end_lsn: Lsn) -> Option<(String, Lsn, usize)> {
    let behind = || {
        slots
            .iter()
            .filter(|(_, restart_lsn)| *restart_lsn < end_lsn)
    };
    let (slot, restart_lsn) = behind().min_by_key(|(_, restart_lsn)| *restart_lsn)?;
    Some((slot.clone(), *restart_lsn, behind().count() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Four segments of 100 bytes, 10 positions each from 10 on, sealed one a minute; the last is active.
    fn log(now: SystemTime) -> Vec<SegmentFacts> {
        (1..=4u64)
            .map(|sequence| SegmentFacts {
                name: SegmentName {
                    sequence,
                    first_lsn: Lsn(sequence * 10),
                },
                sealed: sequence < 4,
                end_lsn: (sequence < 4).then_some(Lsn(sequence * 10 + 10)),
                bytes: 100,
                raw_bytes: None,
                modified_at: now - MINUTE * u32::try_from(4 - sequence).unwrap(),
            })
            .collect()
    }

    fn needs(slots: &[(&str, u64)]) -> Needs {
        Needs {
            slots: slots
                .iter()
                .map(|(name, lsn)| ((*name).to_owned(), Lsn(*lsn)))
                .collect(),
            registry_lost: false,
        }
    }

    /// How many go, and in words why the first that stays does.
    fn verdict(needs: &Needs, policy: Policy) -> (usize, String) {
        let now = SystemTime::now();
        let verdicts = decide(&log(now), needs, policy, now);
        assert_eq!(verdicts.len(), 4);
        let count = verdicts
            .iter()
            .take_while(|verdict| verdict.deletable)
            .count();
        let behind = verdicts.iter().skip(count);
        assert!(behind.clone().all(|verdict| !verdict.deletable), "a hole");
        (count, verdicts[count].reason.to_string())
    }

    type Case = (Needs, Policy, usize, &'static str);

    const fn none() -> Policy {
        Policy {
            keep_bytes: 0,
            keep_age: Duration::ZERO,
            slot_keep_bytes_max: 0,
            slot_keep_age_max: Duration::ZERO,
        }
    }

    fn bytes(keep_bytes: u64) -> Policy {
        Policy {
            keep_bytes,
            ..none()
        }
    }

    fn age(seconds: u64) -> Policy {
        Policy {
            keep_age: Duration::from_secs(seconds),
            ..none()
        }
    }

    /// Without slots, the limits alone decide.
    fn cases_without_slots() -> Vec<Case> {
        vec![
            (
                needs(&[]),
                none(),
                0,
                "there are no slots, and neither retention.keep_bytes nor retention.keep_seconds is set",
            ),
            (
                needs(&[]),
                bytes(100),
                2,
                "the sealed segments behind it have 0 bytes, retention.keep_bytes is 100",
            ),
            (
                needs(&[]),
                bytes(101),
                1,
                "the sealed segments behind it have 100 bytes, retention.keep_bytes is 101",
            ),
            (
                needs(&[]),
                bytes(1_000),
                0,
                "the sealed segments behind it have 200 bytes, retention.keep_bytes is 1000",
            ),
            (
                needs(&[]),
                age(90),
                2,
                "it is 60 s old, retention.keep_seconds is 90",
            ),
        ]
    }

    fn cases_with_slots() -> Vec<Case> {
        vec![
            (needs(&[("a", 40)]), none(), 3, "it is being written"),
            (
                needs(&[("a", 39)]),
                none(),
                2,
                "slot \"a\" needs it: it is at 0/27, the segment ends at 0/28",
            ),
            (
                needs(&[("a", 20)]),
                none(),
                1,
                "slot \"a\" needs it: it is at 0/14, the segment ends at 0/1E",
            ),
            (
                needs(&[("a", 0)]),
                none(),
                0,
                "slot \"a\" needs it: it is at 0/0, the segment ends at 0/14",
            ),
            (
                needs(&[("a", 500), ("b", 15)]),
                none(),
                0,
                "slot \"b\" needs it: it is at 0/F, the segment ends at 0/14",
            ),
            (
                needs(&[("a", 25), ("b", 21), ("c", 40)]),
                none(),
                1,
                "slot \"b\" needs it: it is at 0/15, the segment ends at 0/1E; 1 more slot needs it",
            ),
            (
                needs(&[("a", 40)]),
                bytes(250),
                0,
                "the sealed segments behind it have 200 bytes, retention.keep_bytes is 250",
            ),
            (
                needs(&[("a", 20)]),
                bytes(1),
                1,
                "slot \"a\" needs it: it is at 0/14, the segment ends at 0/1E",
            ),
            (
                needs(&[("a", 40)]),
                age(1_000),
                0,
                "it is 180 s old, retention.keep_seconds is 1000",
            ),
        ]
    }

    #[test]
    fn each_rule_gives_its_reason() {
        for (needs, policy, count, reason) in
            cases_without_slots().into_iter().chain(cases_with_slots())
        {
            let found = verdict(&needs, policy);
            assert_eq!(found, (count, reason.to_owned()), "{needs:?} {policy:?}");
        }
    }

    #[test]
    fn nothing_goes_while_slots_may_be_unknown() {
        let needs = Needs {
            registry_lost: true,
            ..needs(&[("a", 500)])
        };
        let policy = Policy {
            keep_bytes: 1,
            ..Policy::default()
        };
        assert_eq!(verdict(&needs, policy).0, 0);
    }

    #[test]
    fn what_waits_to_be_sealed_stays_and_all_behind_it() {
        let now = SystemTime::now();
        let mut segments = log(now);
        segments[1].sealed = false;
        let verdicts = decide(&segments, &needs(&[("a", 500)]), Policy::default(), now);
        assert!(verdicts[0].deletable);
        assert_eq!(verdicts[0].reason.to_string(), "the one slot is past it");
        assert_eq!(verdicts[1].reason, Reason::Unsealed);
        assert_eq!(verdicts[2].reason, Reason::EarlierStays { sequence: 2 });
        assert_eq!(verdicts[3].reason, Reason::Active);
    }

    #[test]
    fn a_clock_that_was_put_back_keeps_more() {
        let now = SystemTime::now();
        let mut segments = log(now);
        segments[0].modified_at = now + MINUTE * 100;
        let policy = Policy {
            keep_age: MINUTE,
            ..Policy::default()
        };
        let verdicts = decide(&segments, &needs(&[("a", 500)]), policy, now);
        assert!(verdicts.iter().all(|verdict| !verdict.deletable));
    }

    #[test]
    fn an_empty_log_has_no_verdicts() {
        assert!(decide(&[], &needs(&[]), Policy::default(), SystemTime::now()).is_empty());
    }

    #[test]
    fn slots_hold_only_so_much() {
        let now = SystemTime::now();
        let needs = needs(&[("a", 10), ("b", 25)]);
        let given_up = |policy| {
            let verdicts = decide(&log(now), &needs, policy, now);
            let gone = verdicts.into_iter().filter(|verdict| verdict.deletable);
            let reasons: Vec<String> = gone.map(|verdict| verdict.reason.to_string()).collect();
            reasons
        };
        let bytes = |slot_keep_bytes_max| Policy {
            slot_keep_bytes_max,
            ..none()
        };
        assert_eq!(given_up(bytes(300)), [""; 0]);
        let all = given_up(bytes(100));
        assert_eq!(all.len(), 2);
        assert!(all[0].contains("slot \"a\", which is at 0/A"), "{all:?}");
        assert!(all[1].contains("1 more slot"), "{all:?}");
        let age = Policy {
            slot_keep_age_max: Duration::from_secs(130),
            ..none()
        };
        assert_eq!(given_up(age).len(), 1);
        // What is kept in any case costs no slot.
        let both = Policy {
            keep_bytes: 1_000,
            ..bytes(100)
        };
        assert_eq!(given_up(both), [""; 0]);
    }
}
