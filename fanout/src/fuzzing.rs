//! Parsers of what clients send, for the fuzzer in `tests/fuzz`. What they find in it is theirs; here only matters that
//! they come to an end.

pub use crate::sink::grpc::check_request;
pub use crate::sink::walsender::fuzzing::{check_options, read_statement};
