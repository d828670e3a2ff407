//! The listener, with the health and reflection services beside the control service.

use std::time::Duration;

use proto::v1::control_server::ControlServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use super::service::ControlService;

/// Dead peers are noticed by pings; a lease is not what ends a `WatchHead`.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time for calls that are under way at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The control service can't go on.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The listener or a connection's set-up failed.
    #[error("the control service failed")]
    Serve(#[from] tonic::transport::Error),
    /// The descriptors can't be offered.
    #[error("the descriptors of the control service are damaged")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Serves until `shutdown`, then finishes what is under way.
pub async fn serve(
    listener: TcpListener,
    service: ControlService,
    shutdown: CancellationToken,
) -> Result<(), ControlError> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<ControlServer<ControlService>>().await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let stop = shutdown.clone();
    let stopping = async move {
        stop.cancelled_owned().await;
        health
            .set_not_serving::<ControlServer<ControlService>>()
            .await;
    };
    let server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(health_service)
        .add_service(reflection().build_v1()?)
        // What many clients still ask for.
        .add_service(reflection().build_v1alpha()?)
        .add_service(ControlServer::new(service))
        .serve_with_incoming_shutdown(
            service::accept::connections(listener, "decoder.control"),
            stopping,
        );
    let drained = async {
        shutdown.cancelled().await;
        tokio::time::sleep(DRAIN_TIMEOUT).await;
    };
    tokio::select! {
        served = server => Ok(served?),
        () = drained => {
            tracing::warn!("control requests were still under way at shutdown");
            Ok(())
        }
    }
}
