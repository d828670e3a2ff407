//! Leases, against a control service in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pg_proto::Lsn;
use proto::v1::SlotStatus;
use storage_format::record::RecordKind;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::client::LEASES_AT_A_TIME;
use super::{NewSlot, Positions, PositionsError, report, whole_transaction};
use crate::testing::TestLog;
use crate::testing::control::{self, Gate, Slots};

struct Setup {
    positions: Positions,
    slots: Slots,
    log: TestLog,
    /// Ends of whole transactions.
    ends: Vec<Lsn>,
    stop: CancellationToken,
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Three transactions, the second over several blocks, and a slot "s" at the first one's end.
async fn setup() -> Setup {
    let mut log = TestLog::new();
    let ends: Vec<Lsn> = (0..3).map(|_| append(&mut log)).collect();
    let replay = log.replay();
    let (address, slots) = control::serve(replay.clone()).await;
    let positions = Positions::new(&format!("http://{address}"), "fanout-1").unwrap();
    let slot = NewSlot {
        name: "s".to_owned(),
        start: Some(ends[0]),
        ..NewSlot::default()
    };
    positions.create_slot(slot).await.unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(report(
        positions.clone(),
        Arc::clone(replay.log()),
        stop.clone(),
    ));
    Setup {
        positions,
        slots,
        log,
        ends,
        stop,
    }
}

fn append(log: &mut TestLog) -> Lsn {
    log.begin(4);
    log.relation(0, 0);
    for id in 0..4 {
        log.row(RecordKind::Insert, 0, id);
        if id == 2 {
            log.cut();
        }
    }
    log.commit()
}

fn stored(slots: &Slots) -> SlotStatus {
    slots.lock()["s"].clone()
}

/// Waits until the stored slot is as it should be.
async fn until(slots: &Slots, what: impl Fn(&SlotStatus) -> bool) {
    for _ in 0..500 {
        if what(&stored(slots)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?}", stored(slots));
}

#[tokio::test]
async fn what_is_confirmed_is_reported_as_the_end_of_a_whole_transaction() {
    let setup = setup().await;
    let lease = setup.positions.acquire("s").await.unwrap();
    assert_eq!(lease.confirmed(), setup.ends[0]);
    let sent = setup.ends[2];
    // Inside the third transaction, and one byte behind the second.
    lease.confirm(Lsn(setup.ends[1].0 + 1), sent);
    until(&setup.slots, |slot| slot.confirmed_lsn == setup.ends[1].0).await;
    // Never back, and never beyond what was sent.
    lease.confirm(Lsn(1), sent);
    lease.confirm(Lsn::MAX, sent);
    until(&setup.slots, |slot| slot.confirmed_lsn == sent.0).await;
    assert!(stored(&setup.slots).holder.starts_with("fanout-1/"));
    drop(lease);
    until(&setup.slots, |slot| slot.holder.is_empty()).await;
}

#[tokio::test]
async fn one_connection_at_a_time_and_the_next_one_waits_for_the_release() {
    let setup = setup().await;
    let lease = setup.positions.acquire("s").await.unwrap();
    let second = setup.positions.acquire("s").await;
    assert!(matches!(second, Err(PositionsError::SlotInUse { .. })));
    let dropped = setup.positions.drop_slot("s", false).await;
    assert!(matches!(dropped, Err(PositionsError::SlotInUse { .. })));
    lease.confirm(setup.ends[1], setup.ends[1]);
    drop(lease);
    // The release is under way; its answer must not end the new lease.
    let lease = setup.positions.acquire("s").await.unwrap();
    assert_eq!(lease.confirmed(), setup.ends[1]);
    assert!(!stored(&setup.slots).holder.is_empty());
    lease.release().await.unwrap();
    assert!(stored(&setup.slots).holder.is_empty());
    let unknown = setup.positions.acquire("nosuch").await;
    assert!(matches!(unknown, Err(PositionsError::UnknownSlot { .. })));
    assert_eq!(setup.positions.lease_count(), 0);
    setup.positions.drop_slot("s", false).await.unwrap();
    assert!(setup.positions.slot("s").await.unwrap().is_none());
}

/// Thousands may come in the same second: each counts the time for its answer from its turn on, not from its arrival.
#[tokio::test]
async fn many_at_once_wait_for_their_turn() {
    const SLOTS: usize = 3 * LEASES_AT_A_TIME;
    let gate = Arc::new(Gate {
        asked: AtomicUsize::new(0),
        answers: Semaphore::new(0),
    });
    let replay = TestLog::new().replay();
    let (address, _slots) = control::serve_behind(replay, Arc::clone(&gate)).await;
    let positions = Positions::new(&format!("http://{address}"), "fanout-1").unwrap();
    let mut takers = JoinSet::new();
    for number in 0..SLOTS {
        let name = format!("s{number}");
        let slot = NewSlot {
            name: name.clone(),
            start: Some(Lsn(1)),
            ..NewSlot::default()
        };
        positions.create_slot(slot).await.unwrap();
        let positions = positions.clone();
        takers.spawn(async move { positions.acquire(&name).await });
    }
    while gate.asked.load(Ordering::SeqCst) < LEASES_AT_A_TIME {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(gate.asked.load(Ordering::SeqCst), LEASES_AT_A_TIME);
    gate.answers.add_permits(SLOTS);
    let leases: Result<Vec<_>, _> = takers.join_all().await.into_iter().collect();
    assert_eq!(leases.unwrap().len(), SLOTS);
}

#[tokio::test]
async fn a_lease_that_somebody_else_has_is_lost() {
    let setup = setup().await;
    let lease = setup.positions.acquire("s").await.unwrap();
    // Ran out, and nobody took it: it is taken again.
    setup.slots.lock().get_mut("s").unwrap().holder.clear();
    until(&setup.slots, |slot| slot.holder.starts_with("fanout-1/")).await;
    setup.slots.lock().get_mut("s").unwrap().holder = "fanout-2/9".to_owned();
    let lost = tokio::time::timeout(Duration::from_secs(5), lease.lost());
    lost.await.unwrap();
    drop(lease);
    setup.positions.all_given_back().await;
    assert_eq!(stored(&setup.slots).holder, "fanout-2/9");
    let taken = setup.positions.acquire("s").await;
    assert!(matches!(taken, Err(PositionsError::SlotInUse { .. })));
}

#[tokio::test]
async fn without_a_decoder_the_answer_says_so() {
    let positions = Positions::new("http://127.0.0.1:9", "fanout-1").unwrap();
    let error = positions.acquire("s").await.unwrap_err();
    assert!(
        matches!(error, PositionsError::Unavailable { .. }),
        "{error}"
    );
    assert!(!positions.connected());
    assert!(Positions::new("not an address", "fanout-1").is_err());
}

#[tokio::test]
async fn positions_are_rounded_down_to_what_can_be_started_from() {
    let mut setup = setup().await;
    setup.log.progress();
    let (lone, _) = setup.log.lone_message(1);
    let head = append(&mut setup.log);
    setup.log.sync();
    let log = setup.log.log();
    let floor = setup.ends[0];
    let mut boundaries = setup.ends.clone();
    boundaries.extend([lone, head]);
    for lsn in (floor.0..=head.0 + 16).map(Lsn) {
        let whole = whole_transaction(&log, floor, lsn).await.unwrap();
        let below = boundaries.iter().filter(|end| **end <= lsn).max();
        assert!(whole <= lsn, "{whole} for {lsn}");
        assert!(whole >= *below.unwrap(), "{whole} for {lsn}");
        // What lies between is progress, which ends no transaction.
        let open = setup.ends[2] < lsn && lsn < head;
        assert!(open || boundaries.contains(&whole), "{whole} for {lsn}");
    }
}
