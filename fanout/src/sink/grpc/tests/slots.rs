//! Streams that go on where their slot is.

use std::time::Duration;

use pg_proto::Lsn;
use proto::v1;
use proto::v1::SubscribeRequest;
use proto::v1::subscribe_request::Start;
use proto::v1::subscribe_response::Kind;
use tonic::Code;

use super::{Fanout, request, simple_log};

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
