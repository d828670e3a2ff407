//! The ingest thread as seen from the source task.

use std::sync::Arc;

use bytes::Bytes;
use pg_proto::Lsn;
use storage_format::catalog::ServerParameters;
use tokio::sync::{Semaphore, oneshot};

use super::thread::Input;
use crate::mailbox::{Gone, Sender};

/// Bytes of the stream that may wait for the ingest thread. A message that is larger goes alone.
const QUEUE_BYTES: u32 = 4 << 20;

/// The ingest thread has ended, and says itself why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the decoder is stopping")]
pub(crate) struct Stopped;

impl From<Gone> for Stopped {
    fn from(_: Gone) -> Self {
        Self
    }
}

/// The way into the log.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    inputs: Sender<Input>,
    permits: Arc<Semaphore>,
}

impl Pipeline {
    pub(crate) fn new(inputs: Sender<Input>) -> Self {
        let permits = usize::try_from(QUEUE_BYTES).unwrap_or(usize::MAX);
        Self {
            inputs,
            permits: Arc::new(Semaphore::new(permits)),
        }
    }

    /// Forgets what is incomplete; the log's end, once everything before it is durable. That is where the next stream
    /// has to start.
    pub(crate) async fn reset(&self) -> Result<Lsn, Stopped> {
        let (reply, end) = oneshot::channel();
        self.inputs.send(Input::Reset { reply })?;
        end.await.map_err(|_| Stopped)
    }

    /// The stream of a new connection begins, after a [`Self::reset`].
    pub(crate) fn begin(
        &self,
        parameters: ServerParameters,
        timeline: u32,
    ) -> Result<Session<'_>, Stopped> {
        self.inputs.send(Input::Begin {
            parameters,
            timeline,
        })?;
        Ok(Session { pipeline: self })
    }
}

/// One connection's stream on its way into the log.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    pipeline: &'a Pipeline,
}

impl Session<'_> {
    /// Takes whole frames; waits as long as too much is waiting already.
    pub(crate) async fn batch(&self, frames: Bytes) -> Result<(), Stopped> {
        let bytes = u32::try_from(frames.len())
            .unwrap_or(u32::MAX)
            .min(QUEUE_BYTES);
        let permits = Arc::clone(&self.pipeline.permits);
        let permit = permits
            .acquire_many_owned(bytes)
            .await
            .map_err(|_| Stopped)?;
        self.pipeline.inputs.send(Input::Batch { frames, permit })?;
        Ok(())
    }
}
