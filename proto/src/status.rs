//! Details of a failed status, in the form that gRPC's tools expect: a `google.rpc.Status` whose details are `Any`s.

use bytes::Bytes;
use prost::Message;
use prost_types::Any;
use tonic::{Code, Status};

use crate::v1::ErrorDetail;

const ERROR_DETAIL_URL: &str = "type.googleapis.com/decant.v1.ErrorDetail";

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// A status with what there is to be said beside its message.
#[must_use]
pub fn with_detail(code: Code, message: impl Into<String>, detail: &ErrorDetail) -> Status {
    let message = message.into();
    let details = RpcStatus {
        code: code.into(),
        message: message.clone(),
        details: vec![Any {
            type_url: ERROR_DETAIL_URL.to_owned(),
            value: detail.encode_to_vec(),
        }],
    };
    Status::with_details(code, message, Bytes::from(details.encode_to_vec()))
}

/// What a status says beside its message, if it does.
#[must_use]
pub fn detail(status: &Status) -> Option<ErrorDetail> {
    let details = RpcStatus::decode(status.details()).ok()?.details;
    let any = details
        .iter()
        .find(|any| any.type_url == ERROR_DETAIL_URL)?;
    ErrorDetail::decode(any.value.as_slice()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_comes_back() {
        let range = ErrorDetail {
            oldest_lsn: 5,
            newest_lsn: 9,
            ..ErrorDetail::default()
        };
        let status = with_detail(Code::OutOfRange, "gone", &range);
        assert_eq!(
            (status.code(), status.message()),
            (Code::OutOfRange, "gone")
        );
        assert_eq!(detail(&status), Some(range));
        assert_eq!(detail(&Status::out_of_range("gone")), None);
    }
}
