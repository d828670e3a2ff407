//! A statement of the simple protocol at the source: its answer goes to the client unread.

use std::io;

use pg_proto::wire::{BackendMessage, ErrorFields, FrontendMessage, sqlstate};

use super::super::backends::Cancelling;
use super::super::client::ClientFrame;
use super::super::session::{Flow, Session, administrator};
use super::super::upstream::lost;

/// Answers are handed to the client's socket in pieces of about this size.
pub(super) const RELAY_CHUNK: usize = 64 << 10;

/// How an answer of the source ended.
enum Relayed {
    /// With its ReadyForQuery, which was passed on.
    Ready,
    /// With a FATAL error of its own, which was passed on.
    Fatal,
    /// The client is gone.
    Gone,
}

impl Session<'_> {
    /// Has the source answer.
    pub(crate) async fn proxy(&mut self, text: &[u8]) -> io::Result<Flow> {
        if let Err(error) = self.reach_source().await {
            return self.conclude(Err(error)).await;
        }
        match Box::pin(self.relay(text)).await? {
            Ok(Relayed::Ready) => Ok(Flow::Next),
            Ok(Relayed::Fatal | Relayed::Gone) => Ok(Flow::End),
            Err(error) => {
                self.upstream.drop_connection();
                self.conclude(Err(error)).await
            }
        }
    }

    /// Reported settings that are different at the source from what the client was told at log-in.
    pub(super) async fn report_differences(&mut self) {
        let Ok(connection) = self.upstream.open().await else {
            return;
        };
        for (name, value) in connection.parameters() {
            if self.parameters.find(name).is_some() && self.parameters.update(name, value) {
                self.client.sender.put(&BackendMessage::ParameterStatus {
                    name: name.as_bytes(),
                    value: value.as_bytes(),
                });
            }
        }
    }

    async fn relay(&mut self, text: &[u8]) -> io::Result<Result<Relayed, ErrorFields>> {
        let mut cancelling = Cancelling::new(self.backend.cancelled());
        match self.upstream.open().await {
            Ok(connection) => {
                if let Err(error) = connection.send_query_raw(text).await {
                    return Ok(Err(lost(&error)));
                }
            }
            Err(error) => return Ok(Err(error)),
        }
        let mut copying_in = false;
        let mut fatal = false;
        loop {
            let connection = match self.upstream.open().await {
                Ok(connection) => connection,
                Err(error) => return Ok(Err(error)),
            };
            let pending = self.client.sender.pending_len();
            tokio::select! {
                biased;
                () = cancelling.next() => {
                    let token = connection.cancel_token();
                    tokio::spawn(async move { token.cancel().await });
                }
                frame = connection.next_frame(), if pending < RELAY_CHUNK => {
                    let frame = match frame {
                        Ok(frame) => frame,
                        Err(_) if fatal => return Ok(Ok(Relayed::Fatal)),
                        Err(error) => return Ok(Err(lost(&error))),
                    };
                    self.client.sender.put_raw(&frame.wire_bytes());
                    match frame.tag() {
                        b'Z' => return Ok(Ok(Relayed::Ready)),
                        b'G' => copying_in = true,
                        b'E' => {
                            self.had_error = true;
                            copying_in = false;
                            fatal = is_fatal(&frame);
                        }
                        b'C' => {
                            copying_in = false;
                            self.upstream.completed(frame.body().strip_suffix(b"\0").unwrap_or_default());
                        }
                        b'S' => self.note_parameter(&frame),
                        _ => {}
                    }
                }
                () = std::future::ready(()), if pending > 0 => self.client.sender.flush().await?,
                received = self.client.receiver.next(), if copying_in => match received {
                    Ok(Some(piece)) => match self.copy_in(&piece).await {
                        Ok(true) => {}
                        Ok(false) => return Ok(Ok(Relayed::Gone)),
                        Err(error) => return Ok(Err(error)),
                    },
                    Ok(None) | Err(_) => return Ok(Ok(Relayed::Gone)),
                },
                () = self.shared.shutdown.cancelled() => return Ok(Err(administrator())),
                () = self.terminated.cancelled() => return Ok(Err(administrator())),
            }
        }
    }

    /// Passes on a message of a client that sends a COPY's data. `false`: it leaves.
    async fn copy_in(&mut self, piece: &ClientFrame) -> Result<bool, ErrorFields> {
        let message = match piece.message() {
            Some(Ok(FrontendMessage::Terminate)) => return Ok(false),
            Some(Ok(message)) => message,
            Some(Err(_)) | None => {
                return Err(ErrorFields::fatal(
                    sqlstate::PROTOCOL_VIOLATION,
                    format!(
                        "unexpected message type 0x{:02X} during COPY from stdin",
                        piece.tag()
                    ),
                ));
            }
        };
        let connection = self.upstream.open().await?;
        connection
            .send_raw(&message)
            .await
            .map_err(|error| lost(&error))?;
        Ok(true)
    }

    pub(super) fn note_parameter(&mut self, frame: &pg_client::RawFrame) {
        if let Ok(BackendMessage::ParameterStatus { name, value }) =
            BackendMessage::decode(frame.as_frame())
        {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            self.parameters.update(&text(name), &text(value));
        }
    }
}

pub(super) fn is_fatal(frame: &pg_client::RawFrame) -> bool {
    ErrorFields::decode(frame.body()).is_ok_and(|error| error.is_fatal())
}
