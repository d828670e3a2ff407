//! Streams: from where to where, what and how fast.

use std::time::Duration;

use pg_proto::Lsn;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use proto::v1;
use proto::v1::event::Kind as EventKind;
use proto::v1::subscribe_request::Start;
use proto::v1::subscribe_response::Kind;
use proto::v1::{SubscribeRequest, TransactionPart};
use storage_format::record::RecordKind;
use tonic::Code;

use super::{Fanout, request, simple_log};
use crate::emit::EmitOptions;
use crate::selection::SelectionSpec;
use crate::testing::{Model, TestLog, actions};

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

const ROWS: u32 = 400;
const TRANSACTIONS: u32 = 300;

/// Far more blocks than a subscriber may be behind among those that follow, and than fit between it and its client.
fn long_log() -> TestLog {
    let mut log = TestLog::new();
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
    log
}

#[tokio::test]
async fn who_is_far_behind_catches_up_beside_the_others() {
    let mut log = long_log();
    let mut fanout = Fanout::start(&mut log).await;
    let catching_up = |count| {
        let lanes = fanout.services.lanes.clone();
        let reached = async move {
            while lanes.catching_up() != count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), reached)
    };
    let (far, near) = (catching_up(1), catching_up(0));
    let end = fanout.services.replay.head();
    let mut subscription = fanout.subscribe(request(Lsn(0), Lsn(0))).await.unwrap();
    let mut transactions = 0;
    while transactions < TRANSACTIONS / 2 {
        if let Some(Kind::Batch(batch)) = subscription.next().await {
            let ends = batch.parts.iter().filter(|part| part.commit.is_some());
            transactions += u32::try_from(ends.count()).unwrap();
        }
    }
    far.await.expect("it is far behind");
    while fanout.services.subscribers.connected()[0]
        .status(end)
        .lag_bytes
        > 0
    {
        subscription.next().await.unwrap();
    }
    near.await.expect("it is at the head");
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_nobody_up_and_misses_nothing() {
    let mut log = long_log();
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
