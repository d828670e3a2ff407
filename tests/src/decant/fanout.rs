//! One fanout of a log.

use proto::v1::fanout_client::FanoutClient;
use tonic::transport::Channel;

use super::control::connect;
use super::metrics::metric;
use crate::process::Process;
use crate::sql::Endpoint;

/// One fanout and where it listens.
#[derive(Debug)]
pub struct Fanout {
    pub(super) name: String,
    pub(super) process: Option<Process>,
    pub(super) postgres_port: u16,
    pub(super) grpc_port: u16,
    pub(super) http_port: u16,
}

impl Fanout {
    /// Where a PostgreSQL subscriber connects.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::new(self.postgres_port)
    }

    /// The port of its PostgreSQL endpoint.
    pub fn port(&self) -> u16 {
        self.postgres_port
    }

    /// The gRPC address as the configuration has it.
    pub fn grpc_address(&self) -> String {
        format!("127.0.0.1:{}", self.grpc_port)
    }

    /// The gRPC address.
    pub fn grpc_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.grpc_port)
    }

    /// A client of its gRPC service.
    pub async fn client(&self) -> FanoutClient<Channel> {
        FanoutClient::new(connect(&self.grpc_url()).await).max_decoding_message_size(64 << 20)
    }

    /// A metric as its endpoint prints it: the value in the line that begins with `name`, labels included.
    pub async fn metric(&self, name: &str) -> u64 {
        metric(&format!("127.0.0.1:{}", self.http_port), name).await
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("the fanout runs")
    }
}
