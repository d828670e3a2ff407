//! Listening.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proto::v1::fanout_server::FanoutServer;
use service::http::BindError;
use tokio::net::TcpListener;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use super::body::OwnBody;
use super::connection;
use super::service::FanoutService;
use crate::sink::Services;

/// A connection over which nothing came for this long is asked whether it lives.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// It has this long to answer.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of one stream that are under way without the client having taken them.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// The gRPC service could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The server failed.
    #[error("the gRPC service failed")]
    Transport(#[from] tonic::transport::Error),
    /// There are no random bytes.
    #[error("the system gives no random bytes")]
    Random(#[from] rustls::Error),
    /// The reflection service can't be built.
    #[error("the gRPC descriptors can't be read")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// The gRPC service's listener.
#[derive(Debug)]
pub struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
    services: Services,
}

impl Endpoint {
    /// Listens on `address`.
    pub async fn bind(address: SocketAddr, services: Services) -> Result<Self, BindError> {
        let listener = service::http::bind(address, "fanout.grpc").await?;
        let address = listener.local_addr().unwrap_or(address);
        Ok(Self {
            listener,
            address,
            services,
        })
    }

    /// Where it really listens.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` is cancelled and the streams have ended: each gets what is there by then.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), ServeError> {
        let (health, health_service) = tonic_health::server::health_reporter();
        let guard = Arc::clone(&self.services.guard);
        let connections = connection::accept(self.listener, guard, shutdown.clone());
        let fanout = FanoutServer::new(FanoutService::new(self.services, shutdown.clone())?);
        health.set_serving::<FanoutServer<FanoutService>>().await;
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .add_service(health_service)
            .add_service(reflection().build_v1()?)
            // What many clients still ask for.
            .add_service(reflection().build_v1alpha()?)
            .add_service(OwnBody(fanout))
            .serve_with_incoming_shutdown(
                ReceiverStream::new(connections),
                shutdown.cancelled_owned(),
            )
            .await?;
        Ok(())
    }
}
