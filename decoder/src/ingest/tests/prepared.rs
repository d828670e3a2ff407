//! Two-phase commit: what each sequence means.

use super::messages::{
    Bench, begin, begin_prepare, commit, commit_prepared, insert, prepare, rollback_prepared,
    stream_prepare, stream_start, stream_stop,
};
use crate::ingest::error::StreamError;

#[test]
fn it_is_staged_and_decided_later() {
    let mut bench = Bench::new(0x10);
    let told = bench.feed_all(&[
        begin_prepare(0x20, 7),
        insert(None, 5),
        prepare(0x20, 7),
        begin(0x30, 8),
        insert(None, 5),
        commit(0x30),
        commit_prepared(0x40, 7),
    ]);
    assert_eq!(
        told,
        [
            "stage 7 whole",
            "Insert of 7/7",
            "prepare 7 0/28",
            "begin 0/30",
            "Insert",
            "commit 0/38",
            "commit prepared 7 0/48",
            "advance 0/48",
        ]
    );
}

#[test]
fn one_that_came_in_pieces_is_prepared_too() {
    let mut bench = Bench::new(0x10);
    let told = bench.feed_all(&[
        stream_start(7, true),
        insert(Some(9), 5),
        stream_stop(),
        stream_prepare(0x20, 7),
        rollback_prepared(0x20, 0x40, 7),
    ]);
    assert_eq!(
        told,
        [
            "stage 7",
            "Insert of 7/9",
            "stop 7",
            "prepare 7 0/28",
            "rollback prepared 7 0/40",
            "advance 0/40",
        ]
    );
}

#[test]
fn one_that_was_prepared_long_ago_comes_late() {
    let mut bench = Bench::new(0x100);
    let told = bench.feed_all(&[
        begin_prepare(0x20, 7),
        insert(None, 5),
        prepare(0x20, 7),
        commit_prepared(0x110, 7),
    ]);
    assert_eq!(
        told,
        [
            "stage 7 whole",
            "Insert of 7/7",
            "prepare 7 0/28 late",
            "commit prepared 7 0/118",
            "advance 0/118",
        ]
    );
}

#[test]
fn what_the_log_has_already_is_not_taken_again() {
    let mut bench = Bench::new(0x30);
    let told = bench.feed_all(&[
        rollback_prepared(0x10, 0x30, 6),
        begin_prepare(0x40, 7),
        prepare(0x40, 7),
        begin_prepare(0x40, 7),
        insert(None, 5),
        prepare(0x40, 7),
        commit_prepared(0x50, 7),
    ]);
    assert_eq!(
        told,
        [
            "stage 7 whole",
            "prepare 7 0/48",
            "commit prepared 7 0/58",
            "advance 0/58",
        ]
    );
    let mut bench = Bench::new(0x60);
    assert_eq!(bench.feed_all(&[commit_prepared(0x50, 7)]), [""; 0]);
}

#[test]
fn a_commit_of_what_never_came_is_an_error() {
    let mut bench = Bench::new(0x10);
    let error = bench.feed(&commit_prepared(0x50, 7)).unwrap_err();
    assert!(matches!(error, StreamError::UnknownPrepared { .. }));
}

#[test]
fn begin_and_prepare_belong_together() {
    let mut bench = Bench::new(0x10);
    bench.feed(&begin_prepare(0x20, 7)).unwrap();
    let error = bench.feed(&prepare(0x21, 7)).unwrap_err();
    assert!(matches!(error, StreamError::Mismatch { .. }));
}
