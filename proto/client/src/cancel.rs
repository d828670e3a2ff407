//! Cancelling a query from outside its connection.

use pg_proto::wire::StartupPacket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::connect::{open, refused};
use crate::error::{ConnectError, Error};
use crate::options::ConnectOptions;

/// What a server needs to be told to cancel a connection's query.
#[derive(Clone, Debug)]
pub struct CancelToken {
    options: ConnectOptions,
    encrypted: bool,
    pid: u32,
    key: Vec<u8>,
}

impl CancelToken {
    pub(crate) fn new(options: ConnectOptions, encrypted: bool, pid: u32, key: &[u8]) -> Self {
        Self {
            options,
            encrypted,
            pid,
            key: key.to_vec(),
        }
    }

    /// The server process that works for the connection.
    pub(crate) const fn process_id(&self) -> u32 {
        self.pid
    }

    /// Asks the server, over a connection of its own, to cancel what the connection is doing now, if anything.
    /// Returns when the server has seen the request. It never says what came of it.
    pub async fn cancel(&self) -> Result<(), ConnectError> {
        let limited = tokio::time::timeout(self.options.connect_timeout, self.request()).await;
        limited.unwrap_or_else(|_| {
            Err(ConnectError::Timeout {
                address: self.options.address(),
                after: self.options.connect_timeout,
            })
        })
    }

    async fn request(&self) -> Result<(), ConnectError> {
        let lost = |source| {
            let doing = "cancelling a query";
            refused(&self.options, Error::Io { doing, source })
        };
        let mut transport = Box::pin(open(&self.options, !self.encrypted)).await?;
        let packet = StartupPacket::CancelRequest {
            pid: self.pid,
            key: self.key.clone(),
        };
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        transport.write_all(&bytes).await.map_err(lost)?;
        transport.flush().await.map_err(lost)?;
        // The server closes without an answer, and may do so abruptly.
        let mut nothing = [0; 1];
        let _ = transport.read(&mut nothing).await;
        Ok(())
    }
}
