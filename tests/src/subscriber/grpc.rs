//! A subscriber of a fanout's gRPC service that checks all that it is promised, and comes back after every
//! interruption with the position of the last transaction it applied.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pg_proto::Lsn;
use proto::v1::fanout_client::FanoutClient;
use proto::v1::subscribe_request::Start;
use proto::v1::{AcknowledgeRequest, SubscribeRequest, TableName};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tonic::Code;

use super::received::Received;
use crate::cluster::Cluster;
use crate::expect::wait_until;

const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
const CONFIRM_EVERY: Duration = Duration::from_millis(200);
/// A batch holds whole rows, however wide.
const MESSAGE_BYTES: usize = 256 << 20;

/// What the subscriber remembers of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All of them, in a model of the tables.
    Rows,
    /// Only how many changes there were.
    Counts,
}

/// A request that starts at a position; 0 is the oldest kept.
pub fn from_lsn(lsn: Lsn) -> SubscribeRequest {
    SubscribeRequest {
        start: Some(Start::StartLsn(lsn.0)),
        ..SubscribeRequest::default()
    }
}

/// A request that starts at a slot's position.
pub fn from_slot(slot: &str) -> SubscribeRequest {
    SubscribeRequest {
        start: Some(Start::Slot(slot.to_owned())),
        ..SubscribeRequest::default()
    }
}

/// Names of tables in schema public.
pub fn tables(names: &[&str]) -> Vec<TableName> {
    names
        .iter()
        .map(|name| TableName {
            schema: "public".to_owned(),
            name: (*name).to_owned(),
        })
        .collect()
}

/// The subscriber. Dropped, it hangs up.
#[derive(Debug)]
pub struct GrpcSubscriber {
    received: Arc<Mutex<Received>>,
    task: JoinHandle<()>,
    confirmer: Option<JoinHandle<()>>,
}

impl GrpcSubscriber {
    /// Starts to receive from the fanout at `url`.
    pub fn start(url: String, request: SubscribeRequest, keep: Keep) -> Self {
        let received = Arc::new(Mutex::new(Received::default()));
        let task = tokio::spawn(run(url, request, keep, Arc::clone(&received)));
        Self {
            received,
            task,
            confirmer: None,
        }
    }

    /// Confirms to a slot, from now on, what has been received; fanout and decoder may be away meanwhile.
    pub fn confirm_to(&mut self, url: String, slot: &str) {
        let confirming = confirm(url, slot.to_owned(), Arc::clone(&self.received));
        self.confirmer = Some(tokio::spawn(confirming));
    }

    /// Looks at what was received. Panics if something was wrong with it.
    pub fn look<T>(&self, look: impl FnOnce(&Received) -> T) -> T {
        let received = self.received.lock();
        if let Some(error) = &received.error {
            panic!("the gRPC subscriber stopped: {error}");
        }
        look(&received)
    }

    /// Waits for the error that must come.
    pub async fn wait_for_error(&self, deadline: Duration) -> String {
        wait_until("the gRPC subscriber gets an error", deadline, async || {
            let received = self.received.lock();
            received
                .error
                .clone()
                .ok_or_else(|| format!("position {}", received.position))
        })
        .await
    }

    /// Waits until all that commits below a position is here.
    pub async fn wait_for(&self, lsn: Lsn, deadline: Duration) {
        let what = format!("the gRPC subscriber reaches {lsn}");
        wait_until(&what, deadline, async || {
            let (position, changes) = self.look(|seen| (seen.position, seen.changes));
            if position >= lsn {
                Ok(())
            } else {
                Err(format!("{position} after {changes} changes"))
            }
        })
        .await;
    }

    /// Waits for the end of a stream that was asked for up to a position; what was received.
    pub async fn finish(self, deadline: Duration) -> Received {
        let received = self.ended(deadline).await;
        if let Some(error) = &received.error {
            panic!("the gRPC subscriber stopped: {error}");
        }
        received
    }

    /// The same, or for the error with which it ends.
    pub async fn ended(mut self, deadline: Duration) -> Received {
        let ended = tokio::time::timeout(deadline, &mut self.task).await;
        assert!(ended.is_ok(), "the stream did not end in {deadline:?}");
        std::mem::take(&mut self.received.lock())
    }

    /// Checks that tables (of schema public) have the source's rows.
    pub async fn assert_contents(&self, source: &Cluster, tables: &[&str]) {
        let mut session = source.session().await;
        for table in tables {
            // Compared outside of the lock, which must not be held over an await.
            let model = std::mem::take(&mut self.received.lock().model);
            let result = model
                .compare(&mut session, &format!("public.{table}"))
                .await;
            self.received.lock().model = model;
            assert_eq!(result, Ok(()));
        }
    }

    /// Hangs up; what was received.
    pub async fn stop(self) -> Received {
        self.task.abort();
        while !self.task.is_finished() {
            tokio::task::yield_now().await;
        }
        std::mem::take(&mut self.received.lock())
    }
}

impl Drop for GrpcSubscriber {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(confirmer) = &self.confirmer {
            confirmer.abort();
        }
    }
}

async fn run(
    url: String,
    mut request: SubscribeRequest,
    keep: Keep,
    received: Arc<Mutex<Received>>,
) {
    loop {
        let end = receive(&url, &request, keep, &received).await;
        if !received.lock().prepare_next(end, &mut request) {
            return;
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

async fn confirm(url: String, slot: String, received: Arc<Mutex<Received>>) {
    let mut confirmed = 0;
    loop {
        tokio::time::sleep(CONFIRM_EVERY).await;
        let end = received.lock().transactions.last().map(|ends| ends.1.0);
        let Some(lsn) = end.filter(|lsn| *lsn > confirmed) else {
            continue;
        };
        let request = AcknowledgeRequest {
            slot: slot.clone(),
            lsn,
        };
        match acknowledge(&url, request).await {
            Ok(answer) if answer <= lsn => confirmed = lsn,
            Ok(answer) => {
                let error = format!("slot {slot}: {lsn} was confirmed, {answer} was answered");
                received.lock().error = Some(error);
                return;
            }
            Err(Failure::Interrupted) => {}
            Err(Failure::Final(error)) => {
                received.lock().error = Some(format!("slot {slot}: {error}"));
                return;
            }
        }
    }
}

async fn acknowledge(url: &str, request: AcknowledgeRequest) -> Result<u64, Failure> {
    let client = FanoutClient::connect(url.to_owned()).await;
    let mut client = client.map_err(|_| Failure::Interrupted)?;
    let answer = client.acknowledge(request).await?;
    Ok(answer.into_inner().confirmed_lsn)
}

/// Why a stream ended.
pub(super) enum Failure {
    Interrupted,
    Final(String),
}

impl From<tonic::Status> for Failure {
    fn from(status: tonic::Status) -> Self {
        match status.code() {
            // The fanout is gone or going; a client comes back.
            Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal => {
                Self::Interrupted
            }
            code => Self::Final(format!("{code:?}: {}", status.message())),
        }
    }
}

async fn receive(
    url: &str,
    request: &SubscribeRequest,
    keep: Keep,
    received: &Mutex<Received>,
) -> Result<(), Failure> {
    let client = FanoutClient::connect(url.to_owned()).await;
    let mut client = client
        .map_err(|_| Failure::Interrupted)?
        .max_decoding_message_size(MESSAGE_BYTES);
    let mut stream = client.subscribe(request.clone()).await?.into_inner();
    while let Some(response) = stream.next().await {
        let response = response?;
        received
            .lock()
            .take(response, keep)
            .map_err(Failure::Final)?;
    }
    Ok(())
}
