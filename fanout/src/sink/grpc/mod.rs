//! The gRPC service `decant.v1.Fanout`, with health and reflection.
//!
//! ```text
//! request ──► feed (one task per stream: Stream ──► Batcher) ──► bounded channel ──► tonic ──► socket
//! ```
//!
//! A client that does not read fills its socket, then the channel of its feed, and then its task waits: it reads
//! no further block. Values of rows are slices of the log's blocks until tonic copies them into its send buffer.

mod batch;
mod convert;
mod endpoint;
mod feed;
mod request;
mod row_filters;
mod service;
mod slots;
mod status;
#[cfg(test)]
mod tests;

/// Checks a request as the service does, for the fuzzer.
#[cfg(feature = "fuzzing")]
pub fn check_request(request: proto::v1::SubscribeRequest) {
    // An error goes to the client.
    let _ = request::Wanted::try_from(request);
}

pub use endpoint::{Endpoint, ServeError};
