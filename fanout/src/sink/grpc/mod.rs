//! The gRPC service `decant.v1.Fanout`, with health and reflection.
//!
//! ```text
//! request ──► feed (one task per stream: Stream ──► Batcher) ──► bounded channel ──► body ──► socket
//! ```
//!
//! [`connection`] has TLS, [`caller`] who calls.
//!
//! A client that does not read fills its socket, then the channel of its feed, and then its task waits: it reads
//! no further block. Batches are written as the protobuf that is sent, from the memory of the log's blocks, and not copied again;
//! those who asked for the same share them.

mod batch;
mod body;
mod caller;
mod connection;
mod convert;
mod encode;
mod endpoint;
mod feed;
mod message;
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
