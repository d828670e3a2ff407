//! What each sequence means.

use super::messages::{
    Bench, begin, catalog_content, commit, delete, insert, message, origin, prefixed, relation,
    stream_abort, stream_commit, stream_start, stream_stop, truncate,
};
use crate::ingest::error::StreamError;

#[test]
fn a_transaction_passes_in_order() {
    let mut bench = Bench::new(0x10);
    let told = bench.feed_all(&[
        begin(0x20, 7),
        relation(None, 5),
        insert(None, 5),
        delete(5),
        truncate(),
        message(None, true, 0x1F, "hello"),
        commit(0x20),
    ]);
    let expected = [
        "begin 0/20",
        "Relation",
        "Insert",
        "Delete",
        "Truncate",
        "Message",
        "commit 0/28",
    ];
    assert_eq!(told, expected);
}

#[test]
fn what_the_log_has_already_is_dropped() {
    let mut bench = Bench::new(0x20);
    let told = bench.feed_all(&[
        begin(0x10, 7),
        relation(None, 5),
        insert(None, 5),
        commit(0x10),
        message(None, false, 0x20, "old"),
        begin(0x20, 8),
        insert(None, 5),
        commit(0x20),
        message(None, false, 0x29, "new"),
    ]);
    assert_eq!(
        told,
        ["begin 0/20", "Insert", "commit 0/28", "lone message 0/29"]
    );
}

#[test]
fn empty_transactions_leave_a_position() {
    let mut bench = Bench::new(0x10);
    let told = bench.feed_all(&[
        begin(0x20, 7),
        commit(0x20),
        begin(0x30, 8),
        origin(),
        commit(0x30),
        begin(0x40, 9),
        origin(),
        insert(None, 5),
        commit(0x40),
    ]);
    let expected = [
        "advance 0/28",
        "advance 0/38",
        "begin 0/40",
        "Origin",
        "Insert",
        "commit 0/48",
    ];
    assert_eq!(told, expected);
}

#[test]
fn keepalives_count_between_transactions_only() {
    let mut bench = Bench::new(0x10);
    bench.keepalive(0x10);
    bench.keepalive(0x18);
    bench.feed(&begin(0x20, 7)).unwrap();
    bench.keepalive(0x1C);
    bench.feed(&insert(None, 5)).unwrap();
    bench.keepalive(0x1D);
    bench.feed(&commit(0x20)).unwrap();
    bench.keepalive(0x19);
    bench.feed_all(&[stream_start(8, true), insert(Some(8), 5)]);
    bench.keepalive(0x30);
    bench.feed(&stream_stop()).unwrap();
    bench.keepalive(0x31);
    let expected = [
        "advance 0/18",
        "begin 0/20",
        "Insert",
        "commit 0/28",
        "stage 8",
        "Insert of 8/8",
        "stop 8",
        "advance 0/31",
    ];
    assert_eq!(bench.told.lines, expected);
}

#[test]
fn a_streamed_transaction_is_staged_by_subtransaction() {
    let mut bench = Bench::new(0x10);
    let told = bench.feed_all(&[
        stream_start(7, true),
        origin(),
        relation(Some(8), 5),
        insert(Some(8), 5),
        stream_stop(),
        begin(0x20, 9),
        insert(None, 5),
        commit(0x20),
        stream_abort(7, 8),
        stream_start(7, false),
        message(Some(7), true, 0x22, "hello"),
        insert(Some(7), 5),
        stream_stop(),
        stream_commit(7, 0x30),
    ]);
    let expected = [
        "stage 7",
        "Origin of 7/7",
        "Relation of 7/8",
        "Insert of 7/8",
        "stop 7",
        "begin 0/20",
        "Insert",
        "commit 0/28",
        "abort 7/8 0/3",
        "Message of 7/7",
        "Insert of 7/7",
        "stop 7",
        "commit staged 7 0/38",
        "advance 0/38",
    ];
    assert_eq!(told, expected);
}

#[test]
fn aborted_and_known_streams_are_forgotten() {
    let mut bench = Bench::new(0x30);
    let told = bench.feed_all(&[
        stream_start(7, true),
        insert(Some(7), 5),
        stream_stop(),
        stream_abort(7, 7),
        stream_start(8, true),
        insert(Some(8), 5),
        stream_stop(),
        stream_commit(8, 0x20),
    ]);
    let expected = [
        "stage 7",
        "Insert of 7/7",
        "stop 7",
        "abort 7/7 0/3",
        "stage 8",
        "Insert of 8/8",
        "stop 8",
        "discard 8",
    ];
    assert_eq!(told, expected);
    let lost = bench.feed(&stream_start(7, false)).unwrap_err();
    assert!(matches!(lost, StreamError::UnknownStream { .. }));
}

#[test]
fn publications_come_in_at_their_place() {
    let own = |xid, content: &str| prefixed(xid, true, 0x1F, b"decant", content);
    let mut bench = Bench::new(0x10);
    let told = bench.feed_all(&[
        begin(0x20, 7),
        own(None, &catalog_content(7)),
        commit(0x20),
        stream_start(8, true),
        own(Some(8), &catalog_content(8)),
        stream_stop(),
    ]);
    let expected = [
        "begin 0/20",
        "0 publications",
        "commit 0/28",
        "stage 8",
        "0 publications of 8/8",
        "stop 8",
    ];
    assert_eq!(told, expected);
    assert_eq!(bench.state.counters().forged_messages.get(), 0);
}

#[test]
fn forged_messages_stay_messages_and_are_counted() {
    let mut bench = Bench::new(0x10);
    let told = bench.feed_all(&[
        prefixed(None, false, 0x18, b"decant", &catalog_content(7)),
        begin(0x20, 7),
        prefixed(None, true, 0x1F, b"decant", &catalog_content(6)),
        prefixed(None, true, 0x1F, b"decant", "{}"),
        commit(0x20),
    ]);
    let expected = [
        "lone message 0/18",
        "begin 0/20",
        "Message",
        "Message",
        "commit 0/28",
    ];
    assert_eq!(told, expected);
    assert_eq!(bench.state.counters().forged_messages.get(), 3);
}

#[test]
fn a_broken_promise_or_a_broken_transaction_is_an_error() {
    let mut bench = Bench::new(0x10);
    bench.keepalive(0x30);
    let error = bench.feed(&begin(0x20, 7)).unwrap_err();
    assert!(matches!(error, StreamError::OutOfOrder { .. }), "{error}");

    let mut bench = Bench::new(0x10);
    bench.feed_all(&[begin(0x20, 7), insert(None, 5)]);
    let error = bench.feed(&commit(0x21)).unwrap_err();
    assert!(matches!(error, StreamError::Mismatch { .. }), "{error}");

    for (before, message) in [
        (vec![], insert(None, 5)),
        (vec![], commit(0x20)),
        (vec![begin(0x20, 7)], begin(0x28, 8)),
        (vec![begin(0x20, 7), insert(None, 5)], stream_stop()),
    ] {
        let mut bench = Bench::new(0x10);
        bench.feed_all(&before);
        let error = bench.feed(&message).unwrap_err();
        assert!(matches!(error, StreamError::Misplaced { .. }), "{error}");
    }
}

#[test]
fn malformed_messages_are_named_with_their_position() {
    let mut bench = Bench::new(0x10);
    bench.feed(&begin(0x20, 7)).unwrap();
    let mut broken = insert(None, 5);
    broken.pop();
    let text = bench.feed(&broken).unwrap_err().to_string();
    assert!(text.contains("0x49") && text.contains("0/10"), "{text}");
}
