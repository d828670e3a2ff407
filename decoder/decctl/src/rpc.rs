//! Connections to the decoder and to a fanout.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proto::v1::control_client::ControlClient;
use proto::v1::fanout_client::FanoutClient;
use service::config::{Config, Tls};
use tonic::metadata::AsciiMetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

use crate::cli::FanoutArgs;
use crate::error::Error;

/// A batch may hold one row of any size that PostgreSQL can send.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

async fn connect(
    what: &'static str,
    url: &str,
    tls: Option<ClientTlsConfig>,
) -> Result<Channel, Error> {
    let unreachable = |source| Error::Unreachable {
        what,
        url: url.to_owned(),
        source,
    };
    let mut endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(|_| Error::Address {
            what,
            url: url.to_owned(),
        })?
        .connect_timeout(std::time::Duration::from_secs(5));
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls).map_err(unreachable)?;
    }
    endpoint.connect().await.map_err(unreachable)
}

/// The decoder's control service.
pub(crate) async fn control(config: &Config) -> Result<ControlClient<Channel>, Error> {
    let url = format!("http://{}", config.decoder.control);
    Ok(ControlClient::new(
        connect("the decoder", &url, None).await?,
    ))
}

/// Shows with each call who calls.
#[derive(Clone, Debug)]
pub(crate) struct Credentials(Option<AsciiMetadataValue>);

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            let metadata = request.metadata_mut();
            metadata.insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// A fanout: that at `url`, or that of the configuration.
pub(crate) async fn fanout(
    config: &Config,
    url: Option<&str>,
    access: &FanoutArgs,
) -> Result<FanoutClient<InterceptedService<Channel, Credentials>>, Error> {
    let scheme = match config.fanout.tls {
        Tls::Disable => "http",
        Tls::Allow | Tls::Require => "https",
    };
    let own = format!("{scheme}://{}", config.fanout.grpc);
    let url = url.unwrap_or(&own);
    let tls = url.starts_with("https:").then(|| tls(access)).transpose()?;
    let channel = connect("the fanout", url, tls).await?;
    let client = FanoutClient::with_interceptor(channel, credentials(access)?);
    Ok(client.max_decoding_message_size(MESSAGE_BYTES_MAX))
}

fn tls(access: &FanoutArgs) -> Result<ClientTlsConfig, Error> {
    let tls = ClientTlsConfig::new();
    Ok(match &access.root_cert_file {
        Some(path) => tls.ca_certificate(Certificate::from_pem(read(path)?)),
        None => tls.with_native_roots(),
    })
}

fn credentials(access: &FanoutArgs) -> Result<Credentials, Error> {
    let (Some(user), Some(file)) = (&access.user, &access.password_file) else {
        return Ok(Credentials(None));
    };
    let password = String::from_utf8_lossy(&read(file)?).into_owned();
    // As `source.password_file` is read.
    let password = password.trim_end_matches(['\n', '\r']);
    let header = format!("Basic {}", BASE64.encode(format!("{user}:{password}")));
    let mut value = AsciiMetadataValue::try_from(header).map_err(|_| Error::Credentials)?;
    value.set_sensitive(true);
    Ok(Credentials(Some(value)))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}
