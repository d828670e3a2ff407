//! Commands and flags.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};
use pg_proto::{Lsn, PgTimestamp};
use service::cli::ConfigArgs;

/// Operates Decant: decode a PostgreSQL database once, serve many subscribers.
#[derive(Debug, Parser)]
#[command(version, about, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Checks the source database and prepares it: publication, slot, event triggers
    Init(InitArgs),
    /// Shows the source, the log and the slots
    Status(StatusArgs),
    /// Lists the log's segments, from the files alone
    Segments(SegmentsArgs),
    /// Prints the records of a part of the log, from the files alone
    Dump(DumpArgs),
    /// Prints changes as they arrive, from a fanout
    Tail(TailArgs),
    /// Lists, creates, moves and drops subscribers' slots
    #[command(subcommand)]
    Slot(SlotCommand),
    /// Makes, changes, drops and shows publications of Decant's own; the source's stay as they are
    #[command(subcommand)]
    Publication(PublicationCommand),
    /// Deletes the segments that nobody needs any more
    Gc(GcArgs),
    /// Checks the log's files, also beside a running decoder; can repair them and set damage aside
    Verify(VerifyArgs),
}

/// A choice of output.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct OutputArgs {
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct InitArgs {
    /// Only checks; changes nothing
    #[arg(long)]
    pub(crate) check: bool,
    /// Publishes these tables (schema.table; may be repeated) instead of all tables
    #[arg(long = "table", value_name = "SCHEMA.TABLE")]
    pub(crate) tables: Vec<String>,
    /// Goes on although some tables have no replica identity, so that UPDATE and DELETE on them will fail
    #[arg(long)]
    pub(crate) allow_missing_identity: bool,
    /// Does not install event triggers: the decoder asks for changed publications every few seconds instead
    #[arg(long)]
    pub(crate) no_event_triggers: bool,
    /// Role of the decoder, if `init` runs as another one: gets the rights on schema decant that it needs
    #[arg(long, value_name = "ROLE")]
    pub(crate) decoder_role: Option<String>,
    /// Makes the slot a failover slot (source version 17 and later)
    #[arg(long)]
    pub(crate) failover: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How to prove to a fanout who asks, and how it does.
#[derive(Args, Debug)]
pub(crate) struct FanoutArgs {
    /// The user to be at a fanout that has users
    #[arg(long, value_name = "NAME", requires = "password_file")]
    pub(crate) user: Option<String>,
    /// The file with that user's password
    #[arg(long, value_name = "FILE", requires = "user")]
    pub(crate) password_file: Option<PathBuf>,
    /// The authorities that may have signed the fanout's certificate (PEM), if not those of this host
    #[arg(long, value_name = "FILE")]
    pub(crate) root_cert_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Also asks the fanout named by the configuration
    #[arg(long)]
    pub(crate) fanout: bool,
    #[command(flatten)]
    pub(crate) access: FanoutArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Args, Debug)]
pub(crate) struct SegmentsArgs {
    /// The log directory, if not that of the configuration
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) directory: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Args, Debug)]
pub(crate) struct DumpArgs {
    /// The log directory, if not that of the configuration
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) directory: Option<PathBuf>,
    /// Starts with the first transaction whose commit record is at or after this position; else at the oldest kept
    #[arg(long, value_name = "LSN")]
    pub(crate) from: Option<Lsn>,
    /// Ends before the first transaction whose commit record is at or after this position; else with what there is when it begins
    #[arg(long, value_name = "LSN")]
    pub(crate) to: Option<Lsn>,
    /// Prints at most this many records
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u64>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Args, Debug)]
pub(crate) struct TailArgs {
    /// The fanout's gRPC address, if not that of the configuration; https://... for TLS
    #[arg(long, value_name = "URL")]
    pub(crate) fanout: Option<String>,
    #[command(flatten)]
    pub(crate) access: FanoutArgs,
    /// Starts with the first transaction whose commit record is at or after this position; else at the head
    #[arg(long, value_name = "LSN", conflicts_with = "slot")]
    pub(crate) from: Option<Lsn>,
    /// Starts at this slot's position, and moves it on
    #[arg(long, value_name = "NAME")]
    pub(crate) slot: Option<String>,
    /// Only these publications; may be repeated
    #[arg(long = "publication", value_name = "NAME")]
    pub(crate) publications: Vec<String>,
    /// Only these tables; may be repeated
    #[arg(long = "table", value_name = "SCHEMA.TABLE")]
    pub(crate) tables: Vec<String>,
    /// Also logical messages
    #[arg(long)]
    pub(crate) messages: bool,
    /// Ends after the last transaction whose commit record starts below this position
    #[arg(long, value_name = "LSN")]
    pub(crate) until: Option<Lsn>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Where a slot is to stand.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct SlotPosition {
    /// A kept position; rounded down to the end of a whole transaction
    #[arg(long, value_name = "LSN")]
    pub(crate) at: Option<Lsn>,
    /// Before the first transaction that was committed at this time or later, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "at", value_parser = crate::time::parse)]
    pub(crate) at_time: Option<PgTimestamp>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SlotCommand {
    /// Lists the slots
    List(OutputArgs),
    /// Creates a slot at the log's head, or at a kept position
    Create {
        /// Its name: lower-case letters, digits and underscores, up to 63
        name: String,
        #[command(flatten)]
        at: SlotPosition,
        /// The role that may go on with it also at a fanout that has not seen the source since its start; else none may
        #[arg(long, value_name = "ROLE")]
        owner: Option<String>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Moves a slot that nobody uses, also back: its subscriber gets what follows again
    #[command(group = ArgGroup::new("position").required(true).args(["at", "at_time"]))]
    Rewind {
        /// Its name
        name: String,
        #[command(flatten)]
        at: SlotPosition,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Creates a slot that stands where another one does
    Clone {
        /// The other one
        from: String,
        /// The new one's name
        name: String,
        /// The same as for create; without it the other one's
        #[arg(long, value_name = "ROLE")]
        owner: Option<String>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Drops a slot
    Drop {
        /// Its name
        name: String,
        /// Also if a subscriber uses it now
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PublicationCommand {
    /// Makes a publication; it counts for changes from now on, or from a kept position
    Create(PublicationArgs),
    /// Gives a publication another definition, for changes from now on, or from a kept position
    Alter(PublicationArgs),
    /// Drops a publication, for changes from now on, or from a kept position
    Drop {
        /// Its name
        name: String,
        #[command(flatten)]
        from: PublicationStart,
    },
    /// Lists Decant's own publications, and from which position on each counts as it is
    List(OutputArgs),
    /// Shows the definition of one, and from which position on each version of it counts
    Show {
        /// Its name
        name: String,
        #[command(flatten)]
        output: OutputArgs,
    },
}

/// From where on a definition counts.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PublicationStart {
    /// A kept position: changes from there on are judged by it, in place of all definitions that began there or later
    #[arg(long, value_name = "LSN")]
    pub(crate) from: Option<Lsn>,
    /// The position at which the first transaction commits of this time or later, such as 2026-01-31T12:00:00Z; what it wrote
    /// itself lies before
    #[arg(long, value_name = "TIME", conflicts_with = "from", value_parser = crate::time::parse)]
    pub(crate) from_time: Option<PgTimestamp>,
}

#[derive(Args, Debug)]
pub(crate) struct PublicationArgs {
    /// Its name: one that the source has not
    pub(crate) name: String,
    /// A table, as CREATE PUBLICATION takes it: 'public.orders (id, total) WHERE (total > 100)'; may be repeated
    #[arg(long = "table", value_name = "TABLE", required_unless_present_any = ["schemas", "all_tables"])]
    pub(crate) tables: Vec<String>,
    /// All tables of a schema, also those to come; may be repeated
    #[arg(long = "schema", value_name = "SCHEMA")]
    pub(crate) schemas: Vec<String>,
    /// All tables, also those to come
    #[arg(long, conflicts_with_all = ["tables", "schemas"])]
    pub(crate) all_tables: bool,
    /// What is published, of insert, update, delete and truncate; all of them unless given
    #[arg(long, value_name = "ACTIONS")]
    pub(crate) publish: Option<String>,
    /// Also stored generated columns (source version 18 and later)
    #[arg(long)]
    pub(crate) generated_columns: bool,
    /// Rows of partitions as rows of the partitioned table that is published (publish_via_partition_root)
    #[arg(long)]
    pub(crate) via_partition_root: bool,
    #[command(flatten)]
    pub(crate) start: PublicationStart,
}

#[derive(Args, Debug)]
pub(crate) struct GcArgs {
    /// Only says what would go and why the rest stays
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// The log directory, if not that of the configuration
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) directory: Option<PathBuf>,
    /// Makes indexes anew and removes leftovers first (no decoder may run)
    #[arg(long)]
    pub(crate) repair: bool,
    /// Moves damaged segments aside first and writes a gap in their place (no decoder may run)
    #[arg(long)]
    pub(crate) quarantine: bool,
    /// Takes off the log's end what ends behind this position first, after a fork (no decoder may run)
    #[arg(long, value_name = "LSN", conflicts_with = "quarantine")]
    pub(crate) quarantine_from: Option<Lsn>,
    /// Writes a gap at the log's end up to this position first: what lies before it will never come (no decoder may
    /// run)
    #[arg(long, value_name = "LSN", conflicts_with_all = ["quarantine", "quarantine_from"])]
    pub(crate) gap_to: Option<Lsn>,
    /// Makes the log go on with the source as it is now, after a failover or when its slot was lost, advanced or made anew:
    /// cuts off first what the source never had, writes a gap for what it can't send any more, goes over to its timeline.
    /// Readers that it concerns are told (no decoder may run)
    #[arg(long, conflicts_with_all = ["quarantine", "quarantine_from", "gap_to"])]
    pub(crate) accept_source: bool,
    /// Compares a table of the source with what the log's changes make of it, and does nothing else
    #[arg(long, requires = "table", conflicts_with_all = ["repair", "quarantine", "quarantine_from", "gap_to", "accept_source"])]
    pub(crate) against_source: bool,
    /// The table for --against-source
    #[arg(long, value_name = "SCHEMA.TABLE", requires = "against_source")]
    pub(crate) table: Option<String>,
    /// Looks at changes from this position on only; else from the oldest kept
    #[arg(long, value_name = "LSN", requires = "against_source")]
    pub(crate) from: Option<Lsn>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
