//! One stream by PostgreSQL's replication protocol.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pg_proto::replication::StatusUpdate;
use pg_proto::{Lsn, PgTimestamp};
use tests::Session;
use tests::sql::SqlError;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::frames::{FrameError, Tally};
use super::program::Watch;
use super::{Plan, Subscription};

/// Bytes taken with one read, into a buffer that all connections of a thread share, so that it stays in its cache.
const READ_BYTES: usize = 256 << 10;
/// Reads before timers and commands get their turn.
const READS_PER_TURN: usize = 16;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The server refused.
    #[error("the server refused the stream: {0}")]
    Refused(String),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// What it sent.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// The gRPC service.
    #[error("the gRPC service: {0}")]
    Grpc(String),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// One stream that has begun.
pub(super) struct Connection {
    stream: TcpStream,
    /// The beginning of a frame whose end has not come yet.
    held: Vec<u8>,
    tally: Arc<Mutex<Tally>>,
    watch: Watch,
    confirm: bool,
    status_interval: Duration,
    ask_interval: Duration,
    record: Option<File>,
}

impl Connection {
    /// Asks for the stream.
    pub(super) async fn start(
        mut session: Session,
        plan: &Plan,
        subscription: &Subscription,
        tally: Arc<Mutex<Tally>>,
        watch: Watch,
        record: Option<File>,
    ) -> Result<Self, Failure> {
        session.start_copy(&command(plan, subscription)).await?;
        let (stream, held) = session.into_parts();
        let mut connection = Self {
            stream,
            held: held.to_vec(),
            tally,
            watch,
            confirm: plan.confirm,
            status_interval: Duration::from_millis(plan.status_interval_ms),
            ask_interval: Duration::from_millis(plan.ask_interval_ms),
            record,
        };
        let early = std::mem::take(&mut connection.held);
        connection.take(&early)?;
        Ok(connection)
    }

    /// Receives until the server ends it.
    pub(super) async fn run(mut self) -> Failure {
        loop {
            if let Err(failure) = self.receive().await {
                return failure;
            }
        }
    }

    async fn receive(&mut self) -> Result<(), Failure> {
        let mut next_status = Instant::now() + self.status_interval;
        loop {
            let waits = self.watch.note(self.tally.lock().position);
            let pause = if waits {
                self.ask_interval
            } else {
                self.status_interval
            };
            next_status = next_status.min(Instant::now() + pause);
            if Instant::now() >= next_status {
                self.send_status(waits).await?;
                next_status = Instant::now() + pause;
            }
            tokio::select! {
                ready = self.stream.readable() => {
                    ready?;
                    self.read()?;
                    if std::mem::take(&mut self.tally.lock().reply_requested) {
                        self.send_status(false).await?;
                    }
                }
                () = self.watch.changed() => {}
                () = tokio::time::sleep_until(next_status) => {}
            }
        }
    }

    /// Takes what is there.
    fn read(&mut self) -> Result<(), Failure> {
        BUFFER.with_borrow_mut(|buffer| {
            for _ in 0..READS_PER_TURN {
                let held = self.held.len();
                if buffer.len() < held + READ_BYTES {
                    buffer.resize(held + READ_BYTES, 0);
                }
                buffer[..held].copy_from_slice(&self.held);
                let count = match self.stream.try_read(&mut buffer[held..]) {
                    Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error.into()),
                };
                self.take(&buffer[..held + count])?;
            }
            Ok(())
        })
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let taken = self.tally.lock().take(bytes)?;
        if let Some(file) = &mut self.record {
            file.write_all(&bytes[..taken])?;
        }
        self.held.clear();
        self.held.extend_from_slice(&bytes[taken..]);
        Ok(())
    }

    async fn send_status(&mut self, reply_requested: bool) -> Result<(), Failure> {
        let position = self.tally.lock().position;
        // An invalid position leaves the slot where it is.
        let safe = if self.confirm { position } else { Lsn::INVALID };
        let mut frame = Vec::new();
        StatusUpdate {
            write: position,
            flush: safe,
            apply: safe,
            client_time: PgTimestamp::now(),
            reply_requested,
        }
        .encode_frame(&mut frame);
        let mut rest = frame.as_slice();
        while !rest.is_empty() {
            self.stream.writable().await?;
            match self.stream.try_write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn command(plan: &Plan, subscription: &Subscription) -> String {
    let Subscription { slot, publication } = subscription;
    let mut command = format!(
        "START_REPLICATION SLOT \"{slot}\" LOGICAL 0/0 (proto_version '{}', \
         publication_names '\"{publication}\"'",
        plan.proto_version
    );
    if !plan.options.is_empty() {
        command += ", ";
        command += &plan.options;
    }
    command + ")"
}
