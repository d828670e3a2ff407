//! The copy-both phase.

use pg_proto::pgoutput::{Framing, decode, tag};
use pg_proto::replication::{BackendCopy, Keepalive};

use super::*;

/// What came in one CopyData.
#[derive(Debug, PartialEq)]
enum Came {
    /// The pgoutput message's tag, and its position.
    Message(char, u64),
    Keepalive(Keepalive),
}

async fn next(stream: &mut CopyBoth) -> Option<Came> {
    let received = tokio::time::timeout(PATIENCE, stream.receiver().next()).await;
    let content = received.expect("nothing came").unwrap()?;
    Some(match BackendCopy::decode(content).unwrap() {
        BackendCopy::XLogData(data) => {
            decode(data.payload, Framing::Plain).unwrap();
            Came::Message(char::from(data.payload[0]), data.start.0)
        }
        BackendCopy::Keepalive(keepalive) => Came::Keepalive(keepalive),
    })
}

/// The messages up to and with the next COMMIT, keepalives left out.
async fn transaction(stream: &mut CopyBoth) -> String {
    let mut tags = String::new();
    loop {
        if let Came::Message(tag, _) = next(stream).await.unwrap() {
            tags.push(tag);
            if tag == char::from(tag::COMMIT) {
                return tags;
            }
        }
    }
}

/// The position of the next keepalive that is not below `lsn`.
async fn keepalive_at(stream: &mut CopyBoth, lsn: u64) -> Keepalive {
    loop {
        if let Came::Keepalive(keepalive) = next(stream).await.unwrap()
            && keepalive.end.0 >= lsn
        {
            return keepalive;
        }
    }
}

#[tokio::test]
async fn begins_with_a_keepalive_and_sends_each_transaction_once() {
    let mut harness = Harness::start().await;
    let mut stream = harness.stream("s", "0/0", "").await;
    let first = next(&mut stream).await.unwrap();
    assert!(matches!(&first, Came::Keepalive(k) if k.end == Lsn(0x120) && !k.reply_requested));
    harness.log.insert(0x200, "one");
    assert_eq!(transaction(&mut stream).await, "BRIC");
    harness.log.insert(0x300, "two");
    // The source has described the relation once more, so it is described once more here.
    assert_eq!(transaction(&mut stream).await, "BRIC");
    assert_eq!(keepalive_at(&mut stream, 0x310).await.end, Lsn(0x310));
}

#[tokio::test]
async fn what_is_not_published_is_told_by_a_keepalive() {
    let mut harness = Harness::start().await;
    let mut stream = harness.stream("s", "0/0", "").await;
    harness.log.insert_unpublished(0x200);
    assert_eq!(keepalive_at(&mut stream, 0x210).await.end, Lsn(0x210));
    harness.log.progress(0x500);
    assert_eq!(keepalive_at(&mut stream, 0x500).await.end, Lsn(0x500));
}

#[tokio::test]
async fn a_request_is_answered_at_once() {
    let harness = Harness::start().await;
    let mut stream = harness.stream("s", "0/0", "").await;
    next(&mut stream).await.unwrap();
    let asking = StatusUpdate {
        reply_requested: true,
        ..has(0)
    };
    for _ in 0..3 {
        stream.sender().status_update(&asking).await.unwrap();
        let answer = next(&mut stream).await.unwrap();
        assert!(matches!(answer, Came::Keepalive(k) if !k.reply_requested));
    }
}

#[tokio::test]
async fn confirmed_is_what_was_sent_whole_and_the_slot_resumes_there() {
    let mut harness = Harness::start().await;
    let mut stream = harness.stream("s", "0/0", "").await;
    harness.log.insert(0x200, "one");
    harness.log.insert(0x300, "two");
    transaction(&mut stream).await;
    transaction(&mut stream).await;
    keepalive_at(&mut stream, 0x310).await;
    // Inside the second transaction, and then something that was never sent.
    stream.sender().status_update(&has(0x305)).await.unwrap();
    let connection = stream.into_connection().await.unwrap();
    assert_eq!(harness.slots.lock()["s"].confirmed_lsn, 0x210);
    drop(connection);
    let mut stream = harness.stream("s", "0/0", "").await;
    assert_eq!(transaction(&mut stream).await, "BRIC");
    keepalive_at(&mut stream, 0x310).await;
    stream.sender().status_update(&has(u64::MAX)).await.unwrap();
    stream.into_connection().await.unwrap();
    assert_eq!(harness.slots.lock()["s"].confirmed_lsn, 0x310);
}

#[tokio::test]
async fn commands_go_on_after_copy_done() {
    let harness = Harness::start().await;
    let stream = harness.stream("s", "0/0", "").await;
    let mut connection = stream.into_connection().await.unwrap();
    // What a client sends before it has read the end of the stream is ignored.
    let late = pg_proto::wire::FrontendMessage::CopyData(b"r");
    connection.send_raw(&late).await.unwrap();
    let dropped = run(&mut connection, "DROP_REPLICATION_SLOT s WAIT").await;
    assert_eq!(dropped.tag, "DROP_REPLICATION_SLOT");
}

#[tokio::test]
async fn the_end_of_a_stream_is_spelled_as_by_a_walsender() {
    let harness = Harness::start().await;
    let mut connection = harness.connect().await;
    run(&mut connection, &create("s")).await;
    let start = b"START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1', publication_names 'p')";
    connection.send_query_raw(start).await.unwrap();
    assert_eq!(connection.next_frame().await.unwrap().tag(), b'W');
    let done = pg_proto::wire::FrontendMessage::CopyDone;
    connection.send_raw(&done).await.unwrap();
    let mut ending = Vec::new();
    while ending.last().is_none_or(|(tag, _)| *tag != b'Z') {
        let frame = connection.next_frame().await.unwrap();
        if frame.tag() != b'd' {
            let body = String::from_utf8_lossy(frame.body()).into_owned();
            ending.push((frame.tag(), body));
        }
    }
    let ending: Vec<_> = ending
        .iter()
        .map(|(tag, body)| (*tag, body.as_str()))
        .collect();
    assert_eq!(
        ending,
        [
            (b'c', ""),
            (b'C', "COPY 0\0"),
            (b'C', "START_REPLICATION\0"),
            (b'Z', "I")
        ]
    );
}

#[tokio::test]
async fn what_follows_copy_done_at_once_is_a_command() {
    let mut harness = Harness::start().await;
    let mut connection = harness.connect().await;
    run(&mut connection, &create("s")).await;
    harness.log.insert(0x200, &"x".repeat(60_000));
    let start = b"START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1', publication_names 'p')";
    connection.send_query_raw(start).await.unwrap();
    let done = pg_proto::wire::FrontendMessage::CopyDone;
    connection.send_raw(&done).await.unwrap();
    connection
        .send_query_raw(b"DROP_REPLICATION_SLOT s WAIT")
        .await
        .unwrap();
    let mut tags = String::new();
    while tags.matches('Z').count() < 2 {
        let frame = connection.next_frame().await.unwrap();
        tags.push(char::from(frame.tag()));
    }
    assert_eq!(tags.replace('d', ""), "WcCCZCZ");
}

#[tokio::test]
async fn one_connection_at_a_time_streams_from_a_slot() {
    let harness = Harness::start().await;
    let stream = harness.stream("s", "0/0", "").await;
    let mut other = harness.connect().await;
    let start = "START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1', publication_names 'p')";
    let pid = harness.slots.lock()["s"].holder_pid;
    assert!(pid >= 1 << 30, "{pid}");
    let active = (
        "55006".to_owned(),
        format!("replication slot \"s\" is active for PID {pid}"),
    );
    assert_eq!(refused(&mut other, start).await, active);
    assert_eq!(refused(&mut other, "DROP_REPLICATION_SLOT s").await, active);
    // A client that vanishes frees its slot; WAIT waits for that.
    drop(stream);
    run(&mut other, "DROP_REPLICATION_SLOT s WAIT").await;
}

#[tokio::test]
async fn a_silent_client_is_asked_and_then_left() {
    let harness = Harness::start().await;
    let mut options = harness.options();
    options.parameters = vec![("wal_sender_timeout".to_owned(), "300ms".to_owned())];
    let mut connection = Connection::connect(&options).await.unwrap();
    run(&mut connection, &create("s")).await;
    let start = "START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1', publication_names 'p')";
    let mut stream = connection.start_copy_both(start).await.unwrap();
    next(&mut stream).await.unwrap();
    let asked = next(&mut stream).await.unwrap();
    assert!(matches!(asked, Came::Keepalive(k) if k.reply_requested));
    let left = tokio::time::timeout(PATIENCE, stream.receiver().next()).await;
    assert!(left.unwrap().is_err(), "the connection goes on");
    eventually("the slot is free", || {
        harness.slots.lock()["s"].holder.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_shutdown_waits_until_the_client_has_everything() {
    let mut harness = Harness::start().await;
    let mut stream = harness.stream("s", "0/0", "").await;
    next(&mut stream).await.unwrap();
    harness.log.insert(0x200, "last");
    harness.shutdown.cancel();
    assert_eq!(transaction(&mut stream).await, "BRIC");
    loop {
        match next(&mut stream).await.unwrap() {
            Came::Keepalive(keepalive) if keepalive.reply_requested => break,
            _ => {}
        }
    }
    assert!(!harness.serving.is_finished());
    let late = Connection::connect(&harness.options()).await.unwrap_err();
    assert_eq!(late.server().unwrap().code(), "57P03");
    stream.sender().status_update(&has(0x210)).await.unwrap();
    while next(&mut stream).await.is_some() {}
    tokio::time::timeout(PATIENCE, &mut harness.serving)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(harness.slots.lock()["s"].confirmed_lsn, 0x210);
}

#[tokio::test]
async fn a_cancel_request_ends_a_stream_and_not_its_session() {
    let harness = Harness::start().await;
    let mut connection = harness.connect().await;
    run(&mut connection, &create("s")).await;
    let cancel = connection.cancel_token();
    let start = b"START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1', publication_names 'p')";
    connection.send_query_raw(start).await.unwrap();
    let mut tags = String::new();
    while !tags.ends_with('Z') {
        let frame = connection.next_frame().await.unwrap();
        if tags.is_empty() {
            eventually("the stream has begun", || {
                !harness.slots.lock()["s"].holder.is_empty()
            })
            .await;
            cancel.cancel().await.unwrap();
        }
        tags.push(char::from(frame.tag()));
    }
    assert_eq!(tags.replace('d', ""), "WEZ");
    run(&mut connection, "DROP_REPLICATION_SLOT s").await;
}

#[tokio::test]
async fn a_start_that_is_not_kept_is_an_error_with_the_range() {
    let harness = Harness::start().await;
    let mut connection = harness.connect().await;
    run(&mut connection, &create("s")).await;
    harness.slots.lock().get_mut("s").unwrap().confirmed_lsn = 0x10;
    let start = "START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1', publication_names 'p')";
    match connection.simple_query(start).await {
        Err(Error::Server(error)) => {
            assert_eq!(error.code(), "55000");
            assert_eq!(
                error.message(),
                "cannot read from logical replication slot \"s\""
            );
            assert!(
                error.detail().unwrap().contains("0/100 to 0/120"),
                "{error:?}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn logical_messages_of_the_stream_are_only_sent_when_asked_for() {
    let mut harness = Harness::start().await;
    let mut with = harness.stream("with", "0/0", ", messages 'true'").await;
    let mut without = harness.stream("without", "0/0", "").await;
    harness.log.lone_message(0x200, b"hello");
    harness.log.insert(0x300, "row");
    let message = loop {
        if let Came::Message(tag, start) = next(&mut with).await.unwrap() {
            break (tag, start);
        }
    };
    assert_eq!(message, ('M', 0x200));
    assert_eq!(transaction(&mut without).await, "BRIC");
}
