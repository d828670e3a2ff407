//! Waking those who wait at the head, and the catalog there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use storage_format::record::RecordKind;
use tokio_util::sync::CancellationToken;

use super::{HeadWatcher, Replay, StagedFiles};
use crate::positions::Positions;
use crate::testing::TestLog;
use crate::versions::VersionsFile;

fn append(log: &mut TestLog, table: u8) {
    log.begin(1);
    log.relation(table, 1);
    log.row(RecordKind::Insert, table, 1);
    log.commit();
}

#[tokio::test]
async fn without_a_decoder_the_head_is_looked_at() {
    let mut log = TestLog::new();
    append(&mut log, 0);
    log.sync();
    let opened = log.log();
    let positions = Positions::new("http://127.0.0.1:9", "fanout-1").unwrap();
    let (watcher, head) = HeadWatcher::new(
        Arc::clone(&opened),
        positions,
        StagedFiles::new(Arc::clone(&opened)),
        VersionsFile::new(opened.directory()),
    );
    let stop = CancellationToken::new();
    let watching = tokio::spawn(watcher.run(stop.clone()));
    let replay = Replay::new(opened, head);
    for table in 1..4 {
        append(&mut log, table);
        let lsn = log.sync();
        let reached = tokio::time::timeout(Duration::from_secs(5), replay.reached(lsn));
        reached.await.unwrap().unwrap();
    }
    stop.cancel();
    watching.await.unwrap();
    let ended = replay.reached(pg_proto::Lsn::MAX).await;
    assert!(ended.is_err());
}

#[tokio::test]
async fn the_catalog_is_that_of_the_head() {
    let mut log = TestLog::new();
    let replay = log.replay();
    assert!(replay.catalog().unwrap().relations().is_empty());
    for table in 0..4 {
        append(&mut log, table);
        if table == 2 {
            log.finish_segment();
        }
        log.sync();
        let catalog = replay.catalog().unwrap();
        assert_eq!(catalog.relations().len(), usize::from(table) + 1);
    }
    assert!(Arc::ptr_eq(
        &replay.catalog().unwrap(),
        &replay.catalog().unwrap()
    ));
}

#[tokio::test]
async fn who_waits_is_woken_by_what_comes_between_looking_and_waiting() {
    let mut log = TestLog::new();
    let replay = log.replay();
    let options = super::StreamOptions {
        emit: crate::emit::EmitOptions {
            start: replay.head(),
            ..Default::default()
        },
        ..Default::default()
    };
    let mut stream = replay.open(options).unwrap();
    let mut frames = crate::emit::Frames::default();
    assert_eq!(stream.advance(&mut frames).unwrap(), super::Advance::AtHead);
    append(&mut log, 0);
    log.sync();
    let since = Instant::now();
    stream.head_moved().await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(1));
    let advance = stream.advance(&mut frames).unwrap();
    assert!(matches!(advance, super::Advance::Moved(_)), "{advance:?}");
    assert!(!frames.is_empty());
}
