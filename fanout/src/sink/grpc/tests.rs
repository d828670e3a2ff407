//! The service on a loopback socket, over logs in temporary folders.

use std::sync::Arc;
use std::time::Duration;

use pg_proto::Lsn;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use proto::v1;
use proto::v1::event::Kind as EventKind;
use proto::v1::fanout_client::FanoutClient;
use proto::v1::subscribe_request::Start;
use proto::v1::subscribe_response::Kind;
use proto::v1::{SubscribeOptions, SubscribeRequest, TransactionPart};
use storage_format::record::RecordKind;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::Endpoint;
use crate::emit::EmitOptions;
use crate::positions::Positions;
use crate::selection::SelectionSpec;
use crate::sink::Services;
use crate::subscriber::Subscribers;
use crate::testing::control::{self, Slots};
use crate::testing::{Model, TestLog, actions};

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

/// Changes and messages of a model's stream, as (message, ordinal).
fn events(expected: &[(Vec<u8>, u64)]) -> Vec<(Vec<u8>, u64)> {
    let events = expected.iter().filter(|(one, _)| b"IUD".contains(&one[0]));
    events.cloned().collect()
}

fn raw_changes(parts: &[TransactionPart]) -> Vec<(Vec<u8>, u64)> {
    let events = parts.iter().flat_map(|part| &part.events);
    let changes = events.filter_map(|event| match event.kind.as_ref()? {
        EventKind::Change(change) => Some((change.raw.to_vec(), change.ordinal)),
        _ => None,
    });
    changes.collect()
}

#[tokio::test]
async fn from_every_position_on_exactly_the_rest_comes() {
    let mut runner = TestRunner::deterministic();
    for _ in 0..8 {
        let actions = actions().new_tree(&mut runner).unwrap().current();
        let mut model = Model::write(&actions);
        let mut fanout = Fanout::start(&mut model.log).await;
        let kept = fanout.services.replay.kept().unwrap();
        let ends: Vec<Lsn> = model.boundaries.clone();
        for start in [kept.oldest].into_iter().chain(ends) {
            // The end lies behind all that there is.
            let end = Lsn(kept.newest.0.max(start.0 + 1));
            let options = EmitOptions {
                start,
                messages: true,
                ..EmitOptions::default()
            };
            let expected = model.expected(&SelectionSpec::default(), &options);
            if start >= kept.newest {
                continue;
            }
            let mut subscription = fanout.subscribe(request(start, end)).await.unwrap();
            let (parts, _) = subscription.collect().await;
            assert_eq!(raw_changes(&parts), events(&expected));
            let commits = expected.iter().filter(|(one, _)| one[0] == b'C').count();
            let got = parts.iter().filter(|part| part.commit.is_some()).count();
            assert_eq!(got, commits);
        }
    }
}

#[tokio::test]
async fn the_end_is_before_the_first_transaction_that_commits_there() {
    let (mut log, ends) = simple_log(5);
    let mut fanout = Fanout::start(&mut log).await;
    let end = ends[2];
    let mut subscription = fanout.subscribe(request(ends[0], end)).await.unwrap();
    let (parts, _) = subscription.collect().await;
    let got: Vec<u64> = parts
        .iter()
        .map(|part| part.commit.as_ref().unwrap().end_lsn)
        .collect();
    assert_eq!(got, [ends[1].0, ends[2].0]);
    assert!(fanout.services.subscribers.connected().is_empty());
}

#[tokio::test]
async fn a_position_out_of_range_is_answered_with_the_range() {
    let (mut log, _) = simple_log(3);
    let mut fanout = Fanout::start(&mut log).await;
    let kept = fanout.services.replay.kept().unwrap();
    for asked in [Lsn(kept.oldest.0 - 1), Lsn(kept.newest.0 + 1)] {
        let status = fanout
            .subscribe(request(asked, Lsn(0)))
            .await
            .err()
            .unwrap();
        assert_eq!(status.code(), Code::OutOfRange, "{status}");
        let detail = proto::status::detail(&status).unwrap();
        assert_eq!(
            (detail.oldest_lsn, detail.newest_lsn),
            (kept.oldest.0, kept.newest.0)
        );
        assert!(status.message().contains(&asked.to_string()), "{status}");
    }
    let unknown = SubscribeRequest {
        publications: vec!["nosuch".to_owned()],
        ..SubscribeRequest::default()
    };
    // The decoder can't be asked whether there is one by now.
    let status = fanout.subscribe(unknown).await.err().unwrap();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}

#[tokio::test]
async fn what_commits_later_arrives_and_progress_is_told() {
    let (mut log, ends) = simple_log(2);
    let mut fanout = Fanout::start(&mut log).await;
    let mut subscription = fanout.subscribe(SubscribeRequest::default()).await.unwrap();
    log.begin(2);
    log.row(RecordKind::Update, 0, 7);
    log.cut();
    log.row(RecordKind::Delete, 0, 7);
    let end = log.commit();
    assert!(end > ends[1]);
    log.sync();
    let Some(Kind::Batch(batch)) = subscription.next().await else {
        panic!("no batch");
    };
    let [part] = batch.parts.as_slice() else {
        panic!("{batch:?}");
    };
    let kinds: Vec<_> = part
        .events
        .iter()
        .map(|event| event.kind.clone().unwrap())
        .collect();
    let [
        EventKind::Relation(relation),
        EventKind::Change(update),
        EventKind::Change(delete),
    ] = kinds.as_slice()
    else {
        panic!("{kinds:?}");
    };
    assert_eq!(
        (relation.schema.as_str(), relation.name.as_str()),
        ("s0", "t0")
    );
    assert_eq!(relation.columns[1].name, "second");
    let new = &update.new.as_ref().unwrap().values;
    assert_eq!(new[0].kind, Some(v1::value::Kind::Text("7".into())));
    assert_eq!(
        new[1].kind,
        Some(v1::value::Kind::UnchangedToast(v1::UnchangedToast {}))
    );
    assert_eq!((update.old.is_none(), update.ordinal), (true, 0));
    assert!(delete.old_is_key && delete.new.is_none());
    assert_eq!(delete.ordinal, 1);
    assert_eq!(part.commit.as_ref().unwrap().end_lsn, end.0);

    log.progress();
    let head = log.sync();
    let Some(Kind::Progress(progress)) = subscription.next().await else {
        panic!("no progress");
    };
    assert_eq!((progress.lsn, progress.head_lsn), (head.0, head.0));
}

#[tokio::test]
async fn a_large_transaction_comes_in_parts() {
    let mut log = TestLog::new();
    const ROWS: usize = 5_000;
    log.begin(ROWS);
    log.relation(0, 1);
    for id in 0..ROWS {
        log.row(RecordKind::Insert, 0, u32::try_from(id).unwrap());
        if id % 100 == 0 {
            log.cut();
        }
    }
    let end = log.commit();
    let mut fanout = Fanout::start(&mut log).await;
    let mut wanted = request(Lsn(0), end);
    let options = wanted.options.as_mut().unwrap();
    options.batch_bytes = 4096;
    options.raw = false;
    let mut subscription = fanout.subscribe(wanted).await.unwrap();
    let (whole, parts) = subscription.collect().await;
    assert!(parts > 20, "{parts}");
    assert_eq!(whole.len(), 1);
    assert_eq!(whole[0].events.len(), ROWS + 1);
    let last = whole[0].events.last().unwrap().kind.clone().unwrap();
    let EventKind::Change(last) = last else {
        panic!("{last:?}");
    };
    assert_eq!(last.ordinal, ROWS as u64 - 1);
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_nobody_up_and_misses_nothing() {
    let mut log = TestLog::new();
    const ROWS: u32 = 400;
    const TRANSACTIONS: u32 = 300;
    for number in 0..TRANSACTIONS {
        log.begin(ROWS as usize);
        if number == 0 {
            log.relation(0, 1);
        }
        for id in 0..ROWS {
            log.row(RecordKind::Insert, 0, number * ROWS + id);
        }
        log.commit();
        log.cut();
    }
    let mut fanout = Fanout::start(&mut log).await;
    let end = fanout.services.replay.head();
    let mut slow = fanout.subscribe(request(Lsn(0), end)).await.unwrap();
    let mut quick = fanout.subscribe(request(Lsn(0), end)).await.unwrap();
    let (whole, _) = quick.collect().await;
    assert_eq!(raw_changes(&whole).len(), (ROWS * TRANSACTIONS) as usize);
    let connected = fanout.services.subscribers.connected();
    let status = connected[0].status(end);
    assert!(status.lag_bytes > 0, "{status:?}");
    assert!(status.bytes_sent < 4 << 20, "{status:?}");
    let (late, _) = slow.collect().await;
    assert_eq!(raw_changes(&late), raw_changes(&whole));
}

#[tokio::test]
async fn at_shutdown_streams_get_what_there_is_and_end() {
    let (mut log, ends) = simple_log(3);
    let mut fanout = Fanout::start(&mut log).await;
    let mut subscription = fanout.subscribe(request(ends[0], Lsn(0))).await.unwrap();
    fanout.shutdown.cancel();
    let mut commits = 0;
    let status = loop {
        match subscription.stream.message().await {
            Ok(Some(response)) => {
                if let Some(Kind::Batch(batch)) = response.kind {
                    commits += batch.parts.len();
                }
            }
            Ok(None) => panic!("ended without a word"),
            Err(status) => break status,
        }
    };
    assert_eq!((commits, status.code()), (2, Code::Unavailable));
    drop(subscription);
    drop(fanout.client);
    fanout.server.await.unwrap();
}

fn slot_request(end: Lsn) -> SubscribeRequest {
    SubscribeRequest {
        start: Some(Start::Slot("s".to_owned())),
        ..request(Lsn(0), end)
    }
}

#[tokio::test]
async fn a_slot_goes_on_where_it_was_acknowledged() {
    let (mut log, ends) = simple_log(5);
    let (mut fanout, slots) = Fanout::with_slot(&mut log, ends[0]).await;
    let mut subscription = fanout.subscribe(slot_request(Lsn(0))).await.unwrap();
    let Some(Kind::Batch(batch)) = subscription.next().await else {
        panic!("no batch");
    };
    assert_eq!(batch.parts.len(), 4);
    let second = fanout.subscribe(slot_request(Lsn(0))).await.err().unwrap();
    assert_eq!(second.code(), Code::FailedPrecondition, "{second}");

    // Between two ends, and then beyond what was sent.
    let between = Lsn(ends[2].0 + 1);
    assert_eq!(fanout.acknowledge(between).await.unwrap(), ends[2].0);
    assert_eq!(fanout.acknowledge(ends[1]).await.unwrap(), ends[2].0);
    drop(subscription);
    fanout.services.positions.all_given_back().await;
    assert_eq!(slots.lock()["s"].confirmed_lsn, ends[2].0);

    let mut subscription = fanout.subscribe(slot_request(ends[4])).await.unwrap();
    let (parts, _) = subscription.collect().await;
    assert_eq!(parts.len(), 2);
    drop(subscription);
    fanout.services.positions.all_given_back().await;

    // Nobody streams from it now.
    assert_eq!(fanout.acknowledge(between).await.unwrap(), ends[2].0);
    assert_eq!(
        fanout.acknowledge(Lsn(ends[3].0 + 7)).await.unwrap(),
        ends[3].0
    );
    assert_eq!(fanout.acknowledge(Lsn::MAX).await.unwrap(), ends[4].0);
    assert_eq!(slots.lock()["s"].confirmed_lsn, ends[4].0);
    let listed = fanout
        .client
        .list_slots(v1::ListSlotsRequest {})
        .await
        .unwrap();
    assert_eq!(listed.into_inner().slots.len(), 1);
}

#[tokio::test]
async fn a_slot_that_is_dropped_ends_its_stream() {
    let (mut log, ends) = simple_log(2);
    let (mut fanout, _) = Fanout::with_slot(&mut log, ends[1]).await;
    let mut subscription = fanout.subscribe(slot_request(Lsn(0))).await.unwrap();
    let drop_slot = |force| v1::DropSlotRequest {
        name: "s".to_owned(),
        holder: String::new(),
        force,
    };
    let refused = fanout
        .client
        .drop_slot(drop_slot(false))
        .await
        .err()
        .unwrap();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    fanout.client.drop_slot(drop_slot(true)).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(5), subscription.stream.message());
    assert_eq!(ended.await.unwrap().err().unwrap().code(), Code::Aborted);
    let unknown = fanout.subscribe(slot_request(Lsn(0))).await.err().unwrap();
    assert_eq!(unknown.code(), Code::NotFound, "{unknown}");
}

#[tokio::test]
async fn status_and_catalog_say_what_is_there() {
    let (mut log, ends) = simple_log(2);
    let mut fanout = Fanout::start(&mut log).await;
    let _subscription = fanout.subscribe(request(ends[0], Lsn(0))).await.unwrap();
    let status = fanout
        .client
        .get_fanout_status(v1::GetFanoutStatusRequest {});
    let status = status.await.unwrap().into_inner();
    assert_eq!(status.head_lsn, ends[1].0);
    assert_eq!(status.subscribers.len(), 1);
    assert_eq!(status.subscribers[0].protocol, "grpc");
    assert!(!status.decoder_connected);
    for (lsn, relations) in [(Lsn(0), 1), (ends[1], 1), (Lsn(status.oldest_lsn), 0)] {
        let request = v1::GetCatalogRequest { lsn: lsn.0 };
        let catalog = fanout
            .client
            .get_catalog(request)
            .await
            .unwrap()
            .into_inner();
        assert_eq!(catalog.relations.len(), relations, "{lsn}");
    }
}

#[tokio::test]
async fn a_time_is_the_first_transaction_that_committed_then() {
    let (mut log, ends) = simple_log(4);
    let mut fanout = Fanout::start(&mut log).await;
    let mut all = fanout.subscribe(request(Lsn(0), ends[3])).await.unwrap();
    let (parts, _) = all.collect().await;
    let times: Vec<i64> = parts
        .iter()
        .map(|part| part.commit.as_ref().unwrap().commit_time)
        .collect();
    let wanted = SubscribeRequest {
        start: Some(Start::StartTime(times[1] + 1)),
        ..request(Lsn(0), ends[3])
    };
    let mut later = fanout.subscribe(wanted).await.unwrap();
    let (parts, _) = later.collect().await;
    assert_eq!(parts.len(), 2);
}
