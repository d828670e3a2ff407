//! One stream by a fanout's gRPC service.

use std::sync::Arc;

use parking_lot::Mutex;
use proto::v1::subscribe_request::Start;
use proto::v1::{SubscribeOptions, SubscribeRequest};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Streaming};

use super::connection::Failure;
use super::frames::Tally;
use super::grpc_codec::CountingCodec;
use super::program::Watch;
use super::{Plan, Subscription};

const METHOD: &str = "/decant.v1.Fanout/Subscribe";
/// As much as a socket's buffers hold: HTTP/2's own default of 64 KB would be what is measured otherwise.
const WINDOW_BYTES: u32 = 4 << 20;
/// As long as a batch, where HTTP/2's own default is 16 KB.
const FRAME_BYTES: u32 = 128 << 10;
const MESSAGE_BYTES: usize = 256 << 20;
/// The word in [`Plan::options`] that asks for the messages as PostgreSQL made them instead of separate columns.
pub(crate) const RAW: &str = "raw";

/// A stream that has begun.
pub(super) struct GrpcStream {
    stream: Streaming<()>,
    tally: Arc<Mutex<Tally>>,
    watch: Watch,
}

/// Asks for a stream on a connection of its own.
pub(super) async fn start(
    url: &str,
    subscription: &Subscription,
    plan: &Plan,
    tally: Arc<Mutex<Tally>>,
    watch: Watch,
) -> Result<GrpcStream, Failure> {
    let failed = |error: tonic::transport::Error| Failure::Grpc(error.to_string());
    let channel = Channel::from_shared(url.to_owned())
        .map_err(|error| Failure::Grpc(error.to_string()))?
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .connect()
        .await
        .map_err(failed)?;
    let mut client = Grpc::new(channel).max_decoding_message_size(MESSAGE_BYTES);
    client.ready().await.map_err(failed)?;
    let request = SubscribeRequest {
        start: Some(Start::Slot(subscription.slot.clone())),
        publications: vec![subscription.publication.clone()],
        options: Some(SubscribeOptions {
            raw: plan.options == RAW,
            ..SubscribeOptions::default()
        }),
        ..SubscribeRequest::default()
    };
    let codec = CountingCodec(Arc::clone(&tally));
    let path = PathAndQuery::from_static(METHOD);
    let response = client
        .server_streaming(Request::new(request), path, codec)
        .await
        .map_err(|status| Failure::Grpc(status.to_string()))?;
    Ok(GrpcStream {
        stream: response.into_inner(),
        tally,
        watch,
    })
}

impl GrpcStream {
    /// Receives until the server ends it.
    pub(super) async fn run(mut self) -> Failure {
        loop {
            self.watch.note(self.tally.lock().position);
            tokio::select! {
                message = self.stream.message() => match message {
                    Ok(Some(())) => {}
                    Ok(None) => return Failure::Grpc("it ended the stream".to_owned()),
                    Err(status) => return Failure::Grpc(status.to_string()),
                },
                () = self.watch.changed() => {}
            }
        }
    }
}
