//! `decctl verify --accept-source`: the log goes on with the source as it is now, whatever that costs, and says so to
//! every reader that it concerns.
//!
//! What the source never had is cut off, what it no longer can send becomes a gap, and its timeline becomes the log's.

use std::path::Path;
use std::sync::Arc;

use pg_proto::Lsn;
use pg_proto::replication::left_timeline_at;
use service::config::Config;
use storage_format::fs::{Fs, RealFs};
use storage_format::segment::read_identity;
use storage_format::{Identity, LogWriter, PreparedStore, WriterOptions, verify};

use super::views::Action;
use crate::cmd::source::{Row, Source, literal};
use crate::error::Error;

/// What the source says of itself.
struct Facts {
    timeline: u32,
    /// Where it left the log's timeline; `None` if that is the one it is on.
    switch_lsn: Option<Lsn>,
    /// Where its slot stands: nothing before that will come.
    confirmed_lsn: Lsn,
}

/// Makes the log one that the decoder can go on with.
pub(super) async fn run(config: &Config, directory: &Path) -> Result<Vec<Action>, Error> {
    let Some(identity) = read_identity(&RealFs, directory)? else {
        return Err(Error::NoSegments(directory.to_owned()));
    };
    let facts = ask(config, &identity).await?;
    accept(config, directory, identity, &facts)
}

fn accept(
    config: &Config,
    directory: &Path,
    identity: Identity,
    facts: &Facts,
) -> Result<Vec<Action>, Error> {
    let mut actions = Vec::new();
    let mut common = None;
    if let Some(switch_lsn) = facts.switch_lsn {
        let cut = verify::cut_off(&RealFs, directory, switch_lsn)?;
        if cut.was_lsn > switch_lsn {
            common = Some((switch_lsn, cut.undone.clone()));
            actions.push(Action::of_cut(cut));
        }
    }
    let options = WriterOptions {
        segment_bytes: config.log.segment_bytes,
        start_lsn: Lsn::INVALID,
    };
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let log_timeline = identity.timeline;
    let (mut writer, recovery) = LogWriter::open(directory, options, identity, Arc::clone(&fs))?;
    let mut end_lsn = recovery.end_lsn;
    if let Some((switch_lsn, undone)) = common {
        let store = PreparedStore::open(directory, Arc::clone(&fs))?;
        // Those that were prepared behind it are the source's no more. Dropped, the others keep their files.
        drop(store.load(switch_lsn)?);
        let undone = verify::undo_decisions(&fs, directory, &store, undone)?;
        actions.extend(Action::of_undone(&undone));
        // The log had all of both histories up to here.
        writer.progress(switch_lsn)?;
        end_lsn = end_lsn.max(switch_lsn);
    }
    if facts.timeline != log_timeline {
        writer.begin_timeline(facts.timeline)?;
        actions.push(Action::of_timeline(log_timeline, facts.timeline));
    }
    if facts.confirmed_lsn > end_lsn {
        writer.gap(facts.confirmed_lsn)?;
        actions.push(Action::of_gap(end_lsn, facts.confirmed_lsn));
    }
    writer.sync()?;
    Ok(actions)
}

async fn ask(config: &Config, identity: &Identity) -> Result<Facts, Error> {
    let source = &config.source;
    for (what, found, expected) in [
        ("source.database", &source.database, &identity.database),
        ("source.slot", &source.slot, &identity.slot),
    ] {
        if found != expected {
            return Err(refused(format!(
                "{what} is \"{found}\", but the log was written from \"{expected}\""
            )));
        }
    }
    let mut connection = Source::connect_for_replication(config).await?;
    // systemid, timeline, xlogpos, dbname
    let system = connection.row("IDENTIFY_SYSTEM").await?;
    if system.text(0) != identity.system_identifier.to_string() {
        return Err(refused(format!(
            "its system identifier is {}, but the log was written from {}: this is another cluster",
            system.text(0),
            identity.system_identifier
        )));
    }
    let timeline = system.number(1);
    let switch_lsn = match timeline.cmp(&identity.timeline) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Less => {
            return Err(refused(format!(
                "it is on timeline {timeline}, which the log has left for timeline {}: this is a server from before a failover",
                identity.timeline
            )));
        }
        std::cmp::Ordering::Greater => {
            // filename, content
            let history = connection
                .row(&format!("TIMELINE_HISTORY {timeline}"))
                .await?
                .text(1);
            let switch_lsn = left_timeline_at(&history, identity.timeline);
            Some(switch_lsn.ok_or_else(|| {
                refused(format!(
                    "its timeline {timeline} does not come from the log's timeline {}",
                    identity.timeline
                ))
            })?)
        }
    };
    let sql = format!(
        "SELECT confirmed_flush_lsn, active_pid, wal_status FROM pg_catalog.pg_replication_slots WHERE slot_name = {}",
        literal(&source.slot)
    );
    let slot = connection.rows(&sql).await?;
    let confirmed_lsn = confirmed(slot.first(), &source.slot)?;
    if switch_lsn.is_none()
        && system
            .text(2)
            .parse()
            .is_ok_and(|lsn: Lsn| lsn < confirmed_lsn)
    {
        return Err(refused(
            "its slot is ahead of its WAL: it was restored without a new timeline".to_owned(),
        ));
    }
    Ok(Facts {
        timeline,
        switch_lsn,
        confirmed_lsn,
    })
}

fn confirmed(slot: Option<&Row>, name: &str) -> Result<Lsn, Error> {
    let Some(slot) = slot else {
        return Err(refused(format!(
            "it has no replication slot \"{name}\": create it with decctl init"
        )));
    };
    if slot.text(2) == "lost" {
        return Err(refused(format!(
            "its replication slot \"{name}\" was invalidated: drop it (SELECT pg_drop_replication_slot({})) and create it \
             with decctl init",
            literal(name)
        )));
    }
    if !slot.text(1).is_empty() {
        return Err(refused(format!(
            "its replication slot \"{name}\" is active for PID {}: stop the decoder first",
            slot.text(1)
        )));
    }
    slot.text(0)
        .parse()
        .map_err(|_| refused(format!("its replication slot \"{name}\" has no position")))
}

fn refused(problem: String) -> Error {
    Error::NotAcceptable(problem)
}
