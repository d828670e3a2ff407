//! Why the source's publications can't be learnt.

use std::time::Duration;

use crate::registry::RegistryError;

/// The source could not be asked for its publications.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] pg_client::ConnectError),
    /// A statement failed.
    #[error("cannot {action}")]
    Query {
        /// What it was for.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: pg_client::Error,
    },
    /// A statement took too long.
    #[error("the source did not answer within {} s when asked to {action}", after.as_secs())]
    Timeout {
        /// What it was for.
        action: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// An answer is not what was asked for.
    #[error("cannot {action}: the source answered {found}")]
    Answer {
        /// What it was for.
        action: &'static str,
        /// What came.
        found: String,
    },
    /// The publications are not in the expected form.
    #[error("the source's publications are not in the expected form")]
    Form(#[from] serde_json::Error),
    /// Nothing can be written there.
    #[error(
        "the publications can't be stated at a standby: set source.primary_host and source.primary_port to the primary"
    )]
    Standby,
    /// The primary is none of the source's.
    #[error(
        "the system identifier at source.primary_host is {found}, that of the source, a standby, is {expected}: it is \
         not its primary. Correct source.primary_host and source.primary_port"
    )]
    OtherCluster {
        /// The standby's.
        expected: u64,
        /// The primary's.
        found: u64,
    },
    /// The primary and the standby have gone different ways, or the standby is not so far yet.
    #[error(
        "the server at source.primary_host is on timeline {found}, the source, a standby, on timeline {expected}: if the \
         standby follows another primary now, set source.primary_host to that"
    )]
    OtherTimeline {
        /// The standby's.
        expected: u32,
        /// The primary's.
        found: u32,
    },
    /// There are no random numbers.
    #[error("the system has no random numbers for a secret")]
    Random,
    /// The secrets can't be kept.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A task of this process failed.
    #[error("storing the secret failed")]
    Task(#[from] tokio::task::JoinError),
}

impl CatalogError {
    /// Whether the same may succeed later without anybody doing anything about it.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_transient(),
            Self::Query { source, .. } => source.is_transient(),
            Self::Timeout { .. } => true,
            Self::Answer { .. }
            | Self::Form(_)
            | Self::Standby
            | Self::OtherCluster { .. }
            | Self::OtherTimeline { .. }
            | Self::Random
            | Self::Registry(_)
            | Self::Task(_) => false,
        }
    }

    /// The error with all its causes.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}
