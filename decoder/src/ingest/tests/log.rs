//! The threads over a real log in a temporary directory, and what a reader finds there.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pg_proto::{Lsn, PgTimestamp};
use service::config::Config;
use storage_format::Identity;
use storage_format::catalog::ServerParameters;
use storage_format::fs::{Fs, RealFs};
use storage_format::log::{Log, ReadOptions, TransactionIter};
use storage_format::write::{LogWriter, Recovery, WriterOptions};
use tempfile::TempDir;

use super::messages::{
    begin, commit, insert, message, recogniser, relation, state, stream_abort, stream_commit,
    stream_start, stream_stop,
};
use crate::clock::SystemClock;
use crate::ingest::Pipeline;
use crate::metrics::Metrics;
use crate::state::DecoderState;
use crate::threads::{ThreadSettings, Threads};

const START: u64 = 0x10;

/// A decoder without a source.
struct Running {
    threads: Threads,
    pipeline: Pipeline,
    state: Arc<DecoderState>,
}

impl Running {
    fn start(directory: &Path) -> (Self, Recovery) {
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        let identity = Identity {
            system_identifier: 7,
            timeline: 1,
            database: "postgres".to_owned(),
            slot: "decant".to_owned(),
            writer_epoch: 0,
        };
        let options = WriterOptions {
            segment_bytes: 1 << 20,
            start_lsn: Lsn(START),
        };
        let (writer, recovery) =
            LogWriter::open(directory, options, identity, Arc::clone(&fs)).unwrap();
        let mut config = Config::default();
        config.log.directory = directory.to_owned();
        config.decoder.progress_interval_ms = 1;
        let state = state();
        let mut registry = prometheus_client::registry::Registry::default();
        let settings = ThreadSettings {
            config: &config,
            fs,
            clock: Arc::new(SystemClock),
            state: Arc::clone(&state),
            metrics: Metrics::register(&mut registry, &state),
            recogniser: recogniser(),
        };
        let (threads, pipeline) = Threads::start(writer, &recovery, settings).unwrap();
        let running = Self {
            threads,
            pipeline,
            state,
        };
        (running, recovery)
    }

    async fn feed(&self, messages: &[Vec<u8>]) {
        let session = self.pipeline.begin(ServerParameters::default(), 1).unwrap();
        session.batch(batch(messages)).await.unwrap();
    }

    async fn wait_durable(&self, lsn: u64) {
        let durable = self.state.wait_durable(Lsn(lsn));
        tokio::time::timeout(Duration::from_secs(10), durable)
            .await
            .unwrap()
            .unwrap();
    }
}

/// Each message in an XLogData in a CopyData.
fn batch(messages: &[Vec<u8>]) -> Bytes {
    let mut batch = Vec::new();
    for message in messages {
        let length = u32::try_from(4 + 25 + message.len()).unwrap();
        batch.push(b'd');
        batch.extend_from_slice(&length.to_be_bytes());
        batch.push(b'w');
        batch.extend_from_slice(&3_u64.to_be_bytes());
        batch.extend_from_slice(&3_u64.to_be_bytes());
        batch.extend_from_slice(&PgTimestamp(2).0.to_be_bytes());
        batch.extend_from_slice(message);
    }
    batch.into()
}

fn keepalive(end: u64) -> Bytes {
    let mut frame = b"d\0\0\0\x16k".to_vec();
    frame.extend_from_slice(&end.to_be_bytes());
    frame.extend_from_slice(&[0; 9]);
    frame.into()
}

/// The kinds of all records in the log, with the commit position in front of each transaction's first.
fn records(directory: &Path) -> Vec<String> {
    let log = Log::open(directory, ReadOptions::default()).unwrap();
    let cursor = log.cursor_at(Lsn(START)).unwrap();
    let mut records = TransactionIter::new(cursor);
    let mut found = Vec::new();
    let mut transaction = Lsn::INVALID;
    while let Some(record) = records.next_record().unwrap() {
        if record.commit_lsn != transaction {
            transaction = record.commit_lsn;
            found.push(transaction.to_string());
        }
        found.push(format!("{:?}", record.kind().unwrap()));
    }
    found
}

fn transaction(at: u64) -> Vec<Vec<u8>> {
    vec![begin(at, 7), relation(None, 5), insert(None, 5), commit(at)]
}

const WHOLE: [&str; 4] = ["Begin", "Relation", "Insert", "Commit"];

#[tokio::test]
async fn transactions_become_durable_by_themselves_and_are_there_after_a_restart() {
    let directory = TempDir::new().unwrap();
    let (running, recovery) = Running::start(directory.path());
    assert!(recovery.created);
    assert_eq!(running.pipeline.reset().await.unwrap(), Lsn(START));
    running.feed(&transaction(0x20)).await;
    running.wait_durable(0x28).await;
    running.feed(&transaction(0x30)).await;
    running.wait_durable(0x38).await;
    assert_eq!(running.state.counters().transactions.get(), 2);
    assert_eq!(running.state.counters().changes.get(), 2);
    running.threads.join().await.unwrap();

    let (running, recovery) = Running::start(directory.path());
    assert_eq!(recovery.end_lsn, Lsn(0x38));
    assert_eq!(running.pipeline.reset().await.unwrap(), Lsn(0x38));
    // The source sends the last one again, as it does when the confirmation got lost.
    running.feed(&transaction(0x30)).await;
    running.feed(&transaction(0x40)).await;
    running.wait_durable(0x48).await;
    running.threads.join().await.unwrap();
    let mut expected = Vec::new();
    for at in ["0/20", "0/30", "0/40"] {
        expected.push(at);
        expected.extend(WHOLE);
    }
    assert_eq!(records(directory.path()), expected);
}

#[tokio::test]
async fn a_lost_connection_takes_its_open_transaction_with_it() {
    let directory = TempDir::new().unwrap();
    let (running, _) = Running::start(directory.path());
    // Large enough that blocks of the open transaction are in the file already.
    let mut open = transaction(0x20);
    open.push(begin(0x30, 8));
    open.extend((0..20_000).map(|_| insert(None, 5)));
    running.feed(&open).await;
    assert_eq!(running.pipeline.reset().await.unwrap(), Lsn(0x28));
    running.feed(&transaction(0x30)).await;
    running.wait_durable(0x38).await;
    running.threads.join().await.unwrap();
    let expected = [&["0/20"], &WHOLE[..], &["0/30"], &WHOLE[..]].concat();
    assert_eq!(records(directory.path()), expected);
}

#[tokio::test]
async fn a_transaction_larger_than_a_block_comes_out_whole() {
    const ROWS: usize = 30_000;
    let directory = TempDir::new().unwrap();
    let (running, _) = Running::start(directory.path());
    let mut large = vec![begin(0x30, 8)];
    large.extend((0..ROWS).map(|_| insert(None, 5)));
    large.push(commit(0x30));
    running.feed(&large).await;
    running.feed(&transaction(0x40)).await;
    running.wait_durable(0x48).await;
    assert!(running.state.counters().blocks.get() > 3);
    running.threads.join().await.unwrap();
    let found = records(directory.path());
    let inserts = found.iter().filter(|kind| *kind == "Insert").count();
    assert_eq!(inserts, ROWS + 1);
    assert_eq!(found.len(), ROWS + 3 + 5);
}

#[tokio::test]
async fn streamed_transactions_lose_what_was_rolled_back() {
    let directory = TempDir::new().unwrap();
    let (running, _) = Running::start(directory.path());
    running
        .feed(&[
            stream_start(7, true),
            relation(Some(8), 5),
            insert(Some(8), 5),
            insert(Some(7), 5),
            stream_stop(),
            stream_start(9, true),
            insert(Some(9), 5),
            stream_stop(),
            stream_abort(7, 8),
            stream_abort(9, 9),
        ])
        .await;
    running.feed(&transaction(0x20)).await;
    running.wait_durable(0x28).await;
    // A new session knows nothing of the streams, but the messages of one session come in one call here.
    running
        .feed(&[
            stream_start(7, true),
            relation(Some(8), 5),
            insert(Some(8), 5),
            insert(Some(7), 5),
            stream_stop(),
            stream_abort(7, 8),
            stream_commit(7, 0x30),
            stream_start(10, true),
            insert(Some(11), 5),
            stream_stop(),
            stream_abort(10, 11),
            stream_commit(10, 0x40),
        ])
        .await;
    running.wait_durable(0x48).await;
    let counters = running.state.counters();
    assert_eq!(counters.transactions.get(), 3);
    assert_eq!(counters.staged_transactions.get(), 0);
    running.threads.join().await.unwrap();
    // One of which nothing is left was committed, too.
    let expected = [
        &["0/20"],
        &WHOLE[..],
        &["0/30"],
        &WHOLE[..],
        &["0/40", "Begin", "Commit"],
    ]
    .concat();
    assert_eq!(records(directory.path()), expected);
    assert!(
        directory
            .path()
            .join("staging")
            .read_dir()
            .unwrap()
            .next()
            .is_none()
    );
}

#[tokio::test]
async fn an_idle_source_moves_the_log_on() {
    let directory = TempDir::new().unwrap();
    let (running, _) = Running::start(directory.path());
    let session = running
        .pipeline
        .begin(ServerParameters::default(), 1)
        .unwrap();
    for end in [0x100, 0x180, 0x200] {
        session.batch(keepalive(end)).await.unwrap();
    }
    running.wait_durable(0x200).await;
    session
        .batch(batch(&[message(None, false, 0x208, "alone")]))
        .await
        .unwrap();
    running.wait_durable(0x208).await;
    running.threads.join().await.unwrap();
    let (running, recovery) = Running::start(directory.path());
    assert_eq!(recovery.end_lsn, Lsn(0x208));
    running.threads.join().await.unwrap();
    assert_eq!(records(directory.path()), ["0/208", "Message"]);
}

#[tokio::test]
async fn server_parameters_are_stored_when_they_change() {
    let directory = TempDir::new().unwrap();
    let mut parameters = ServerParameters::default();
    parameters.set("server_version", "15.4");
    for blocks in [1, 0] {
        let (running, _) = Running::start(directory.path());
        running.pipeline.begin(parameters.clone(), 1).unwrap();
        running.pipeline.reset().await.unwrap();
        assert_eq!(running.state.counters().blocks.get(), blocks);
        running.threads.join().await.unwrap();
    }
    let (running, recovery) = Running::start(directory.path());
    assert_eq!(**recovery.catalog.parameters(), parameters);
    running.threads.join().await.unwrap();
}

#[tokio::test]
async fn another_timeline_begins_another_segment() {
    let directory = TempDir::new().unwrap();
    let (running, _) = Running::start(directory.path());
    running.feed(&transaction(0x20)).await;
    running.pipeline.reset().await.unwrap();
    running
        .pipeline
        .begin(ServerParameters::default(), 2)
        .unwrap();
    running.pipeline.reset().await.unwrap();
    running.threads.join().await.unwrap();
    let identity = storage_format::segment::read_identity(&RealFs, directory.path());
    assert_eq!(identity.unwrap().unwrap().timeline, 2);
}
