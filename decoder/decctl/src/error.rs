//! Why a command failed.

use std::io;
use std::path::{Path, PathBuf};

use pg_proto::Lsn;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The configuration can't be used.
    #[error(transparent)]
    Config(#[from] service::config::ConfigError),
    /// The log output can't be set up.
    #[error(transparent)]
    Telemetry(#[from] service::telemetry::InvalidDirectives),
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The address of a service is no URL.
    #[error("{what}: \"{url}\" is not an address of the form http://host:port")]
    Address {
        /// Which service.
        what: &'static str,
        /// What was given.
        url: String,
    },
    /// A service can't be reached.
    #[error("cannot reach {what} at {url}; is it running?")]
    Unreachable {
        /// Which service.
        what: &'static str,
        /// Its address.
        url: String,
        /// Why.
        #[source]
        source: tonic::transport::Error,
    },
    /// A file that was named can't be read.
    #[error("cannot read {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No header can be made of them.
    #[error("user and password are too long")]
    Credentials,
    /// A service refused. Its message says all that the status does, so that is no further cause.
    #[error("{}", .0.message())]
    Refused(Box<tonic::Status>),
    /// The source database can't be reached.
    #[error("cannot connect to the source database")]
    Connect(#[source] pg_client::ConnectError),
    /// The primary of a source that is a standby can't be reached.
    #[error("cannot connect to the primary of the source (source.primary_host)")]
    Primary(#[source] pg_client::ConnectError),
    /// The source database refused a statement.
    #[error("source database")]
    Source(#[from] pg_client::Error),
    /// The source database is not ready for Decant; the findings were printed.
    #[error("the source is not ready: {failed} of {checks} checks failed")]
    NotReady {
        /// How many failed.
        failed: usize,
        /// Of how many.
        checks: usize,
    },
    /// There is no log.
    #[error("{} holds no segments: name the log directory with --directory or log.directory", .0.display())]
    NoSegments(PathBuf),
    /// A file of the log can't be read.
    #[error("cannot read {}", path.display())]
    Reading {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The log's files can't be used.
    #[error(transparent)]
    Format(#[from] storage_format::FormatError),
    /// The log can't be read.
    #[error(transparent)]
    Log(#[from] storage_format::log::ReadError),
    /// The position asked for is not in the log.
    #[error(transparent)]
    Seek(#[from] storage_format::log::SeekError),
    /// Something is wrong with the log; the findings were printed.
    #[error("{findings} things are wrong with the log: {advice}")]
    Unsound {
        /// How many.
        findings: usize,
        /// What to do.
        advice: &'static str,
    },
    /// A table is not what the log says; the differences were printed.
    #[error("{differences} differences between the table and the log")]
    Differs {
        /// How many.
        differences: u64,
    },
    /// A table can't be compared with the log.
    #[error("the table can't be compared with the log: {0}")]
    Uncheckable(&'static str),
    /// The log does not come as far as a snapshot of the source.
    #[error("the log ends at {head} and does not reach {wanted}; is the decoder running?")]
    NotReached {
        /// The position that is needed.
        wanted: Lsn,
        /// The log's end.
        head: Lsn,
    },
    /// The source's answer makes no sense.
    #[error("the source answered {question} with \"{found}\"")]
    Answer {
        /// What was asked.
        question: &'static str,
        /// What came.
        found: String,
    },
    /// A standby whose primary is not configured.
    #[error(
        "the source is a standby, where this can't be done: set source.primary_host (and source.primary_port) to its primary"
    )]
    PrimaryUnknown,
    /// The standby does not follow its primary.
    #[error(
        "the standby has replayed up to {replayed} and does not reach {wanted} of its primary: is it connected to that?"
    )]
    NotReplayed {
        /// The position of the primary.
        wanted: String,
        /// That of the standby.
        replayed: String,
    },
    /// The log can't go on with this source.
    #[error("the source can't be accepted for this log: {0}")]
    NotAcceptable(String),
    /// A part of a publication's definition is more than that.
    #[error(
        "\"{0}\" has a semicolon outside quotes: give one table, as CREATE PUBLICATION takes it"
    )]
    Definition(String),
    /// The role may not do at the source what finding out a definition's meaning takes.
    #[error(
        "role {role} may not make publications at the source, where the definition is looked at in a transaction that is rolled back. It \
         must own the tables and have CREATE on the database, or be a superuser for schemas and all tables"
    )]
    MayNotPublish {
        /// The role.
        role: String,
        /// What the source said.
        #[source]
        source: pg_client::Error,
    },
    /// Decant has no such publication.
    #[error("Decant has no publication \"{0}\" of its own")]
    NoPublication(String),
    /// A name is not of the form `schema.table`.
    #[error("\"{0}\" is not of the form schema.table")]
    TableName(String),
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

impl Error {
    /// For a failed read of a file.
    pub(crate) fn reading(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Reading { path, source }
    }

    /// Whether only the reader of our output went away, as `head` does: no failure.
    pub(crate) fn is_closed_output(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
