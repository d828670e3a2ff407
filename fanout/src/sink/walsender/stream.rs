//! The copy-both phase: changes go out, reports come in, and neither waits for the other.
//!
//! One task does both. It takes the next block from the log only when the last one is in the socket, so a client
//! that reads slowly costs one block of memory and disturbs nobody.

use std::future;
use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes};
use pg_proto::replication::{FrontendCopy, Keepalive, StatusUpdate};
use pg_proto::wire::{BackendMessage, ErrorFields, FrontendMessage, Severity, sqlstate};
use pg_proto::{Lsn, PgTimestamp};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::{Client, ClientFrame, Output, ReceiveError};
use super::keepalive::{Due, Keepalives, Line};
use super::progress::Progress;
use super::session::administrator;
use crate::emit::{Frames, Warning, WireForm};
use crate::error::StreamError;
use crate::positions::Lease;
use crate::replay::{Advance, Stream};
use crate::runtime::lanes::Distance;
use crate::subscriber::Subscriber;

/// So much is gathered for one write, from as many blocks as it takes.
const WRITE_BYTES: usize = 128 << 10;
/// Blocks looked at before the client's messages and the timers get their turn.
const BLOCKS_PER_TURN: usize = 16;
/// How long a shutting-down server waits for a client to confirm what it was sent.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// How a stream ended.
#[derive(Debug)]
pub(super) enum End<E = ErrorFields> {
    /// The client wants to go on with commands.
    CopyDone,
    /// The server ends; the client has everything, or had its time.
    Shutdown,
    /// The client is gone, or silent for too long.
    Gone,
    /// It can't go on, and the client is to be told why.
    Failed(E),
}

/// Why a stream can't go on.
#[derive(Debug)]
pub(super) enum Failure {
    /// Something here, put in words already.
    Told(ErrorFields),
    /// The log, behind this position.
    Log(StreamError, Lsn),
}

impl End<Failure> {
    /// Puts the log's failures in words.
    pub(super) fn or_failed(self, words: impl FnOnce(&StreamError, Lsn) -> ErrorFields) -> End {
        match self {
            Self::CopyDone => End::CopyDone,
            Self::Shutdown => End::Shutdown,
            Self::Gone => End::Gone,
            Self::Failed(Failure::Told(error)) => End::Failed(error),
            Self::Failed(Failure::Log(error, at)) => End::Failed(words(&error, at)),
        }
    }
}

/// One subscriber's stream.
pub(super) struct Sending<'a> {
    stream: Stream,
    lease: &'a Lease,
    subscriber: &'a Subscriber,
    frames: Frames,
    /// What it asked for in another form than the log has.
    form: Option<WireForm>,
    progress: Progress,
    keepalives: Keepalives,
    distance: Distance,
    /// There was nothing further in the log when it was last asked.
    at_head: bool,
    /// What was written may wait inside TLS for the rest of a record's way.
    unflushed: bool,
    /// Everything that was taken has just been written.
    wrote: bool,
    /// A keepalive is among what waits to be written.
    answering: bool,
    /// What the stream ends with once everything is written that was taken from the log.
    ending: Option<End<Failure>>,
    /// The server ends: by then at the latest.
    deadline: Option<Instant>,
    changes: u64,
    bytes: u64,
}

impl<'a> Sending<'a> {
    /// A stream that is about to begin at `start`.
    pub(super) fn new(
        stream: Stream,
        lease: &'a Lease,
        subscriber: &'a Subscriber,
        start: Lsn,
        timeout: Option<Duration>,
    ) -> Self {
        subscriber.set_filter_paths(stream.filter_paths());
        Self {
            stream,
            lease,
            subscriber,
            frames: Frames::default(),
            form: None,
            progress: Progress::new(start),
            keepalives: Keepalives::new(timeout, Instant::now()),
            distance: Distance::default(),
            at_head: false,
            unflushed: false,
            wrote: false,
            answering: false,
            ending: None,
            deadline: None,
            changes: 0,
            bytes: 0,
        }
    }

    /// In another form than the log has.
    pub(super) fn in_form(self, form: Option<WireForm>) -> Self {
        Self { form, ..self }
    }

    /// Streams until one side ends it. What waits in the client's sender goes out first.
    pub(super) async fn run(
        mut self,
        client: &mut Client,
        shutdown: &CancellationToken,
        (cancelled, terminated): (&Notify, &CancellationToken),
    ) -> io::Result<End<Failure>> {
        // From here on, and not only while it is waited for: a request to cancel comes once.
        let mut cancel = std::pin::pin!(cancelled.notified());
        cancel.as_mut().enable();
        let begin = client.sender.take_pending();
        self.frames.push(begin);
        // The position is told at once, before there is anything to send.
        self.keepalive(false);
        loop {
            if std::mem::take(&mut self.wrote) && !self.at_head {
                // What a task may do before the runtime makes it give way lasts for many writes, and nobody looks at the other
                // sockets while one thread sleeps and another one is here.
                tokio::task::yield_now().await;
            }
            self.fill();
            let wake = match self.attend() {
                Ok(wake) => wake,
                Err(end) => return Ok(end),
            };
            // Once it is decided how the stream ends, only writing is left: what the client says next belongs to what
            // comes after.
            let open = self.ending.is_none();
            let work_left = open && !self.at_head && self.frames.is_empty();
            let Client { receiver, sender } = &mut *client;
            tokio::select! {
                received = receiver.next(), if open => match received {
                    Ok(Some(frame)) => self.received(&frame),
                    Ok(None) => return Ok(End::Gone),
                    Err(ReceiveError::Io(error)) => return Err(error),
                    Err(error) => self.fail(error.report().unwrap_or_default()),
                },
                written = write_on(sender.output(), &mut self.frames),
                    if !self.frames.is_empty() || self.unflushed =>
                {
                    self.written(written?)?;
                }
                moved = self.stream.head_moved(), if self.waits_for_the_log() => {
                    self.at_head = false;
                    if let Err(error) = moved {
                        self.fail_at(error);
                    }
                }
                () = sleep_until(wake) => {}
                () = tokio::task::yield_now(), if work_left => {}
                () = shutdown.cancelled(), if self.deadline.is_none() => self.shut_down(),
                () = cancel.as_mut(), if open => self.fail(ErrorFields::error(
                    sqlstate::QUERY_CANCELED,
                    "canceling statement due to user request",
                )),
                () = terminated.cancelled(), if open => self.fail(administrator()),
                () = self.lease.lost(), if open => self.fail(ErrorFields::fatal(
                    sqlstate::ADMIN_SHUTDOWN,
                    "terminating connection because its replication slot was dropped, invalidated or taken over",
                )),
            }
        }
    }

    /// When everything is written, takes blocks from the log until there is enough for the next write. Nothing is
    /// added before: what is written must be known exactly, since it bounds what may be confirmed.
    fn fill(&mut self) {
        if !self.frames.is_empty() {
            return;
        }
        for _ in 0..BLOCKS_PER_TURN {
            if self.at_head || self.ending.is_some() || self.frames.remaining() >= WRITE_BYTES {
                break;
            }
            let advanced = match &mut self.form {
                None => self.stream.advance(&mut self.frames),
                Some(form) => self.stream.advance(&mut form.onto(&mut self.frames)),
            };
            match advanced {
                Ok(Advance::Moved(step)) => {
                    self.distance.moved();
                    self.changes += step.changes;
                    if step.commits > 0 || step.changes > 0 {
                        self.keepalives.sent_changes();
                    }
                    for warning in &step.warnings {
                        self.frames.push(notice(warning));
                    }
                }
                Ok(Advance::Asking) => self.at_head = true,
                Ok(Advance::AtHead | Advance::End) => {
                    self.distance.at_head();
                    self.at_head = true;
                }
                Err(error) => self.fail_at(error),
            }
        }
        if self.frames.is_empty() {
            self.all_written();
        }
    }

    /// Does what is due; when to look again, or how the stream ended.
    fn attend(&mut self) -> Result<Option<Instant>, End<Failure>> {
        let now = Instant::now();
        if self.frames.is_empty()
            && let Some(end) = self.ending.take()
        {
            return Err(end);
        }
        let idle = self.at_head && !self.stream.is_asking() && self.frames.is_empty();
        if let Some(deadline) = self.deadline {
            if idle && (self.progress.all_received() || now >= deadline) {
                return Err(End::Shutdown);
            }
            if now >= deadline {
                // In the middle of a message there is nothing that could be said.
                return Err(End::Gone);
            }
        }
        let wake = match self
            .keepalives
            .due(now, self.stream.position(), self.line())
        {
            Due::TimedOut => {
                tracing::warn!(
                    subscriber = self.subscriber.id(),
                    "terminating a subscriber that was silent for wal_sender_timeout"
                );
                return Err(End::Gone);
            }
            Due::Keepalive { reply_requested } => {
                self.keepalive(reply_requested);
                self.keepalives.next_timer()
            }
            Due::Nothing(wake) => wake,
        };
        Ok(earliest(wake, self.deadline))
    }

    fn line(&self) -> Line {
        match (self.frames.is_empty(), self.answering) {
            (true, _) if self.at_head && !self.stream.is_asking() => Line::Idle,
            (false, true) => Line::Answering,
            _ => Line::Busy,
        }
    }

    /// Everything below the stream's position precedes the keepalive on the wire.
    fn keepalive(&mut self, reply_requested: bool) {
        let keepalive = Keepalive {
            end: self.stream.position(),
            send_time: PgTimestamp::now(),
            reply_requested,
        };
        let mut frame = Vec::new();
        keepalive.encode_frame(&mut frame);
        self.frames.push(Bytes::from(frame));
        self.answering = true;
        self.keepalives
            .sent_keepalive(Instant::now(), keepalive.end, reply_requested);
    }

    fn written(&mut self, written: Written) -> io::Result<()> {
        self.unflushed = matches!(written, Written::Bytes(_));
        let count = match written {
            Written::Bytes(0) => return Err(io::ErrorKind::WriteZero.into()),
            Written::Bytes(count) => count,
            Written::Flushed => return Ok(()),
        };
        self.bytes += count as u64;
        self.wrote = self.frames.is_empty();
        if self.wrote {
            self.all_written();
        }
        Ok(())
    }

    /// Everything that was taken from the log is in the socket.
    fn all_written(&mut self) {
        self.answering = false;
        let news = self.progress.sent_up_to(self.stream.position());
        if news || self.changes > 0 || self.bytes > 0 {
            let (changes, bytes) = (self.changes, self.bytes);
            self.subscriber.sent(self.progress.sent(), changes, bytes);
            (self.changes, self.bytes) = (0, 0);
        }
        if news && self.progress.flush().is_valid() {
            // A report may have come before the write that it is about was complete.
            self.lease
                .confirm(self.progress.flush(), self.progress.sent());
        }
    }

    fn received(&mut self, frame: &ClientFrame) {
        match frame.message() {
            Some(Ok(FrontendMessage::CopyData(content))) => self.reported(content),
            Some(Ok(FrontendMessage::CopyDone)) => self.end(End::CopyDone),
            Some(Ok(FrontendMessage::Terminate)) => {
                self.frames.clear();
                self.end(End::Gone);
            }
            _ => self.fail(ErrorFields::fatal(
                sqlstate::PROTOCOL_VIOLATION,
                format!(
                    "invalid standby message type \"{}\"",
                    frame.tag().escape_ascii()
                ),
            )),
        }
    }

    fn reported(&mut self, content: &[u8]) {
        let now = Instant::now();
        match FrontendCopy::decode(content) {
            Ok(FrontendCopy::StatusUpdate(status)) => {
                self.keepalives.received(now, status.reply_requested);
                if status.reply_requested {
                    // The answer says where the log is now.
                    self.at_head = false;
                }
                self.status(&status);
            }
            Ok(FrontendCopy::HotStandbyFeedback(_)) => self.keepalives.received(now, false),
            Err(error) => {
                tracing::info!(
                    subscriber = self.subscriber.id(), %error, "unexpected message of a subscriber"
                );
                self.frames.clear();
                self.end(End::Gone);
            }
        }
    }

    fn status(&mut self, status: &StatusUpdate) {
        self.progress.reported(status);
        self.subscriber
            .reported(status.write, status.flush, status.apply);
        if status.flush.is_valid() {
            self.lease.confirm(status.flush, self.progress.sent());
        }
    }

    const fn waits_for_the_log(&self) -> bool {
        let open = self.deadline.is_none() || self.stream.is_asking();
        self.at_head && self.ending.is_none() && open
    }

    /// From now on only what the log has already is sent.
    fn shut_down(&mut self) {
        self.deadline = Some(Instant::now() + SHUTDOWN_GRACE);
        self.at_head = false;
        self.keepalives.press();
    }

    fn fail(&mut self, error: ErrorFields) {
        self.end(End::Failed(Failure::Told(error)));
    }

    fn fail_at(&mut self, error: StreamError) {
        let position = self.stream.position();
        self.end(End::Failed(Failure::Log(error, position)));
    }

    /// Whole messages that wait are still written; the first reason counts.
    fn end(&mut self, end: End<Failure>) {
        self.ending.get_or_insert(end);
    }
}

/// What one step of writing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// So many bytes were taken.
    Bytes(usize),
    /// There was nothing left, and all that was taken is on its way.
    Flushed,
}

/// Writes what there is, and flushes when there is nothing more. Cancel safe.
async fn write_on(output: &mut Output, frames: &mut Frames) -> io::Result<Written> {
    if frames.is_empty() {
        output.flush().await?;
        return Ok(Written::Flushed);
    }
    output.write_buf(frames).await.map(Written::Bytes)
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => future::pending().await,
    }
}

fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// A notice in the middle of the stream.
fn notice(warning: &Warning) -> Bytes {
    let fields = match warning {
        Warning::PublicationSkipped(name) => ErrorFields::new(
            Severity::Warning,
            sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("skipped loading publication \"{name}\""),
        )
        .with_detail("The publication does not exist at this point in the WAL.")
        .with_hint("Create the publication if it does not exist."),
    };
    let mut frame = Vec::new();
    BackendMessage::NoticeResponse(fields).encode(&mut frame);
    Bytes::from(frame)
}
