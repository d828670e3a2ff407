//! What the decoder refused, or could not be asked.

use std::error::Error;

use tonic::{Code, Status};

/// A question to the decoder failed.
#[derive(Debug, thiserror::Error)]
pub enum PositionsError {
    /// The decoder can't be reached.
    #[error("the decoder does not answer at {address}; is it running?")]
    Unavailable {
        /// Where it was looked for.
        address: String,
        /// What happened.
        #[source]
        source: Box<Status>,
    },
    /// There is no such slot.
    #[error("replication slot \"{slot}\" does not exist")]
    UnknownSlot {
        /// Its name.
        slot: String,
    },
    /// There is one already.
    #[error("replication slot \"{slot}\" already exists")]
    SlotExists {
        /// Its name.
        slot: String,
    },
    /// It can't be used any more.
    #[error("{message}")]
    Invalidated {
        /// Its name.
        slot: String,
        /// As `pg_replication_slots.invalidation_reason` has it.
        reason: String,
        /// The decoder's words.
        message: String,
    },
    /// Another connection has it.
    #[error("replication slot \"{slot}\" is active: {holder}")]
    SlotInUse {
        /// Its name.
        slot: String,
        /// What the decoder said, or who has it on this fanout.
        holder: String,
        /// The number of the session that has it, here or at another fanout; 0 if it has none.
        pid: u32,
    },
    /// The decoder refused, for a reason that concerns neither the slot's existence nor its use.
    #[error("{message}")]
    Refused {
        /// The decoder's words.
        message: String,
        /// What kind of refusal it is.
        code: Code,
    },
}

impl PositionsError {
    /// The SQLSTATE that PostgreSQL gives in this case.
    #[must_use]
    pub const fn sqlstate(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "57P03",
            Self::UnknownSlot { .. } => "42704",
            Self::SlotExists { .. } => "42710",
            Self::SlotInUse { .. } => "55006",
            Self::Invalidated { .. } => "55000",
            Self::Refused { code, .. } => match code {
                Code::InvalidArgument => "42602",
                Code::OutOfRange | Code::FailedPrecondition => "55000",
                Code::ResourceExhausted => "53400",
                Code::PermissionDenied => "42501",
                _ => "XX000",
            },
        }
    }

    /// Whether no answer came in time, which says nothing about what the decoder did.
    pub(super) fn is_late(&self) -> bool {
        matches!(self, Self::Unavailable { source, .. } if source.code() == Code::DeadlineExceeded)
    }

    /// What a failed call means that concerned `slot`, if it concerned one.
    pub(super) fn from_status(status: Status, address: &str, slot: Option<&str>) -> Self {
        let named = slot.map(str::to_owned);
        match (status.code(), named) {
            // The last one is how a connection that breaks before the answer is reported.
            (code, _)
                if matches!(
                    code,
                    Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled
                ) || (code == Code::Unknown && status.source().is_some()) =>
            {
                Self::Unavailable {
                    address: address.to_owned(),
                    source: Box::new(status),
                }
            }
            (Code::NotFound, Some(slot)) => Self::UnknownSlot { slot },
            (Code::AlreadyExists, Some(slot)) => Self::SlotExists { slot },
            (Code::DataLoss, Some(slot)) => Self::Invalidated {
                slot,
                reason: proto::status::detail(&status)
                    .unwrap_or_default()
                    .invalidation_reason,
                message: status.message().to_owned(),
            },
            (Code::FailedPrecondition, Some(slot)) => Self::SlotInUse {
                slot,
                holder: status.message().to_owned(),
                pid: proto::status::detail(&status)
                    .unwrap_or_default()
                    .holder_pid,
            },
            (code, _) => Self::Refused {
                message: status.message().to_owned(),
                code,
            },
        }
    }
}

impl From<PositionsError> for Status {
    fn from(error: PositionsError) -> Self {
        let code = match &error {
            PositionsError::Unavailable { .. } => Code::Unavailable,
            PositionsError::UnknownSlot { .. } => Code::NotFound,
            PositionsError::SlotExists { .. } => Code::AlreadyExists,
            PositionsError::SlotInUse { .. } => Code::FailedPrecondition,
            PositionsError::Invalidated { .. } => Code::DataLoss,
            PositionsError::Refused { code, .. } => *code,
        };
        Self::new(code, error.to_string())
    }
}
