//! gRPC connections.

use std::time::Duration;

use proto::v1::control_client::ControlClient;
use proto::v1::{GetStatusRequest, GetStatusResponse};
use tonic::transport::Channel;

pub(super) async fn try_status(url: &str) -> Result<GetStatusResponse, String> {
    let channel = try_connect(url).await?;
    let response = ControlClient::new(channel)
        .get_status(GetStatusRequest {})
        .await
        .map_err(|status| status.to_string())?;
    Ok(response.into_inner())
}

async fn try_connect(url: &str) -> Result<Channel, String> {
    let endpoint = Channel::from_shared(url.to_owned()).map_err(|error| error.to_string())?;
    let endpoint = endpoint.connect_timeout(Duration::from_secs(5));
    endpoint
        .connect()
        .await
        .map_err(|error| format!("{url}: {error:?}"))
}

pub(super) async fn connect(url: &str) -> Channel {
    try_connect(url)
        .await
        .unwrap_or_else(|error| panic!("cannot connect: {error}"))
}
