//! The socket of one client: packets and frames in, messages out.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use pg_proto::wire::{
    BackendMessage, ErrorFields, Frame, FrameError, FrontendMessage, Split, TransactionStatus,
    split_frame,
};
use pg_proto::{ReadError, wire::sqlstate};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The longest message that a client may send: SQL text, or a piece of a COPY. Memory is taken as bytes come,
/// never for a length that is only claimed.
const MAX_CLIENT_MESSAGE: usize = 64 << 20;
/// Room for the next read; a client's ordinary message is 39 bytes.
const READ_CHUNK: usize = 4 << 10;
/// What a client may send ahead while it is being looked whether it is still there.
const KEPT_WHILE_BUSY: usize = 64 << 10;

/// The reading half, type-erased: TCP or TLS.
pub(super) type Input = Box<dyn AsyncRead + Send + Sync + Unpin>;
/// The writing half.
pub(super) type Output = Box<dyn AsyncWrite + Send + Sync + Unpin>;

/// Nothing further can be read from the client.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReceiveError {
    /// The connection broke.
    #[error("the connection broke")]
    Io(#[from] io::Error),
    /// It could not be encrypted.
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
    /// The client began with TLS, and there is none.
    #[error("the client began with TLS, which fanout.tls disables")]
    NoTls,
    /// A client that begins with TLS must name the protocol.
    #[error("received direct SSL connection request without ALPN protocol negotiation extension")]
    NoAlpn,
    /// What the client sends is not protocol 3.
    #[error("the client's message has no legal length")]
    Frame(#[from] FrameError),
    /// A message whose content is wrong.
    #[error("the client's message is malformed")]
    Malformed(#[from] ReadError),
}

impl ReceiveError {
    /// What the client is told, if telling makes sense.
    pub(super) fn report(&self) -> Option<ErrorFields> {
        match self {
            Self::Io(_) | Self::Tls(_) | Self::NoTls | Self::NoAlpn => None,
            Self::Frame(_) => Some(ErrorFields::fatal(
                sqlstate::PROTOCOL_VIOLATION,
                "invalid message length",
            )),
            Self::Malformed(error) => Some(
                ErrorFields::fatal(sqlstate::PROTOCOL_VIOLATION, "invalid message format")
                    .with_detail(error.to_string()),
            ),
        }
    }
}

/// One frame of a client.
#[derive(Clone, Debug)]
pub(super) struct ClientFrame {
    tag: u8,
    body: Bytes,
}

impl ClientFrame {
    /// The type byte.
    pub(super) const fn tag(&self) -> u8 {
        self.tag
    }

    /// The frame, to decode it or to pass it on.
    pub(super) fn as_frame(&self) -> Frame<'_> {
        Frame {
            tag: self.tag,
            body: &self.body,
        }
    }

    /// What it says; `None` for a type byte that no client may send.
    pub(super) fn message(&self) -> Option<Result<FrontendMessage<'_>, ReadError>> {
        const KNOWN: &[u8] = b"QpdcfXSHFPBDEC";
        KNOWN
            .contains(&self.tag)
            .then(|| FrontendMessage::decode(self.as_frame()))
    }
}

/// Reads what the client sends.
pub(super) struct Receiver {
    input: Input,
    buffer: BytesMut,
}

impl Receiver {
    pub(super) fn new(input: Input) -> Self {
        Self {
            input,
            buffer: BytesMut::new(),
        }
    }

    /// The next frame; `None` at the end of the connection. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<ClientFrame>, ReceiveError> {
        self.next_within(MAX_CLIENT_MESSAGE).await
    }

    /// The same of a client that may not send as much.
    pub(super) async fn next_within(
        &mut self,
        max: usize,
    ) -> Result<Option<ClientFrame>, ReceiveError> {
        loop {
            if let Split::Whole { frame, len } = split_frame(&self.buffer, max)? {
                let (tag, head) = (frame.tag, len - frame.body.len());
                let mut body = self.buffer.split_to(len).freeze();
                body.advance(head);
                return Ok(Some(ClientFrame { tag, body }));
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// Returns when the client has left. What it sends meanwhile is kept, up to a limit. Cancel safe.
    pub(super) async fn gone(&mut self) {
        while self.buffer.len() < KEPT_WHILE_BUSY {
            if !matches!(self.fill().await, Ok(true)) {
                return;
            }
        }
        std::future::pending().await
    }

    async fn fill(&mut self) -> Result<bool, ReceiveError> {
        self.buffer.reserve(READ_CHUNK);
        Ok(self.input.read_buf(&mut self.buffer).await? > 0)
    }
}

/// Writes to the client. Messages gather until [`Self::flush`].
pub(super) struct Sender {
    output: Output,
    pending: Vec<u8>,
}

impl Sender {
    pub(super) const fn new(output: Output) -> Self {
        Self {
            output,
            pending: Vec::new(),
        }
    }

    /// Appends a message.
    pub(super) fn put(&mut self, message: &BackendMessage<'_>) {
        message.encode(&mut self.pending);
    }

    /// Appends CommandComplete.
    pub(super) fn complete(&mut self, tag: &str) {
        self.put(&BackendMessage::CommandComplete(tag.as_bytes()));
    }

    /// Appends ReadyForQuery.
    pub(super) fn ready(&mut self, status: TransactionStatus) {
        self.put(&BackendMessage::ReadyForQuery(status));
    }

    /// Appends ErrorResponse.
    pub(super) fn error(&mut self, error: ErrorFields) {
        self.put(&BackendMessage::ErrorResponse(error));
    }

    /// Appends bytes that are whole messages.
    pub(super) fn put_raw(&mut self, frames: &[u8]) {
        self.pending.extend_from_slice(frames);
    }

    /// How much waits.
    pub(super) fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Takes what waits.
    pub(super) fn take_pending(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.pending))
    }

    /// Writes what waits. The buffer is given back, so that an idle connection holds none.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.output.write_all(&pending).await?;
        self.output.flush().await
    }

    /// Tells the client that nothing more comes: over TLS it could not know otherwise that this is the end.
    pub(super) async fn close(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.output.shutdown().await
    }

    /// The socket itself, for the stream of changes.
    pub(super) const fn output(&mut self) -> &mut Output {
        &mut self.output
    }
}

/// Both directions.
pub(super) struct Client {
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
}

impl Client {
    pub(super) fn new(input: Input, output: Output) -> Self {
        Self {
            receiver: Receiver::new(input),
            sender: Sender::new(output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(bytes: &'static [u8]) -> Receiver {
        Receiver::new(Box::new(bytes))
    }

    #[tokio::test]
    async fn frames_come_whole_and_then_the_end() {
        let mut receiver = client(b"Q\0\0\0\x06;\0X\0\0\0\x04");
        let frame = receiver.next().await.unwrap().unwrap();
        assert_eq!(
            frame.message().unwrap().unwrap(),
            FrontendMessage::Query(b";")
        );
        let frame = receiver.next().await.unwrap().unwrap();
        assert_eq!(
            frame.message().unwrap().unwrap(),
            FrontendMessage::Terminate
        );
        assert!(receiver.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_hostile_length_is_refused_at_once() {
        for bytes in [&b"Q\xff\xff\xff\xff"[..], b"Q\0\0\0\x03"] {
            let error = client(bytes).next().await.unwrap_err();
            assert_eq!(error.report().unwrap().code(), "08P01");
        }
    }
}
