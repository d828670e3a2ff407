//! Connections to the decoder and to a fanout.

use proto::v1::control_client::ControlClient;
use proto::v1::fanout_client::FanoutClient;
use tonic::transport::{Channel, Endpoint};

use crate::error::Error;

async fn connect(what: &'static str, url: &str) -> Result<Channel, Error> {
    let endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(|_| Error::Address {
            what,
            url: url.to_owned(),
        })?
        .connect_timeout(std::time::Duration::from_secs(5));
    endpoint
        .connect()
        .await
        .map_err(|source| Error::Unreachable {
            what,
            url: url.to_owned(),
            source,
        })
}

/// The decoder's control service.
pub(crate) async fn control(
    config: &service::config::Config,
) -> Result<ControlClient<Channel>, Error> {
    let url = format!("http://{}", config.decoder.control);
    Ok(ControlClient::new(connect("the decoder", &url).await?))
}

/// A fanout.
pub(crate) async fn fanout(url: &str) -> Result<FanoutClient<Channel>, Error> {
    /// A batch may hold one row of any size that PostgreSQL can send.
    const MESSAGE_BYTES_MAX: usize = 1 << 30;
    let client = FanoutClient::new(connect("the fanout", url).await?);
    Ok(client.max_decoding_message_size(MESSAGE_BYTES_MAX))
}
