//! SQL: one statement is answered here, all others are passed to the source and its answers back, unread.

use std::io;

use pg_proto::wire::{
    BackendMessage, ErrorFields, FieldDescription, FrontendMessage, ReplicationMode,
    TransactionStatus, sqlstate,
};

use super::client::ClientFrame;
use super::session::{Flow, Session};
use super::upstream::lost;

/// The first statement of every PostgreSQL subscriber and of libpq's replication tools.
const CLEAR_SEARCH_PATH: &str = "SELECT pg_catalog.set_config('search_path', '', false);";
/// Answers are handed to the client's socket in pieces of about this size.
const RELAY_CHUNK: usize = 64 << 10;

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
    /// Runs what is no replication command.
    pub(super) async fn sql(&mut self, text: &[u8]) -> io::Result<Flow> {
        if self.login.mode == ReplicationMode::Physical {
            return self
                .conclude(Err(ErrorFields::error(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    "cannot execute SQL commands in WAL sender for physical replication",
                )))
                .await;
        }
        if is_clear_search_path(text) {
            self.upstream.replay(CLEAR_SEARCH_PATH);
            if !self.upstream.is_open() {
                return Ok(self.clear_search_path());
            }
        }
        self.proxy(text).await
    }

    fn clear_search_path(&mut self) -> Flow {
        let column = FieldDescription::text("set_config");
        self.row(vec![column], &[Some("")], "SELECT 1");
        if self.source.version.reports_search_path() && self.parameters.update("search_path", "") {
            self.client.sender.put(&BackendMessage::ParameterStatus {
                name: b"search_path",
                value: b"",
            });
        }
        self.client.sender.ready(TransactionStatus::Idle);
        Flow::Next
    }

    /// Has the source answer.
    pub(super) async fn proxy(&mut self, text: &[u8]) -> io::Result<Flow> {
        let was_open = self.upstream.is_open();
        if let Err(error) = self.upstream.open().await {
            return self.conclude(Err(error)).await;
        }
        if !was_open {
            self.report_differences().await;
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
    async fn report_differences(&mut self) {
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
        let cancelled = self.backend.cancelled();
        let mut cancel = std::pin::pin!(cancelled.notified());
        cancel.as_mut().enable();
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
                () = cancel.as_mut() => {
                    let token = connection.cancel_token();
                    tokio::spawn(async move { token.cancel().await });
                    cancel.set(cancelled.notified());
                    cancel.as_mut().enable();
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
                () = self.shared.shutdown.cancelled() => return Ok(Err(ErrorFields::fatal(
                    sqlstate::ADMIN_SHUTDOWN,
                    "terminating connection due to administrator command",
                ))),
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

    fn note_parameter(&mut self, frame: &pg_client::RawFrame) {
        if let Ok(BackendMessage::ParameterStatus { name, value }) =
            BackendMessage::decode(frame.as_frame())
        {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            self.parameters.update(&text(name), &text(value));
        }
    }
}

fn is_fatal(frame: &pg_client::RawFrame) -> bool {
    ErrorFields::decode(frame.body()).is_ok_and(|error| error.is_fatal())
}

/// Whether it is [`CLEAR_SEARCH_PATH`], with whatever white space.
fn is_clear_search_path(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| {
        text.split_whitespace()
            .eq(CLEAR_SEARCH_PATH.split_whitespace())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_statement_is_known_by_its_text() {
        assert!(is_clear_search_path(CLEAR_SEARCH_PATH.as_bytes()));
        assert!(is_clear_search_path(
            b" SELECT  pg_catalog.set_config('search_path',\n '', false); "
        ));
        assert!(!is_clear_search_path(
            b"SELECT pg_catalog.set_config('search_path', 'x', false);"
        ));
        assert!(!is_clear_search_path(b"\xff"));
    }
}
