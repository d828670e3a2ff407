//! The body of a stream's response.
//!
//! tonic would build each message and copy it into a buffer of its own. The messages here are bytes already, gRPC's
//! prefix included, perhaps shared with other streams. So a response's body is exchanged for one that sends them as they
//! are; everything else of the exchange with the client is tonic's.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

/// Whole messages, and the error that ends them, if one does.
pub(super) type Messages = mpsc::Receiver<Result<Bytes, Status>>;

/// The body.
struct MessagesBody {
    messages: Messages,
    ended: bool,
}

impl http_body::Body for MessagesBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let status = match ready!(self.messages.poll_recv(context)) {
            Some(Ok(message)) => return Poll::Ready(Some(Ok(Frame::data(message)))),
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        self.ended = true;
        Poll::Ready(Some(Ok(Frame::trailers(trailers(status)))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

fn trailers(status: Status) -> HeaderMap {
    let mut headers = HeaderMap::new();
    match status.add_header(&mut headers) {
        Ok(()) => headers,
        // Its text can't be a header's value.
        Err(why) => {
            let mut headers = HeaderMap::new();
            // Says nothing that could fail again.
            let _ = Status::new(status.code(), why.code().description()).add_header(&mut headers);
            headers
        }
    }
}

/// Carries the messages from the method's answer to [`OwnBody`].
#[derive(Clone, Debug)]
struct Exchange(Arc<Mutex<Option<Messages>>>);

/// What tonic is told to send: nothing.
pub(super) type Nothing = tokio_stream::Empty<Result<proto::v1::SubscribeResponse, Status>>;

/// A method's answer that is these messages.
pub(super) fn answer(messages: Messages) -> tonic::Response<Nothing> {
    let mut response = tonic::Response::new(tokio_stream::empty());
    let exchange = Exchange(Arc::new(Mutex::new(Some(messages))));
    response.extensions_mut().insert(exchange);
    response
}

/// A service whose answers may be [`answer`]s.
#[derive(Clone, Debug)]
pub(super) struct OwnBody<S>(pub(super) S);

impl<S> Service<Request<Body>> for OwnBody<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move {
            let mut response = answer.await?;
            let exchange = response.extensions_mut().remove::<Exchange>();
            if let Some(messages) = exchange.and_then(|exchange| exchange.0.lock().take()) {
                *response.body_mut() = Body::new(MessagesBody {
                    messages,
                    ended: false,
                });
            }
            Ok(response)
        })
    }
}

impl<S: NamedService> NamedService for OwnBody<S> {
    const NAME: &'static str = S::NAME;
}
