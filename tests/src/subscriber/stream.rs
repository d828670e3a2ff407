//! A client of the replication protocol that keeps every message as it came.

use std::time::{Duration, Instant};

use bytes::Bytes;
use pg_proto::Lsn;
use pg_proto::pgoutput::{Framing, Message, decode, tag};
use pg_proto::replication::BackendCopy;

use super::replication;
use crate::sql::{Endpoint, Session, SqlError};

/// How often the server is asked where it stands.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// One transaction as it came: BEGIN to COMMIT, or one logical message outside of any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Start of the commit record.
    pub commit_lsn: Lsn,
    /// End of the commit record: where to start again.
    pub end_lsn: Lsn,
    /// XLogData start position and payload of each message.
    pub messages: Vec<(Lsn, Bytes)>,
}

impl Transaction {
    /// Without RELATION and TYPE: each server sends those when its own rules want it.
    #[must_use]
    pub fn without_schema(mut self) -> Self {
        self.messages
            .retain(|(_, payload)| !matches!(payload[0], tag::RELATION | tag::TYPE));
        self
    }
}

/// One connection in the copy-both phase, which checks what every client may rely on.
#[derive(Debug)]
pub struct StreamClient {
    session: Session,
    open: Option<Transaction>,
    last_commit: Lsn,
    promised: Lsn,
    confirmed: Lsn,
}

impl StreamClient {
    /// Connects and starts `slot` with pgoutput options such as `proto_version '1'`.
    pub async fn start(
        to: &Endpoint,
        slot: &str,
        from: Lsn,
        options: &str,
    ) -> Result<Self, SqlError> {
        let session = replication::start(to, slot, from, options).await?;
        Ok(Self::new(session))
    }

    fn new(session: Session) -> Self {
        Self {
            session,
            open: None,
            last_commit: Lsn::INVALID,
            promised: Lsn::INVALID,
            confirmed: Lsn::INVALID,
        }
    }

    /// Receives until all that commits below `end` is here.
    pub async fn receive_until(&mut self, end: Lsn, deadline: Duration) -> Vec<Transaction> {
        let (all, error) = self.receive_until_or_error(end, deadline).await;
        match error {
            None => all,
            Some(error) => panic!("the stream failed: {error}"),
        }
    }

    /// The same, or until the server ends the stream with an error.
    pub async fn receive_until_or_error(
        &mut self,
        end: Lsn,
        deadline: Duration,
    ) -> (Vec<Transaction>, Option<SqlError>) {
        let started = Instant::now();
        let mut all = Vec::new();
        while self.promised < end && self.last_commit < end {
            assert!(
                started.elapsed() < deadline,
                "the stream stands at {}, {} transactions received, not at {end} in {deadline:?}",
                self.promised,
                all.len()
            );
            match tokio::time::timeout(ASK_EVERY, self.session.copy_data()).await {
                Ok(Ok(Some(content))) => all.extend(self.take(&content).await),
                Ok(Ok(None)) => panic!("the server ended the stream"),
                Ok(Err(error)) => return (all, Some(error)),
                Err(_) => self.send_status(true).await,
            }
        }
        (all, None)
    }

    /// Receives the error that the stream must end with, and no change before it.
    pub async fn receive_error(&mut self, deadline: Duration) -> SqlError {
        let started = Instant::now();
        while started.elapsed() < deadline {
            match tokio::time::timeout(ASK_EVERY, self.session.copy_data()).await {
                Ok(Ok(Some(content))) => {
                    let whole = self.take(&content).await;
                    assert_eq!(whole, None, "a transaction instead of an error");
                }
                Ok(Ok(None)) => panic!("the server ended the stream without an error"),
                Ok(Err(error)) => return error,
                Err(_) => self.send_status(true).await,
            }
        }
        panic!("no error in {deadline:?}");
    }

    /// Tells the server that everything up to `lsn` is safe here.
    pub async fn confirm(&mut self, lsn: Lsn) {
        self.confirmed = lsn;
        self.send_status(true).await;
    }

    async fn send_status(&mut self, reply_requested: bool) {
        replication::send_status(&mut self.session, self.confirmed, reply_requested).await;
    }

    async fn take(&mut self, content: &Bytes) -> Option<Transaction> {
        match BackendCopy::decode(content).expect("a CopyData of a server") {
            BackendCopy::Keepalive(keepalive) => {
                if let Some(open) = &self.open {
                    assert!(
                        keepalive.end <= open.commit_lsn,
                        "a keepalive inside a transaction that commits at {} says {}",
                        open.commit_lsn,
                        keepalive.end
                    );
                }
                self.promised = self.promised.max(keepalive.end);
                if keepalive.reply_requested {
                    self.send_status(false).await;
                }
                None
            }
            BackendCopy::XLogData(data) => {
                let payload = content.slice_ref(data.payload);
                self.take_message(data.start, payload)
            }
        }
    }

    fn take_message(&mut self, start: Lsn, payload: Bytes) -> Option<Transaction> {
        let message = decode(&payload, Framing::Plain).expect("a pgoutput message");
        match message {
            Message::Begin(begin) => {
                assert!(self.open.is_none(), "BEGIN inside a transaction");
                let commit_lsn = begin.final_lsn;
                assert!(commit_lsn > self.last_commit, "commits out of order");
                assert!(
                    commit_lsn >= self.promised,
                    "a transaction that commits at {commit_lsn} came after a keepalive that \
                     promised all below {}",
                    self.promised
                );
                self.open = Some(Transaction {
                    commit_lsn,
                    end_lsn: Lsn::INVALID,
                    messages: vec![(start, payload)],
                });
                None
            }
            Message::Commit(commit) => {
                let mut transaction = self.open.take().expect("COMMIT without BEGIN");
                assert_eq!(transaction.commit_lsn, commit.commit_lsn);
                transaction.end_lsn = commit.end_lsn;
                transaction.messages.push((start, payload));
                self.last_commit = commit.commit_lsn;
                Some(transaction)
            }
            Message::LogicalMessage(message) if !message.transactional => Some(Transaction {
                commit_lsn: message.lsn,
                end_lsn: message.lsn,
                messages: vec![(start, payload)],
            }),
            _ => {
                let open = self.open.as_mut().expect("a change outside a transaction");
                open.messages.push((start, payload));
                None
            }
        }
    }
}
