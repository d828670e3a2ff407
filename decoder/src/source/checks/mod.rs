//! Whether the source is one that this log can follow.
//!
//! Everything is asked first and judged here, without a connection, so that each mistake has its test. A gap is never
//! turned into silence: whatever lies between the log's end and what the source can still send is an error that names
//! both positions.

use std::time::Duration;

use pg_proto::Lsn;
use pg_proto::replication::left_timeline_at;
use service::config::Config;
use storage_format::Identity;

use super::error::SourceError;

/// The first version that is supported.
const VERSION_MIN: u32 = 140_000;
/// The first version that decodes on a standby.
const VERSION_STANDBY: u32 = 160_000;

/// What the source says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) version: String,
    pub(crate) version_num: u32,
    pub(crate) wal_level: String,
    pub(crate) in_recovery: bool,
    pub(crate) system_identifier: u64,
    pub(crate) timeline: u32,
    pub(crate) flush_lsn: Lsn,
    pub(crate) server_encoding: String,
    /// How long the server waits for a word from us; zero: for ever.
    pub(crate) wal_sender_timeout: Duration,
    pub(crate) slot: Option<SlotFacts>,
    pub(crate) publication: Option<PublicationFacts>,
}

/// A row of `pg_replication_slots`.
#[derive(Clone, Debug)]
pub(crate) struct SlotFacts {
    pub(crate) plugin: Option<String>,
    pub(crate) database: Option<String>,
    pub(crate) temporary: bool,
    pub(crate) active_pid: Option<String>,
    pub(crate) active_application: Option<String>,
    pub(crate) confirmed_flush: Option<Lsn>,
    /// Why it can't be used any more.
    pub(crate) invalidation: Option<String>,
    pub(crate) two_phase: bool,
}

/// A row of `pg_publication`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublicationFacts {
    pub(crate) via_root: bool,
    /// A row filter or column list on any table.
    pub(crate) partial: bool,
}

/// The log that is there already.
#[derive(Clone, Debug)]
pub(crate) struct LogEnd {
    pub(crate) identity: Identity,
    pub(crate) end_lsn: Lsn,
}

/// Judges the server, and whether it is the cluster that the log is from. What timelines say comes next, then
/// [`check`]: a fork makes everything else look wrong, too.
pub(crate) fn check_cluster(
    facts: &Facts,
    config: &Config,
    log: Option<&LogEnd>,
) -> Result<(), SourceError> {
    check_server(facts, config)?;
    let Some(log) = log else { return Ok(()) };
    check_same_source(facts, config, log)?;
    let log_timeline = log.identity.timeline;
    if facts.timeline < log_timeline {
        if facts.in_recovery {
            return Err(standby_behind(facts, log));
        }
        return Err(SourceError::OldTimeline {
            timeline: facts.timeline,
            log_timeline,
            log_end: log.end_lsn,
        });
    }
    Ok(())
}

/// Judges positions, slot and publication.
pub(crate) fn check(
    facts: &Facts,
    config: &Config,
    log: Option<&LogEnd>,
) -> Result<(), SourceError> {
    if let Some(log) = log
        && facts.flush_lsn < log.end_lsn
    {
        if facts.in_recovery {
            return Err(standby_behind(facts, log));
        }
        return Err(SourceError::Behind {
            source_lsn: facts.flush_lsn,
            log_end: log.end_lsn,
        });
    }
    check_slot(facts, config, log)?;
    check_publication(facts, config)
}

/// What a standby has not replayed since its start will come, unlike what a primary lacks.
fn standby_behind(facts: &Facts, log: &LogEnd) -> SourceError {
    SourceError::StandbyBehind {
        timeline: facts.timeline,
        source_lsn: facts.flush_lsn,
        log_timeline: log.identity.timeline,
        log_end: log.end_lsn,
    }
}

fn check_server(facts: &Facts, config: &Config) -> Result<(), SourceError> {
    let found = || facts.version.clone();
    if facts.version_num < VERSION_MIN {
        return Err(SourceError::Version { found: found() });
    }
    if facts.in_recovery && facts.version_num < VERSION_STANDBY {
        return Err(SourceError::Standby { found: found() });
    }
    if facts.in_recovery && config.source.primary_host.is_empty() {
        return Err(SourceError::PrimaryUnknown);
    }
    if facts.wal_level != "logical" {
        return Err(SourceError::WalLevel {
            found: facts.wal_level.clone(),
        });
    }
    Ok(())
}

/// Whether configuration and log belong together; this needs no source.
pub(crate) fn check_configuration(config: &Config, identity: &Identity) -> Result<(), SourceError> {
    for (setting, found, expected) in [
        (
            "source.database",
            &config.source.database,
            &identity.database,
        ),
        ("source.slot", &config.source.slot, &identity.slot),
    ] {
        if found != expected {
            return Err(SourceError::OtherSource {
                setting,
                expected: expected.clone(),
                found: found.clone(),
            });
        }
    }
    Ok(())
}

fn check_same_source(facts: &Facts, config: &Config, log: &LogEnd) -> Result<(), SourceError> {
    let expected = log.identity.system_identifier;
    if facts.system_identifier != expected {
        return Err(SourceError::SystemIdentifier {
            expected,
            found: facts.system_identifier,
        });
    }
    check_configuration(config, &log.identity)
}

fn check_slot(facts: &Facts, config: &Config, log: Option<&LogEnd>) -> Result<(), SourceError> {
    let name = &config.source.slot;
    let log_end = log.map(|log| log.end_lsn);
    let Some(slot) = &facts.slot else {
        let slot = name.clone();
        return Err(SourceError::SlotMissing { slot, log_end });
    };
    if let Some(problem) = slot_problem(slot, &config.source.database) {
        let slot = name.clone();
        return Err(SourceError::SlotUnusable { slot, problem });
    }
    if let Some(reason) = &slot.invalidation {
        return Err(SourceError::SlotInvalidated {
            slot: name.clone(),
            reason: reason.clone(),
            log_end,
        });
    }
    if let Some(pid) = &slot.active_pid {
        return Err(SourceError::SlotActive {
            slot: name.clone(),
            pid: pid.clone(),
            application: slot.active_application.clone(),
        });
    }
    match (slot.confirmed_flush, log_end) {
        (None, _) => Err(SourceError::SlotUnusable {
            slot: name.clone(),
            problem: "was never finished: it has no position".to_owned(),
        }),
        (Some(confirmed), Some(log_end)) if confirmed > log_end => Err(SourceError::SlotAdvanced {
            slot: name.clone(),
            confirmed,
            log_end,
        }),
        _ => Ok(()),
    }
}

fn slot_problem(slot: &SlotFacts, database: &str) -> Option<String> {
    if slot.plugin.as_deref() != Some("pgoutput") {
        let plugin = slot.plugin.as_deref().unwrap_or("none, it is physical");
        return Some(format!(
            "has the wrong output plugin ({plugin}), not pgoutput"
        ));
    }
    if slot.database.as_deref() != Some(database) {
        let found = slot.database.as_deref().unwrap_or_default();
        return Some(format!(
            "belongs to database \"{found}\", not \"{database}\""
        ));
    }
    if slot.temporary {
        return Some("is temporary".to_owned());
    }
    None
}

fn check_publication(facts: &Facts, config: &Config) -> Result<(), SourceError> {
    let name = &config.source.publication;
    let unusable = |problem: &str| {
        Err(SourceError::PublicationUnusable {
            publication: name.clone(),
            problem: problem.to_owned(),
        })
    };
    match facts.publication {
        None => Err(SourceError::PublicationMissing {
            publication: name.clone(),
            database: config.source.database.clone(),
        }),
        Some(publication) if publication.via_root => unusable(
            "has publish_via_partition_root = true, which hides the partitions that changes belong to: ALTER \
             PUBLICATION ... SET (publish_via_partition_root = false)",
        ),
        Some(publication) if publication.partial => unusable(
            "has a row filter or a column list, so that the log would silently lack rows or columns: publish whole \
             tables, subscribers' own publications may filter",
        ),
        Some(_) => Ok(()),
    }
}

/// Judges a source that is on another timeline than the one the log's end is from. `history` is the content of the
/// source's timeline history file.
pub(crate) fn check_timeline(
    facts: &Facts,
    log: &LogEnd,
    history: &str,
) -> Result<(), SourceError> {
    let log_timeline = log.identity.timeline;
    let switch_lsn = left_timeline_at(history, log_timeline).unwrap_or(Lsn::INVALID);
    if switch_lsn < log.end_lsn {
        return Err(SourceError::Fork {
            timeline: facts.timeline,
            log_timeline,
            switch_lsn,
            log_end: log.end_lsn,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
