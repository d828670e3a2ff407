//! The service on a loopback socket, over an in-process registry and a log in a temporary folder.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::service::config::Config;
use pg_proto::pgoutput::{self, Begin, Commit, Message};
use pg_proto::{Lsn, PgTimestamp, Xid};
use proto::v1::control_client::ControlClient;
use proto::v1::{
    AcquireSlotRequest, CollectGarbageRequest, CreateSlotRequest, DropSlotRequest,
    GetStatusRequest, ListSegmentsRequest, ListSlotsRequest, RefreshCatalogRequest,
    ReleaseSlotRequest, ReportSlotsRequest, SlotReport, SlotStatus, WatchHeadRequest,
};
use storage_format::block::BlockBuilder;
use storage_format::fs::RealFs;
use storage_format::{Identity, LogWriter, WriterOptions};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};

use super::*;
use crate::Addresses;
use crate::catalog::Explainer;
use crate::registry::{MemoryStore, Registry};
use crate::retention::{Policy, Retention};
use crate::state::{DecoderState, Head, RefreshCatalog, RefreshError};

const DEADLINE: Duration = Duration::from_secs(20);

struct Fixture {
    state: Arc<DecoderState>,
    client: ControlClient<Channel>,
    channel: Channel,
    shutdown: CancellationToken,
    server: JoinHandle<Result<(), ControlError>>,
    requests: Option<mpsc::Receiver<RefreshCatalog>>,
    folder: TempDir,
}

fn nowhere() -> Addresses {
    let mut config = Config::default();
    config.source.host = "127.0.0.1".to_owned();
    config.source.port = 9;
    Addresses::new(&config, "nobody")
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (state, requests) = DecoderState::new();
        let state = Arc::new(state);
        let store = Box::<MemoryStore>::default();
        let registry = Arc::new(Registry::with_store(store, false, Instant::now()).unwrap());
        let retention = Retention::new(
            Arc::new(RealFs),
            folder.path().to_owned(),
            Policy::default(),
            Arc::clone(&registry),
        );
        let about = About {
            log_directory: folder.path().to_owned(),
            database: "shop".to_owned(),
            slot: "decant".to_owned(),
            publication: "everything".to_owned(),
        };
        let shutdown = CancellationToken::new();
        let retention = Arc::new(retention);
        let service = ControlService::new(
            Arc::clone(&state),
            registry,
            retention,
            about,
            Arc::default(),
            Explainer::new(nowhere(), Arc::clone(&state)),
            shutdown.clone(),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(serve(listener, service, shutdown.clone()));
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        Self {
            client: ControlClient::new(channel.clone()),
            requests: Some(requests),
            state,
            channel,
            shutdown,
            server,
            folder,
        }
    }

    fn publish(&self, written: u64, durable: u64) {
        self.state.publish_head(Head {
            writer_epoch: 3,
            written_lsn: Lsn(written),
            durable_lsn: Lsn(durable),
            ..Head::default()
        });
    }

    /// Answers refreshes with this from now on.
    fn answer_refreshes(&mut self, result: Result<Lsn, RefreshError>) {
        let mut requests = self.requests.take().unwrap();
        tokio::spawn(async move {
            while let Some(request) = requests.recv().await {
                let _ = request.reply.send(result.clone());
            }
        });
    }

    async fn create(&mut self, request: CreateSlotRequest) -> Result<SlotStatus, Status> {
        let response = self.client.create_slot(request).await?;
        Ok(response.into_inner().slot.unwrap())
    }

    async fn slots(&mut self) -> Vec<SlotStatus> {
        let response = self.client.list_slots(ListSlotsRequest {}).await;
        response.unwrap().into_inner().slots
    }

    async fn report(&mut self, holder: &str, name: &str, confirmed_lsn: u64) -> Vec<String> {
        let slots = vec![SlotReport {
            name: name.to_owned(),
            confirmed_lsn,
            pid: 8,
        }];
        let request = ReportSlotsRequest {
            holder: holder.to_owned(),
            slots,
        };
        self.client
            .report_slots(request)
            .await
            .unwrap()
            .into_inner()
            .lost
    }

    async fn acquire(&mut self, name: &str, holder: &str) -> Result<u32, Status> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        let response = self
            .client
            .acquire_slot(AcquireSlotRequest {
                name,
                holder,
                pid: 7,
            })
            .await?;
        Ok(response.into_inner().lease_ms)
    }
}

fn named(name: &str) -> CreateSlotRequest {
    CreateSlotRequest {
        name: name.to_owned(),
        creator: "alice".to_owned(),
        plugin: "pgoutput".to_owned(),
        ..CreateSlotRequest::default()
    }
}

/// A log with a transaction at each of these (commit LSN, end LSN).
fn write_log(folder: &Path, transactions: &[(u64, u64)]) -> Lsn {
    let options = WriterOptions {
        segment_bytes: WriterOptions::MIN_SEGMENT_BYTES,
        start_lsn: Lsn(1_000),
    };
    let identity = Identity {
        system_identifier: 7,
        timeline: 1,
        database: "shop".to_owned(),
        slot: "decant".to_owned(),
        writer_epoch: 0,
    };
    let opened = LogWriter::open(folder, options, identity, Arc::new(RealFs));
    let mut writer = opened.unwrap().0;
    let mut builder = BlockBuilder::new();
    for (commit_lsn, end_lsn) in transactions {
        let begin = Begin {
            final_lsn: Lsn(*commit_lsn),
            commit_time: PgTimestamp(1),
            xid: Xid(1),
        };
        let commit = Commit {
            commit_lsn: Lsn(*commit_lsn),
            end_lsn: Lsn(*end_lsn),
            commit_time: PgTimestamp(1),
        };
        let encode = |message| {
            let mut payload = Vec::new();
            pgoutput::encode(&message, &mut payload);
            payload
        };
        let payload = encode(Message::Begin(begin));
        builder
            .push_begin(&begin, begin.final_lsn, PgTimestamp(1), &payload)
            .unwrap();
        let payload = encode(Message::Commit(commit));
        builder
            .push_commit(&commit, commit.end_lsn, &payload)
            .unwrap();
        writer.append(&mut builder).unwrap();
        let open = builder.open_transaction();
        builder.start(open);
    }
    writer.sync().unwrap()
}

#[tokio::test]
async fn a_slot_lives() {
    let mut fixture = Fixture::new().await;
    fixture.publish(200, 150);
    fixture.answer_refreshes(Ok(Lsn(150)));
    let slot = fixture.create(named("sub")).await.unwrap();
    assert_eq!(
        (slot.confirmed_lsn, slot.restart_lsn, slot.lag_bytes),
        (150, 150, 0)
    );
    assert_eq!(
        (slot.creator.as_str(), slot.plugin.as_str()),
        ("alice", "pgoutput")
    );
    assert!(slot.created_at > 0);
    assert_eq!(slot.holder, "");

    assert_eq!(fixture.acquire("sub", "one/1").await.unwrap(), 10_000);
    let held = fixture.acquire("sub", "two/1").await.unwrap_err();
    assert_eq!(held.code(), Code::FailedPrecondition);
    assert!(held.message().contains("is held by one/1"), "{held}");
    assert_eq!(proto::status::detail(&held).unwrap().holder_pid, 7);

    fixture.publish(300, 300);
    assert!(fixture.report("one/1", "sub", 260).await.is_empty());
    assert!(fixture.report("one/1", "sub", 10).await.is_empty());
    assert_eq!(fixture.report("two/1", "sub", 290).await, ["sub"]);
    let slots = fixture.slots().await;
    assert_eq!((slots[0].confirmed_lsn, slots[0].lag_bytes), (260, 40));
    assert_eq!(
        (slots[0].holder.as_str(), slots[0].holder_pid),
        ("one/1", 8)
    );
    assert!(slots[0].lease_until > slots[0].created_at);

    // Nobody can have what the log has not.
    assert!(fixture.report("one/1", "sub", u64::MAX).await.is_empty());
    assert_eq!(fixture.slots().await[0].confirmed_lsn, 300);

    let mut drop = DropSlotRequest {
        name: "sub".to_owned(),
        ..DropSlotRequest::default()
    };
    let refused = fixture.client.drop_slot(drop.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let release = ReleaseSlotRequest {
        name: "sub".to_owned(),
        holder: "one/1".to_owned(),
        confirmed_lsn: 0,
    };
    fixture.client.release_slot(release).await.unwrap();
    fixture.acquire("sub", "two/1").await.unwrap();
    drop.force = true;
    fixture.client.drop_slot(drop.clone()).await.unwrap();
    assert!(fixture.slots().await.is_empty());
    assert_eq!(
        fixture.client.drop_slot(drop).await.unwrap_err().code(),
        Code::NotFound
    );
}

#[tokio::test]
async fn a_temporary_slot_goes_with_its_holder() {
    let mut fixture = Fixture::new().await;
    fixture.publish(200, 150);
    fixture.answer_refreshes(Ok(Lsn(150)));
    let mut request = named("temp");
    request.temporary = true;
    let error = fixture.create(request.clone()).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    request.holder = "one/1".to_owned();
    let slot = fixture.create(request).await.unwrap();
    assert!(slot.temporary);
    assert_eq!(slot.holder, "one/1");
    let release = ReleaseSlotRequest {
        name: "temp".to_owned(),
        holder: "one/1".to_owned(),
        confirmed_lsn: 0,
    };
    fixture.client.release_slot(release).await.unwrap();
    assert!(fixture.slots().await.is_empty());
}

#[tokio::test]
async fn requests_that_make_no_sense_are_explained() {
    let mut fixture = Fixture::new().await;
    fixture.publish(200, 150);
    fixture.answer_refreshes(Ok(Lsn(150)));
    fixture.create(named("sub")).await.unwrap();
    let again = fixture.create(named("sub")).await.unwrap_err();
    assert_eq!(again.code(), Code::AlreadyExists);
    assert_eq!(again.message(), "replication slot \"sub\" already exists");
    let name = fixture.create(named("Sub")).await.unwrap_err();
    assert_eq!(name.code(), Code::InvalidArgument);
    let holder = fixture.acquire("sub", "nobody").await.unwrap_err();
    assert_eq!(holder.code(), Code::InvalidArgument);
    let missing = fixture.acquire("other", "one/1").await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
}

#[tokio::test]
async fn a_source_that_is_away_is_said_to_be() {
    let mut fixture = Fixture::new().await;
    fixture.answer_refreshes(Err(RefreshError::Unavailable {
        reason: "connection refused".to_owned(),
    }));
    let refresh = fixture
        .client
        .refresh_catalog(RefreshCatalogRequest {})
        .await;
    for error in [
        refresh.unwrap_err(),
        fixture.create(named("sub")).await.unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.message().ends_with("connection refused"), "{error}");
    }
    assert!(fixture.slots().await.is_empty());
}

#[tokio::test]
async fn a_start_is_rounded_down_and_must_be_kept() {
    let mut fixture = Fixture::new().await;
    let none = CreateSlotRequest {
        start_lsn: Some(5),
        ..named("none")
    };
    let empty = fixture.create(none).await.unwrap_err();
    assert_eq!(empty.code(), Code::FailedPrecondition, "{empty}");
    let end = write_log(
        fixture.folder.path(),
        &[(2_000, 2_040), (3_000, 3_040), (4_000, 4_040)],
    );
    fixture.publish(end.0, end.0);
    for (start, expected) in [
        (1_000, 1_000),
        (2_039, 2_000),
        (2_040, 2_040),
        (2_999, 2_999),
        (3_000, 3_000),
        (3_020, 3_000),
        (3_040, 3_040),
        (4_040, 4_040),
    ] {
        let request = CreateSlotRequest {
            start_lsn: Some(start),
            ..named(&format!("at_{start}"))
        };
        let slot = fixture.create(request).await.unwrap();
        assert_eq!(slot.confirmed_lsn, expected, "{start}");
    }
    for start in [0, 999, 4_041] {
        let request = CreateSlotRequest {
            start_lsn: Some(start),
            ..named("outside")
        };
        let error = fixture.create(request).await.unwrap_err();
        assert_eq!(error.code(), Code::OutOfRange, "{start}");
        assert!(error.message().contains("0/FC8"), "{error}");
    }
}

#[tokio::test]
async fn segments_and_status_are_told() {
    let mut fixture = Fixture::new().await;
    let end = write_log(fixture.folder.path(), &[(2_000, 2_040)]);
    fixture.publish(end.0, end.0);
    fixture.state.counters().transactions.add(1);
    let segments = fixture
        .client
        .list_segments(ListSegmentsRequest {})
        .await
        .unwrap();
    let segments = segments.into_inner().segments;
    assert_eq!(segments.len(), 1);
    assert_eq!((segments[0].first_lsn, segments[0].end_lsn), (1_000, 2_040));
    assert!(!segments[0].sealed);
    let garbage = CollectGarbageRequest { dry_run: false };
    let garbage = fixture
        .client
        .collect_garbage(garbage)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(garbage.bytes_freed, 0);
    assert_eq!(garbage.verdicts[0].reason, "it is being written");
    let status = fixture
        .client
        .get_status(GetStatusRequest {})
        .await
        .unwrap()
        .into_inner();
    let (source, log) = (status.source.unwrap(), status.log.unwrap());
    assert_eq!(
        (source.database.as_str(), source.slot_name.as_str()),
        ("shop", "decant")
    );
    assert_eq!(
        (log.oldest_lsn, log.durable_lsn, log.segment_count),
        (1_000, 2_040, 1)
    );
    assert_eq!(log.transactions, 1);
    assert!(log.bytes > 0 && status.started_at > 0);
}

#[tokio::test]
async fn a_slow_reader_of_heads_sees_the_newest() {
    let mut fixture = Fixture::new().await;
    fixture.publish(1, 1);
    let heads = fixture
        .client
        .watch_head(WatchHeadRequest::default())
        .await
        .unwrap();
    let mut heads = heads.into_inner();
    let first = heads.message().await.unwrap().unwrap();
    assert_eq!(
        (first.writer_epoch, first.written_lsn, first.durable_lsn),
        (3, 1, 1)
    );
    for lsn in 2..=100_000 {
        fixture.publish(lsn, lsn);
    }
    let mut count = 0;
    loop {
        let head = tokio::time::timeout(DEADLINE, heads.message())
            .await
            .unwrap();
        count += 1;
        if head.unwrap().unwrap().durable_lsn == 100_000 {
            break;
        }
    }
    assert!(count < 1_000, "{count} heads were queued");
}

#[tokio::test]
async fn shutdown_ends_streams_and_waiting_requests() {
    let mut fixture = Fixture::new().await;
    let heads = fixture
        .client
        .watch_head(WatchHeadRequest::default())
        .await
        .unwrap();
    let mut heads = heads.into_inner();
    heads.message().await.unwrap().unwrap();
    let mut client = fixture.client.clone();
    // Nobody answers this one.
    let waiting =
        tokio::spawn(async move { client.refresh_catalog(RefreshCatalogRequest {}).await });
    while fixture.requests.as_ref().unwrap().is_empty() {
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fixture.shutdown.cancel();
    let ended = tokio::time::timeout(DEADLINE, heads.message())
        .await
        .unwrap();
    assert!(ended.unwrap().is_none());
    assert_eq!(
        waiting.await.unwrap().unwrap_err().code(),
        Code::Unavailable
    );
    drop((fixture.client, fixture.channel, heads));
    tokio::time::timeout(DEADLINE, fixture.server)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn health_is_told_beside_it() {
    let fixture = Fixture::new().await;
    let mut health = HealthClient::new(fixture.channel.clone());
    for service in ["", "decant.v1.Control"] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
}
