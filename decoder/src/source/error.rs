//! Why the source can't be followed, and whether trying again can help.

use std::time::Duration;

use pg_proto::Lsn;

/// What to do when a slot stands behind the log's end.
const ACCEPT: &str = "; the changes since then are lost, and decctl verify --accept-source puts a gap there, which every \
    subscriber is told of that comes to it";

/// The source can't be followed.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] pg_client::ConnectError),
    /// The role may not replicate.
    #[error(
        "role \"{user}\" may not replicate: ALTER ROLE {user} REPLICATION, and allow it to connect to the database in \
         pg_hba.conf"
    )]
    NotAllowed {
        /// The role.
        user: String,
        /// What the server said.
        #[source]
        source: pg_client::ConnectError,
    },
    /// The connection broke, or the server refused a command.
    #[error("{action}")]
    Client {
        /// What was being done.
        action: &'static str,
        /// What happened.
        #[source]
        source: pg_client::Error,
    },
    /// The server closed the stream without an error, as it does when it shuts down.
    #[error("the source ended the replication stream")]
    Ended,
    /// The server said nothing for too long.
    #[error("the source has been silent for {} s", silence.as_secs())]
    Silent {
        /// For how long.
        silence: Duration,
    },
    /// What the server answers is not what the protocol says.
    #[error("the source answered {question} with {found}, expected {expected}")]
    Answer {
        /// What was asked.
        question: &'static str,
        /// What would be right.
        expected: &'static str,
        /// What came.
        found: String,
    },

    /// The server is too old.
    #[error(
        "the source is PostgreSQL {found}; logical decoding for Decant needs version 14 or later"
    )]
    Version {
        /// Its version.
        found: String,
    },
    /// The server does not write what decoding needs.
    #[error(
        "the source has wal_level = {found}, not logical: set wal_level = logical in postgresql.conf and restart it"
    )]
    WalLevel {
        /// Its setting.
        found: String,
    },
    /// A standby before version 16.
    #[error(
        "the source is a standby and PostgreSQL {found}: decoding on a standby needs version 16; connect to the primary"
    )]
    Standby {
        /// Its version.
        found: String,
    },
    /// A standby whose primary is not configured.
    #[error(
        "the source is a standby: set source.primary_host (and source.primary_port) to its primary, where the decoder \
         states the publications, or connect to the primary"
    )]
    PrimaryUnknown,
    /// A standby that has not replayed again what it had replayed before it was started anew.
    #[error(
        "the source is a standby that has replayed timeline {timeline} up to {source_lsn}; the log ends at {log_end} of \
         timeline {log_timeline}: waiting until it is there"
    )]
    StandbyBehind {
        /// The source's timeline.
        timeline: u32,
        /// The source's position.
        source_lsn: Lsn,
        /// The log's timeline.
        log_timeline: u32,
        /// The log's end.
        log_end: Lsn,
    },
    /// A standby was promoted, or follows another primary, while it was decoded.
    #[error(
        "the source, a standby, went over from timeline {from} to timeline {to}: the stream begins anew there, where the \
         log ends"
    )]
    TimelineSwitched {
        /// The stream's.
        from: u32,
        /// The source's now.
        to: u32,
    },
    /// The connection that watches the timeline is not to the server that streams.
    #[error(
        "two connections to {host}:{port} came to different servers: source.host must name one standby, since only the \
         one that streams can say which timeline that is of"
    )]
    TwoServers {
        /// `source.host`.
        host: String,
        /// `source.port`.
        port: u16,
    },
    /// Another cluster than the one whose changes are in the log.
    #[error(
        "the source's system identifier is {found}, but the log was written from {expected}: this is another cluster. \
         Check source.host and source.port, or choose another log.directory"
    )]
    SystemIdentifier {
        /// The log's.
        expected: u64,
        /// The source's.
        found: u64,
    },
    /// Another database or slot than the one whose changes are in the log.
    #[error(
        "{setting} is \"{found}\", but the log was written from \"{expected}\". Set it back, or choose another log.directory"
    )]
    OtherSource {
        /// `source.database` or `source.slot`.
        setting: &'static str,
        /// The log's.
        expected: String,
        /// The configured one.
        found: String,
    },
    /// The source has less WAL than the log.
    #[error(
        "the source is at {source_lsn}, behind the log's end {log_end}: it was restored or failed over and has lost \
         what the log still has. Subscribers may have it too; compare, then choose another log.directory"
    )]
    Behind {
        /// The source's flush position.
        source_lsn: Lsn,
        /// The log's end.
        log_end: Lsn,
    },
    /// The source was promoted before the log's end.
    #[error(
        "the source is on timeline {timeline}, which left timeline {log_timeline} at {switch_lsn}, before the log's end \
         {log_end}: the log has changes that the source never had, and they are not served any more. If this is the source \
         from now on, run decctl init if it has no slot yet, then decctl verify --accept-source, which keeps those changes \
         aside, and make the subscribers anew that had them; if it is not, correct source.host and source.port"
    )]
    Fork {
        /// The source's timeline.
        timeline: u32,
        /// The log's timeline.
        log_timeline: u32,
        /// Where the source left the log's timeline.
        switch_lsn: Lsn,
        /// The log's end.
        log_end: Lsn,
    },
    /// The source is on a timeline that the log has left.
    #[error(
        "the source is on timeline {timeline}, but the log, which ends at {log_end}, has gone over to timeline \
         {log_timeline}: this is a server from before a failover. Correct source.host and source.port"
    )]
    OldTimeline {
        /// The source's timeline.
        timeline: u32,
        /// The log's timeline.
        log_timeline: u32,
        /// The log's end.
        log_end: Lsn,
    },

    /// There is no such slot.
    #[error(
        "replication slot \"{slot}\" does not exist at the source{}. Create it with decctl init{}",
        .log_end.map_or_else(String::new, |lsn| format!("; the log ends at {lsn}")),
        .log_end.map_or("", |_| ACCEPT)
    )]
    SlotMissing {
        /// The slot.
        slot: String,
        /// The log's end, if there is a log.
        log_end: Option<Lsn>,
    },
    /// The slot is not one that Decant can use.
    #[error(
        "replication slot \"{slot}\" {problem}. Drop it, or set source.slot to another one; decctl init creates it"
    )]
    SlotUnusable {
        /// The slot.
        slot: String,
        /// Why not.
        problem: String,
    },
    /// The server has removed what the slot needs.
    #[error(
        "replication slot \"{slot}\" was invalidated by the source ({reason}){}. {}Drop it \
         (SELECT pg_drop_replication_slot) and create it with decctl init{}",
        .log_end.map_or_else(String::new, |lsn| format!("; the log ends at {lsn}")),
        prevention(reason),
        .log_end.map_or("", |_| ACCEPT)
    )]
    SlotInvalidated {
        /// The slot.
        slot: String,
        /// The server's word for it.
        reason: String,
        /// The log's end, if there is a log.
        log_end: Option<Lsn>,
    },
    /// Somebody else moved the slot.
    #[error(
        "replication slot \"{slot}\" was confirmed up to {confirmed}, but the log ends at {log_end}: another program used \
         the slot, the slot was made anew, or the log directory is an old copy. What lies between is lost; decctl verify \
         --accept-source puts a gap there, which every subscriber is told of that comes to it"
    )]
    SlotAdvanced {
        /// The slot.
        slot: String,
        /// Its position.
        confirmed: Lsn,
        /// The log's end.
        log_end: Lsn,
    },
    /// Another process uses the slot now.
    #[error(
        "replication slot \"{slot}\" is active for PID {pid} at the source{}: waiting until it is free",
        .application.as_deref().map_or_else(String::new, |name| format!(" (application_name \"{name}\")"))
    )]
    SlotActive {
        /// The slot.
        slot: String,
        /// The server process.
        pid: String,
        /// What that client calls itself.
        application: Option<String>,
    },
    /// There is no such publication.
    #[error(
        "the source has no publication \"{publication}\" in database \"{database}\": create it with decctl init"
    )]
    PublicationMissing {
        /// The publication.
        publication: String,
        /// The database.
        database: String,
    },
    /// The publication would hide what the log has to have.
    #[error("publication \"{publication}\" {problem}")]
    PublicationUnusable {
        /// The publication.
        publication: String,
        /// What is wrong and how to put it right.
        problem: String,
    },
    /// How publications are reported can't be found out.
    #[error(transparent)]
    Catalog(#[from] crate::catalog::CatalogError),
}

/// What keeps it from happening again. `reason` is `invalidation_reason` of `pg_replication_slots`, or what stands for it
/// in versions that do not have that.
fn prevention(reason: &str) -> &'static str {
    match reason {
        "rows_removed" => {
            "Its primary removed rows that decoding needs: set hot_standby_feedback = on at the standby, and \
             primary_slot_name, so that the primary keeps them also while the standby is away. "
        }
        "wal_level_insufficient" => "Set wal_level = logical at the primary again. ",
        CONFLICT => {
            "Its primary removed rows that decoding needs (set hot_standby_feedback = on at the standby, and \
             primary_slot_name), or its wal_level was lowered (set it to logical again). "
        }
        "idle_timeout" => "Raise idle_replication_slot_timeout there. ",
        "wal_removed" => "Raise max_slot_wal_keep_size there. ",
        _ => "",
    }
}

/// What version 16 knows of the reason: its column `conflicting`.
pub(super) const CONFLICT: &str = "conflict with recovery";

/// What to do about a [`SourceError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Trying again may help.
    Transient,
    /// It can't: somebody has to do something.
    Fatal,
}

impl SourceError {
    /// Whether trying again may help.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::Ended
            | Self::Silent { .. }
            | Self::SlotActive { .. }
            | Self::StandbyBehind { .. }
            | Self::TimelineSwitched { .. }
            | Self::TwoServers { .. } => Severity::Transient,
            Self::Catalog(error) if error.is_transient() => Severity::Transient,
            Self::Connect(error) => severity(error.code(), error.is_transient()),
            Self::Client { source, .. } => severity(source.code(), source.is_transient()),
            _ => Severity::Fatal,
        }
    }
}

fn severity(code: Option<&str>, is_transient: bool) -> Severity {
    match code {
        Some(code) => sqlstate_severity(code),
        None if is_transient => Severity::Transient,
        None => Severity::Fatal,
    }
}

/// By SQLSTATE. What is not listed is transient: an outage must not end in a stopped decoder.
fn sqlstate_severity(code: &str) -> Severity {
    let fatal = matches!(
        code,
        "42501" // insufficient_privilege
        | "42704" // undefined_object: slot or publication
        | "55000" // object_not_in_prerequisite_state: invalidated slot, slot of another database
        | "3D000" // the database does not exist
        | "0A000" // feature_not_supported
        | "58P01" // undefined_file: the WAL that the slot needs is gone
    ) || code.starts_with("28") // who we are is not accepted
        || code.starts_with("22") // option values
        || code.starts_with("42"); // syntax
    if fatal {
        Severity::Fatal
    } else {
        Severity::Transient
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outages_are_transient_and_mistakes_are_fatal() {
        for code in [
            "57P01", "57P02", "57P03", "53300", "55006", "XX000", "08006", "58030",
        ] {
            assert_eq!(sqlstate_severity(code), Severity::Transient, "{code}");
        }
        for code in [
            "28P01", "28000", "3D000", "42501", "42704", "55000", "42601", "22023",
        ] {
            assert_eq!(sqlstate_severity(code), Severity::Fatal, "{code}");
        }
    }
}
