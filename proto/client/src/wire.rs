//! Frames over a byte stream, both ways, so that a dropped future loses nothing.

use bytes::{Buf, Bytes, BytesMut};
use pg_proto::wire::{Frame, FrontendMessage};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::buffer::FrameBuffer;
use crate::error::Error;

/// The next frame of `reader`. Cancel safe.
pub(crate) async fn next_frame<'a, R: AsyncRead + Unpin>(
    buffer: &'a mut FrameBuffer,
    reader: &mut R,
    doing: &'static str,
) -> Result<Frame<'a>, Error> {
    let len = frame_len(buffer, reader, doing).await?;
    Ok(buffer.take(len))
}

/// The next frame as owned bytes with its head. Cancel safe.
pub(crate) async fn next_frame_owned<R: AsyncRead + Unpin>(
    buffer: &mut FrameBuffer,
    reader: &mut R,
    doing: &'static str,
) -> Result<Bytes, Error> {
    let len = frame_len(buffer, reader, doing).await?;
    Ok(buffer.take_owned(len))
}

async fn frame_len<R: AsyncRead + Unpin>(
    buffer: &mut FrameBuffer,
    reader: &mut R,
    doing: &'static str,
) -> Result<usize, Error> {
    loop {
        match buffer.first()? {
            Ok(len) => return Ok(len),
            Err(need) => match buffer.fill(reader, need).await {
                Ok(0) => return Err(Error::Closed { doing }),
                Ok(_) => {}
                Err(source) => return Err(Error::Io { doing, source }),
            },
        }
    }
}

/// Bytes to be sent. What a dropped [`Outbox::flush`] did not send goes out with the next one.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pending: BytesMut,
    scratch: Vec<u8>,
}

impl Outbox {
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn queue_message(&mut self, message: &FrontendMessage<'_>) {
        self.queue_with(|out| message.encode(out));
    }

    pub(crate) fn queue_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.scratch.clear();
        write(&mut self.scratch);
        self.pending.extend_from_slice(&self.scratch);
    }

    /// Sends all that is queued. Cancel safe.
    pub(crate) async fn flush<W: AsyncWrite + Unpin>(
        &mut self,
        writer: &mut W,
        doing: &'static str,
    ) -> Result<(), Error> {
        let failed = |source| Error::Io { doing, source };
        while self.pending.has_remaining() {
            if writer.write_buf(&mut self.pending).await.map_err(failed)? == 0 {
                return Err(Error::Closed { doing });
            }
        }
        writer.flush().await.map_err(failed)
    }
}
