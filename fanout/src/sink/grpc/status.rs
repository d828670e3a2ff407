//! Errors as gRPC says them.

use pg_proto::Lsn;
use proto::v1::ErrorDetail;
use tonic::{Code, Status};

use crate::error::StreamError;
use crate::sink::PublicationsError;

impl From<StreamError> for Status {
    fn from(error: StreamError) -> Self {
        let message = service::cli::causes(&error);
        let is_damage = error.is_damage();
        match error {
            StreamError::NotKept { oldest, newest, .. }
            | StreamError::NotReached { oldest, newest, .. } => {
                out_of_range(message, oldest, newest)
            }
            StreamError::UnknownPublication { .. } => Self::not_found(message),
            StreamError::Refused(refusal) if refusal.is_of_postgresql() => {
                Self::failed_precondition(message)
            }
            StreamError::Refused(refusal) if refusal.is_denial() => {
                Self::permission_denied(message)
            }
            StreamError::Refused(refusal) if refusal.is_of_filter() => {
                Self::failed_precondition(message)
            }
            StreamError::Refused(_) => Self::unimplemented(message),
            StreamError::RowFilter(_) => Self::failed_precondition(message),
            StreamError::Evaluate(_) => Self::unavailable(message),
            // Another attempt helps only if nothing is damaged.
            StreamError::Log(_) if !is_damage => Self::internal(message),
            StreamError::Log(_)
            | StreamError::Catalog(_)
            | StreamError::Unreadable { .. }
            | StreamError::Broken { .. } => Self::data_loss(message),
            StreamError::ShuttingDown => Self::unavailable(message),
        }
    }
}

impl From<PublicationsError> for Status {
    fn from(error: PublicationsError) -> Self {
        match error {
            PublicationsError::Stream(error) => error.into(),
            other => Self::unavailable(service::cli::causes(&other)),
        }
    }
}

fn out_of_range(message: String, oldest: Lsn, newest: Lsn) -> Status {
    let detail = ErrorDetail {
        oldest_lsn: oldest.0,
        newest_lsn: newest.0,
        ..ErrorDetail::default()
    };
    proto::status::with_detail(Code::OutOfRange, message, &detail)
}
