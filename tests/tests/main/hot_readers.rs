//! Readers of the very segments that are deleted meanwhile: a file that is gone stays readable for who has it open, and who
//! comes too late is told what is kept. Nobody is ended by a signal, nobody gets anything else than the log has.

use std::collections::HashMap;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pg_proto::Lsn;
use proto::v1::control_client::ControlClient;
use proto::v1::{CreateSlotRequest, DropSlotRequest, ListSegmentsRequest};
use tests::scale::{patience, pick};
use tests::subscriber::{GrpcSubscriber, Keep, StreamClient, from_lsn};
use tests::wait_until;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

use super::load::Load;

const OPTIONS: &str = "proto_version '1', publication_names 'everything'";
/// What who was overtaken may be told: the position is not kept (any more), or the slot was given up, while it was used or
/// before. Who says something just when it is told so may see the closed connection first.
const OVERTAKEN: [&str; 5] = [
    "Connection reset by peer",
    "its replication slot was dropped, invalidated or taken over",
    "no longer kept",
    "is not kept",
    "invalidated because it exceeded the maximum reserved size",
];

/// What the readers have done so far.
#[derive(Debug, Default)]
struct Tally {
    stop: AtomicBool,
    rounds: [AtomicU64; KINDS],
    overtaken: AtomicU64,
}

/// Streams of the replication protocol, gRPC streams, `decctl dump`, `decctl tail`.
const KINDS: usize = 4;

impl Tally {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn count(&self, kind: usize) {
        self.rounds[kind].fetch_add(1, Ordering::Relaxed);
    }

    /// The only error that there may be.
    fn overtaken(&self, error: &str) {
        let known = OVERTAKEN.iter().any(|words| error.contains(words));
        assert!(known, "{error}");
        self.overtaken.fetch_add(1, Ordering::Relaxed);
    }
}

/// The commits of one stream, in order.
type Commits = Vec<Lsn>;

async fn oldest(control: &mut ControlClient<Channel>) -> Lsn {
    let segments = control.list_segments(ListSegmentsRequest {}).await;
    let segments = segments.unwrap().into_inner().segments;
    Lsn(segments[0].first_lsn)
}

/// From the oldest position to the head, again and again, each time with a slot of its own.
async fn stream(load: &mut Load, tally: &Arc<Tally>, number: usize) -> JoinHandle<Vec<Commits>> {
    let endpoint = load.stage.decant.fanout(0).endpoint();
    let mut control = load.stage.decant.control().await;
    let tally = Arc::clone(tally);
    tokio::spawn(async move {
        let mut all = Vec::new();
        for round in 0.. {
            if !tally.goes_on() {
                break;
            }
            let name = format!("hot_{number}_{round}");
            let request = CreateSlotRequest {
                name: name.clone(),
                start_lsn: Some(oldest(&mut control).await.0),
                plugin: "pgoutput".to_owned(),
                ..CreateSlotRequest::default()
            };
            if let Err(status) = control.create_slot(request).await {
                tally.overtaken(status.message());
                continue;
            }
            match StreamClient::start(&endpoint, &name, Lsn::INVALID, OPTIONS).await {
                Ok(mut client) => {
                    let end = Lsn(head(&mut control).await);
                    let (read, error) = client.receive_until_or_error(end, patience()).await;
                    all.push(read.iter().map(|one| one.commit_lsn).collect());
                    if let Some(error) = error {
                        tally.overtaken(&error.to_string());
                    }
                }
                Err(error) => tally.overtaken(&error.to_string()),
            }
            let request = DropSlotRequest {
                name,
                force: true,
                ..DropSlotRequest::default()
            };
            control.drop_slot(request).await.unwrap();
            tally.count(0);
        }
        all
    })
}

async fn head(control: &mut ControlClient<Channel>) -> u64 {
    let status = control.get_status(proto::v1::GetStatusRequest {}).await;
    status
        .unwrap()
        .into_inner()
        .log
        .unwrap_or_default()
        .durable_lsn
}

async fn grpc(load: &mut Load, tally: &Arc<Tally>) -> JoinHandle<Vec<Commits>> {
    let url = load.stage.decant.fanout(0).grpc_url();
    let mut control = load.stage.decant.control().await;
    let tally = Arc::clone(tally);
    tokio::spawn(async move {
        let mut all = Vec::new();
        while tally.goes_on() {
            let start = oldest(&mut control).await;
            let mut request = from_lsn(start);
            let options = request.options.get_or_insert_default();
            options.end_lsn = head(&mut control).await;
            let subscriber = GrpcSubscriber::start(url.clone(), request, Keep::Counts);
            let received = subscriber.ended(patience()).await;
            if let Some(error) = &received.error {
                tally.overtaken(error);
            }
            all.push(received.transactions.iter().map(|one| one.0).collect());
            tally.count(1);
        }
        all
    })
}

/// A program that reads from the oldest position on, again and again.
fn program(
    tally: &Arc<Tally>,
    kind: usize,
    run: impl Fn() -> Output + Send + 'static,
) -> JoinHandle<()> {
    let tally = Arc::clone(tally);
    tokio::task::spawn_blocking(move || {
        while tally.goes_on() {
            let output = run();
            // No exit status: a signal, such as SIGBUS.
            assert!(output.status.code().is_some(), "{}", output.status);
            if !output.status.success() {
                tally.overtaken(&String::from_utf8_lossy(&output.stderr));
            }
            tally.count(kind);
        }
    })
}

/// Until everybody has read for a while, and somebody came too late; or until a reader `ended`, which none should.
async fn wait_until_overtaken(load: &Load, tally: &Tally, ended: impl Fn() -> bool) {
    let wanted = pick(25, 400);
    wait_until("segments go while they are read", patience(), async || {
        load.stage.decant.decctl_successfully(&["gc"]);
        let rounds = tally.rounds.iter();
        let rounds: Vec<u64> = rounds.map(|count| count.load(Ordering::Relaxed)).collect();
        let overtaken = tally.overtaken.load(Ordering::Relaxed);
        let mut control = load.stage.decant.control().await;
        let segments = control.list_segments(ListSegmentsRequest {}).await;
        let oldest = segments.unwrap().into_inner().segments[0].sequence;
        let enough = rounds.iter().all(|count| *count >= 3) && overtaken > 0 && oldest > wanted;
        if enough || ended() {
            return Ok(());
        }
        Err(format!(
            "rounds {rounds:?}, {overtaken} overtaken, the oldest is {oldest}"
        ))
    })
    .await;
}

/// Each stream has transactions that follow each other in the log, and nothing else.
fn assert_parts_of_the_log(load: &Load, streams: &[Commits]) {
    let order: HashMap<Lsn, usize> = load.grpc.look(|all| {
        let commits = all.transactions.iter().map(|one| one.0);
        commits.zip(0..).collect()
    });
    for commits in streams {
        let places: Vec<usize> = commits.iter().map(|lsn| order[lsn]).collect();
        let in_order = places.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        assert!(in_order, "{places:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_what_is_deleted_meanwhile() {
    let settings = [
        ("retention.keep_bytes", "1048576"),
        ("retention.keep_seconds", "0"),
        ("retention.interval_seconds", "1"),
        // Slots hold nothing back: so they are overtaken, too.
        ("retention.slot_keep_bytes_max", "1"),
        // Little, so that files are read and not what was read before.
        ("fanout.cache_bytes", "1048576"),
    ];
    let mut load = Load::start(None, &settings).await;
    let tally = Arc::new(Tally::default());
    let mut readers = Vec::new();
    for number in 0..pick(3, 12) {
        readers.push(stream(&mut load, &tally, number).await);
        readers.push(grpc(&mut load, &tally).await);
    }
    // What goes is at the beginning; the rest would only take time.
    let dump = ["dump", "--json", "--limit", "10000"];
    let dump = load.stage.decant.decctl_again(&dump);
    let until = load.durable().to_string();
    let url = load.stage.decant.fanout(0).grpc_url();
    let tail = ["tail", "--fanout", &url, "--from", "0/0", "--until", &until];
    let tail = load.stage.decant.decctl_again(&tail);
    let programs = [program(&tally, 2, dump), program(&tally, 3, tail)];
    let ended = || {
        readers.iter().any(JoinHandle::is_finished) || programs.iter().any(JoinHandle::is_finished)
    };
    wait_until_overtaken(&load, &tally, ended).await;
    tally.stop.store(true, Ordering::Relaxed);
    for program in programs {
        program.await.unwrap();
    }
    let mut read = Vec::new();
    for reader in readers {
        read.extend(reader.await.unwrap());
    }
    load.wait_for_progress().await;
    assert_parts_of_the_log(&load, &read);
    let overtaken = tally.overtaken.load(Ordering::Relaxed);
    eprintln!("rounds {:?}, {overtaken} overtaken", tally.rounds);
    let running = load.stage.decant.fanout(0).process().exit_status();
    assert_eq!(running, None);
    load.finish().await;
}
