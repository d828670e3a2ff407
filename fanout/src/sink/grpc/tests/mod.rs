//! The service on a loopback socket, over logs in temporary folders.

mod batches;
mod slots;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use pg_proto::Lsn;
use proto::v1;
use proto::v1::fanout_client::FanoutClient;
use proto::v1::subscribe_request::Start;
use proto::v1::subscribe_response::Kind;
use proto::v1::{SubscribeOptions, SubscribeRequest, TransactionPart};
use storage_format::record::RecordKind;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::Endpoint;
use crate::auth::{Guard, Roles};
use crate::positions::Positions;
use crate::runtime::Lanes;
use crate::sink::Services;
use crate::snapshot::Snapshots;
use crate::subscriber::Subscribers;
use crate::testing::TestLog;
use crate::testing::control::{self, Slots};

/// A fanout without a decoder.
struct Fanout {
    services: Services,
    client: FanoutClient<Channel>,
    shutdown: CancellationToken,
    server: tokio::task::JoinHandle<()>,
}

impl Fanout {
    async fn start(log: &mut TestLog) -> Self {
        Self::start_with(log, Positions::new("http://127.0.0.1:9", "test").unwrap()).await
    }

    async fn start_with(log: &mut TestLog, positions: Positions) -> Self {
        let services = Services {
            replay: log.replay(),
            positions,
            subscribers: Subscribers::new(10),
            snapshots: Snapshots::default(),
            guard: Guard::new(&service::config::Fanout::default()).unwrap(),
            roles: Arc::new(Roles::new(&service::config::Source::default())),
            lanes: Lanes::start().unwrap(),
            config: Arc::default(),
        };
        let address = "127.0.0.1:0".parse().unwrap();
        let endpoint = Endpoint::bind(address, services.clone()).await.unwrap();
        let url = format!("http://{}", endpoint.local_addr());
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let server = tokio::spawn(async move { endpoint.serve(stop).await.unwrap() });
        let client = FanoutClient::connect(url).await.unwrap();
        Self {
            services,
            client,
            shutdown,
            server,
        }
    }

    /// With a decoder, and a slot "s" at `start`.
    async fn with_slot(log: &mut TestLog, start: Lsn) -> (Self, Slots) {
        let (address, slots) = control::serve(log.replay()).await;
        let positions = Positions::new(&format!("http://{address}"), "fanout-1").unwrap();
        let mut fanout = Self::start_with(log, positions).await;
        let request = v1::CreateSlotRequest {
            name: "s".to_owned(),
            start_lsn: Some(start.0),
            ..v1::CreateSlotRequest::default()
        };
        fanout.client.create_slot(request).await.unwrap();
        (fanout, slots)
    }

    async fn acknowledge(&mut self, lsn: Lsn) -> Result<u64, Status> {
        let slot = "s".to_owned();
        let request = v1::AcknowledgeRequest { slot, lsn: lsn.0 };
        let answer = self.client.acknowledge(request).await?;
        Ok(answer.into_inner().confirmed_lsn)
    }

    async fn subscribe(&mut self, request: SubscribeRequest) -> Result<Subscription, Status> {
        let stream = self.client.subscribe(request).await?.into_inner();
        Ok(Subscription { stream })
    }
}

struct Subscription {
    stream: Streaming<v1::SubscribeResponse>,
}

impl Subscription {
    async fn next(&mut self) -> Option<Kind> {
        let message = tokio::time::timeout(Duration::from_secs(10), self.stream.message());
        let message = message.await.expect("nothing came in time").unwrap();
        message.map(|response| response.kind.unwrap())
    }

    /// The parts up to the stream's end, those of a transaction joined; and how many there were.
    async fn collect(&mut self) -> (Vec<TransactionPart>, usize) {
        let (mut whole, mut parts) = (Vec::<TransactionPart>::new(), 0);
        let mut open = false;
        while let Some(kind) = self.next().await {
            let Kind::Batch(batch) = kind else { continue };
            for part in batch.parts {
                parts += 1;
                let lone = part.begin.is_none() && !open;
                let ends = part.commit.is_some();
                if part.begin.is_some() || lone {
                    whole.push(part);
                } else {
                    let last = whole.last_mut().unwrap();
                    last.events.extend(part.events);
                    last.commit = part.commit;
                }
                open = !ends && !lone;
            }
        }
        assert!(!open, "the last transaction is not whole");
        (whole, parts)
    }
}

fn request(start: Lsn, end: Lsn) -> SubscribeRequest {
    SubscribeRequest {
        start: Some(Start::StartLsn(start.0)),
        options: Some(SubscribeOptions {
            end_lsn: end.0,
            messages: true,
            raw: true,
            ..SubscribeOptions::default()
        }),
        ..SubscribeRequest::default()
    }
}

/// A table is described, then transactions of one row each; their end positions.
fn simple_log(transactions: u32) -> (TestLog, Vec<Lsn>) {
    let mut log = TestLog::new();
    let ends = (0..transactions)
        .map(|id| append_row(&mut log, id))
        .collect();
    (log, ends)
}

fn append_row(log: &mut TestLog, id: u32) -> Lsn {
    log.begin(1);
    if id == 0 {
        log.named_type(0);
        log.relation(0, 1);
    }
    log.row(RecordKind::Insert, 0, id);
    let end = log.commit();
    log.cut();
    end
}
