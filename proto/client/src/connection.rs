//! An established connection outside the copy-both phase.

use std::collections::BTreeMap;

use bytes::Bytes;
use pg_proto::wire::{
    ErrorFields, ExtendedQuery, FRAME_HEAD_LEN, Frame, FrontendMessage, TransactionStatus,
    put_frame,
};
use tokio::io::AsyncWriteExt;

use crate::buffer::FrameBuffer;
use crate::cancel::CancelToken;
use crate::connect::{Established, establish};
use crate::copy_both::CopyBoth;
use crate::error::{ConnectError, Error};
use crate::options::ConnectOptions;
use crate::query::{Answer, Next, QueryResult};
use crate::session::{Session, server_error};
use crate::transport::Transport;
use crate::wire::{Outbox, next_frame, next_frame_owned};

const QUERYING: &str = "querying";

/// No formats of parameters, no parameters, no formats of results.
const NO_VALUES: &[u8] = &[0; 6];

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    pub(crate) transport: Transport,
    pub(crate) buffer: FrameBuffer,
    pub(crate) outbox: Outbox,
    pub(crate) session: Session,
    pub(crate) cancel: CancelToken,
    /// Queries whose ReadyForQuery has not been read.
    unanswered: usize,
}

/// A frame of the server, to be passed on as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawFrame {
    bytes: Bytes,
}

impl RawFrame {
    /// The type byte.
    #[must_use]
    pub fn tag(&self) -> u8 {
        self.bytes.first().copied().unwrap_or_default()
    }

    /// What follows the length.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.bytes.get(FRAME_HEAD_LEN..).unwrap_or_default()
    }

    /// The whole frame as it travels.
    #[must_use]
    pub fn wire_bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// The frame, to decode it.
    #[must_use]
    pub fn as_frame(&self) -> Frame<'_> {
        Frame {
            tag: self.tag(),
            body: self.body(),
        }
    }
}

impl Connection {
    /// Connects, authenticates and waits until the server is ready for a query.
    pub async fn connect(options: &ConnectOptions) -> Result<Self, ConnectError> {
        let Established {
            transport,
            buffer,
            outbox,
            session,
        } = establish(options).await?;
        let encrypted = transport.is_encrypted();
        let cancel = CancelToken::new(options.clone(), encrypted, session.pid, &session.key);
        Ok(Self::from_parts(transport, buffer, outbox, session, cancel))
    }

    pub(crate) const fn from_parts(
        transport: Transport,
        buffer: FrameBuffer,
        outbox: Outbox,
        session: Session,
        cancel: CancelToken,
    ) -> Self {
        Self {
            transport,
            buffer,
            outbox,
            session,
            cancel,
            unanswered: 0,
        }
    }

    /// What the server reported about its settings, as of the last frame read.
    #[must_use]
    pub const fn parameters(&self) -> &BTreeMap<String, String> {
        &self.session.parameters
    }

    /// One of them.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.session.parameters.get(name).map(String::as_str)
    }

    /// The server process, as `pg_stat_activity` shows it.
    #[must_use]
    pub const fn backend_pid(&self) -> u32 {
        self.session.pid
    }

    /// The state of the transaction, as of the last ReadyForQuery.
    #[must_use]
    pub const fn transaction_status(&self) -> TransactionStatus {
        self.session.status
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        self.transport.is_encrypted()
    }

    /// Whether authentication was bound to the TLS connection (SCRAM-SHA-256-PLUS): nobody stands in between.
    #[must_use]
    pub const fn is_channel_bound(&self) -> bool {
        self.session.channel_bound
    }

    /// The notices that came since the last call, at most the newest 64.
    pub fn take_notices(&mut self) -> Vec<ErrorFields> {
        self.session.notices.drain(..).collect()
    }

    /// What cancels this connection's query, from anywhere.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }

    /// The server process that works for this connection.
    #[must_use]
    pub const fn process_id(&self) -> u32 {
        self.cancel.process_id()
    }

    /// Runs a query string, which may hold several statements: one result each. An error ends the string;
    /// the connection can go on unless it is fatal.
    pub async fn simple_query(&mut self, sql: &str) -> Result<Vec<QueryResult>, Error> {
        self.skip_answers().await?;
        self.queue_query(sql.as_bytes());
        self.outbox.flush(&mut self.transport, QUERYING).await?;
        let mut answer = Answer::default();
        loop {
            let frame = next_frame(&mut self.buffer, &mut self.transport, QUERYING).await?;
            if self.session.note(frame)? {
                continue;
            }
            match answer.take(frame)? {
                Next::Frame => {}
                Next::RefuseCopy => {
                    let reason = FrontendMessage::CopyFail(b"this client has no data to copy");
                    self.outbox.queue_message(&reason);
                    self.outbox.flush(&mut self.transport, QUERYING).await?;
                }
                Next::Done => {
                    self.unanswered = 0;
                    return answer.finish();
                }
            }
        }
    }

    /// Runs one statement without parameters, whose rows are not wanted. A text with more than one is refused by the
    /// server, since it goes by the extended query protocol.
    pub async fn single_statement(&mut self, sql: &str) -> Result<(), Error> {
        self.skip_answers().await?;
        self.queue_extended(&ExtendedQuery::Parse {
            statement: b"",
            query: sql.as_bytes(),
            types: Vec::new(),
        });
        self.queue_extended(&ExtendedQuery::Bind {
            portal: b"",
            statement: b"",
            values: NO_VALUES,
        });
        self.queue_extended(&ExtendedQuery::Execute {
            portal: b"",
            rows_max: 0,
        });
        self.queue_frame(b'S', &[]);
        self.unanswered += 1;
        let mut failure = None;
        loop {
            let frame = self.next_frame().await?;
            match frame.tag() {
                b'E' => failure = Some(server_error(frame.as_frame())),
                b'Z' => return failure.map_or(Ok(()), Err),
                _ => {}
            }
        }
    }

    /// Runs a query that gives one row with one column: its value.
    pub async fn query_one_value(&mut self, sql: &str) -> Result<Option<String>, Error> {
        let results = self.simple_query(sql).await?;
        let rows = results.into_iter().last().map(|result| result.rows);
        let mut rows = rows.unwrap_or_default();
        let count = rows.len();
        match rows.pop() {
            Some(mut row) if count == 1 && row.len() == 1 => Ok(row.pop().flatten()),
            _ => Err(Error::NotOneValue { rows: count }),
        }
    }

    /// Sends a query string without waiting for the answer, which [`Self::next_frame`] then gives up to and
    /// with ReadyForQuery.
    pub async fn send_query_raw(&mut self, sql: &[u8]) -> Result<(), Error> {
        self.queue_query(sql);
        self.outbox.flush(&mut self.transport, QUERYING).await
    }

    /// Sends a message that asks for no ReadyForQuery of its own: data of a COPY, for example.
    pub async fn send_raw(&mut self, message: &FrontendMessage<'_>) -> Result<(), Error> {
        self.outbox.queue_message(message);
        self.outbox.flush(&mut self.transport, QUERYING).await
    }

    /// Queues a frame as it travels. It is sent while [`Self::next_frame`] waits. A message that asks for
    /// ReadyForQuery is to be counted by the caller: all of them must be read before the next query.
    pub fn queue_frame(&mut self, tag: u8, body: &[u8]) {
        self.outbox
            .queue_with(|out| put_frame(tag, out, |out| out.extend_from_slice(body)));
    }

    /// The same for a message of the extended query protocol.
    pub fn queue_extended(&mut self, message: &ExtendedQuery<'_>) {
        self.outbox.queue_with(|out| message.encode(out));
    }

    /// Bytes that are queued and not sent.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.outbox.len()
    }

    /// The server's next frame, whatever it is. Settings and the state of the transaction are noted here too.
    /// Notices are only in the frame. What is queued is sent meanwhile.
    pub async fn next_frame(&mut self) -> Result<RawFrame, Error> {
        let bytes = self.next_frame_bytes().await?;
        let frame = RawFrame { bytes };
        match frame.tag() {
            b'N' => {}
            b'Z' => {
                self.unanswered = self.unanswered.saturating_sub(1);
                self.session.note(frame.as_frame())?;
            }
            _ => {
                self.session.note(frame.as_frame())?;
            }
        }
        Ok(frame)
    }

    /// Sends a START_REPLICATION, and goes over to the copy-both phase if the server agrees. If it does not,
    /// the connection is gone with the error.
    pub async fn start_copy_both(mut self, command: &str) -> Result<CopyBoth, Error> {
        const STARTING: &str = "starting replication";
        self.skip_answers().await?;
        self.queue_query(command.as_bytes());
        self.outbox.flush(&mut self.transport, STARTING).await?;
        loop {
            let frame = next_frame(&mut self.buffer, &mut self.transport, STARTING).await?;
            match frame.tag {
                b'W' => break,
                b'E' => return Err(server_error(frame)),
                tag => {
                    if !self.session.note(frame)? {
                        let doing = STARTING;
                        return Err(Error::Unexpected { tag, doing });
                    }
                }
            }
        }
        Ok(CopyBoth::new(self))
    }

    /// Says good-bye and closes the connection. Dropping it closes it too.
    pub async fn close(mut self) -> Result<(), Error> {
        const CLOSING: &str = "closing";
        self.outbox.queue_message(&FrontendMessage::Terminate);
        self.outbox.flush(&mut self.transport, CLOSING).await?;
        let closed = self.transport.shutdown().await;
        closed.map_err(|source| Error::Io {
            doing: CLOSING,
            source,
        })
    }

    async fn next_frame_bytes(&mut self) -> Result<Bytes, Error> {
        const WAITING: &str = "waiting for an answer";
        if self.outbox.len() > 0 {
            // A server that sends much may read nothing until that is taken.
            let (mut reader, mut writer) = tokio::io::split(&mut self.transport);
            tokio::select! {
                bytes = next_frame_owned(&mut self.buffer, &mut reader, WAITING) => return bytes,
                sent = self.outbox.flush(&mut writer, QUERYING) => sent?,
            }
        }
        next_frame_owned(&mut self.buffer, &mut self.transport, WAITING).await
    }

    fn queue_query(&mut self, sql: &[u8]) {
        self.outbox.queue_message(&FrontendMessage::Query(sql));
        self.unanswered += 1;
    }

    /// Reads what is left of answers that somebody stopped waiting for.
    async fn skip_answers(&mut self) -> Result<(), Error> {
        self.outbox.flush(&mut self.transport, QUERYING).await?;
        while self.unanswered > 0 {
            let frame = next_frame(&mut self.buffer, &mut self.transport, QUERYING).await?;
            if frame.tag == b'Z' {
                self.unanswered -= 1;
            }
            self.session.note(frame)?;
        }
        Ok(())
    }
}
