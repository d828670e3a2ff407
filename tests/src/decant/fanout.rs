//! One fanout of a log.

use proto::v1::fanout_client::FanoutClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Channel;

use super::control::connect;
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
        let text = self.metrics().await;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        let value = lines.find_map(|rest| rest.strip_prefix(' ')?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no metric {name} in:\n{text}"))
    }

    async fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.http_port))
            .await
            .expect("metrics are served");
        let request = b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).await.expect("a request is taken");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .await
            .expect("an answer comes");
        answer
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("the fanout runs")
    }
}
