//! Prepared transactions that come from another origin, for subscribers of `origin = none`: beside a native walsender.
//!
//! A walsender asks of each record for the origin of the session that wrote it (`DecodePrepare`, `DecodeCommit`,
//! `DecodeAbort`). An apply worker has its origin at PREPARE and at the end, so that a subscriber gets neither or both.

use pg_proto::Lsn;
use pg_proto::pgoutput::{Framing, Message, decode};
use tests::scale::patience;
use tests::subscriber::{PieceClient, Unit, when_free};
use tests::{Endpoint, Session};

use super::stage::Stage;

const TABLES: &str = "create table t (id int primary key, v text)";
const SLOT: &str = "two_phase";
const ELSEWHERE: &str = "select pg_replication_origin_session_setup('elsewhere')";
const HERE: &str = "select pg_replication_origin_session_reset()";

#[tokio::test(flavor = "multi_thread")]
async fn they_are_sent_to_nobody_who_wants_local_ones_only() {
    for major in [16, 17, 18] {
        compare(major).await;
    }
}

/// It has no such option.
#[tokio::test(flavor = "multi_thread")]
async fn version_15_sends_them_all() {
    compare(15).await;
}

async fn compare(major: u32) {
    let mut stage = stage(major).await;
    let mut session = stage.source.session().await;
    for step in [
        ELSEWHERE,
        "begin; insert into t values (1); prepare transaction 'committed'",
        "begin; insert into t values (2); prepare transaction 'rolled back'",
        "begin; insert into t select g, repeat('x', 50) from generate_series(1000, 5000) g; \
         prepare transaction 'large'",
        HERE,
        "begin; insert into t values (3); prepare transaction 'local'",
    ] {
        session.run(step).await;
    }
    stage.settle().await;
    // What the decoder knows of them has to come from their files.
    stage.decant.kill_decoder();
    stage.decant.start_decoder().await;
    for step in [
        ELSEWHERE,
        "commit prepared 'committed'",
        "rollback prepared 'rolled back'",
        "rollback prepared 'large'",
        HERE,
        "rollback prepared 'local'",
        "insert into t values (4)",
    ] {
        session.run(step).await;
    }
    let end = stage.settle().await;
    let (native, ours) = read_both(&mut stage, options(""), end).await;
    assert_eq!(native, ours, "version {major}");
    assert_eq!(ours.len(), 9, "version {major}: {ours:?}");
    if major >= 16 {
        let (native, ours) = read_both(&mut stage, options(", origin 'none'"), end).await;
        assert_eq!(native, ours, "version {major}");
        let local = ["prepare local", "rollback local", "commit"];
        assert_eq!(ours, local, "version {major}");
    }
}

/// A session of another origin than the PREPARE's may decide it, as somebody does who clears up by hand. The walsender then
/// sends half of it; what the decoder gets does not say who decided, so a fanout goes by the PREPARE for both.
#[tokio::test(flavor = "multi_thread")]
async fn the_prepare_tells_where_a_transaction_came_from() {
    let mut stage = stage(16).await;
    let mut session = stage.source.session().await;
    for step in [
        ELSEWHERE,
        "begin; insert into t values (1); prepare transaction 'foreign 1'",
        "begin; insert into t values (2); prepare transaction 'foreign 2'",
        HERE,
        "commit prepared 'foreign 1'",
        "rollback prepared 'foreign 2'",
        "begin; insert into t values (3); prepare transaction 'local 1'",
        "begin; insert into t values (4); prepare transaction 'local 2'",
        ELSEWHERE,
        "commit prepared 'local 1'",
        "rollback prepared 'local 2'",
    ] {
        session.run(step).await;
    }
    let end = stage.settle().await;
    let (native, ours) = read_both(&mut stage, options(", origin 'none'"), end).await;
    let expected = [
        "commit foreign 1",
        "rollback foreign 2",
        "prepare local 1",
        "prepare local 2",
    ];
    assert_eq!(native, expected);
    let expected = [
        "prepare local 1",
        "prepare local 2",
        "commit local 1",
        "rollback local 2",
    ];
    assert_eq!(ours, expected);
}

async fn stage(major: u32) -> Stage {
    let settings = [("logical_decoding_work_mem", "64kB")];
    let mut stage = Stage::with_settings(major, &settings, 1, TABLES).await;
    let create = "select pg_replication_origin_create('elsewhere')";
    stage.source.sql(create).await;
    let fanout = stage.decant.fanout(0).endpoint();
    for endpoint in [&stage.source.endpoint(), &fanout] {
        let mut session = Session::connect_for_replication(endpoint).await.unwrap();
        let sql = format!(
            "CREATE_REPLICATION_SLOT {SLOT} LOGICAL pgoutput (SNAPSHOT 'nothing', TWO_PHASE)"
        );
        session.run(&sql).await;
    }
    stage
}

fn options(more: &str) -> String {
    format!(
        "proto_version '3', publication_names 'everything', streaming 'on', two_phase 'true'{more}"
    )
}

async fn read_both(stage: &mut Stage, options: String, end: Lsn) -> (Vec<String>, Vec<String>) {
    let fanout = stage.decant.fanout(0).endpoint();
    let native = read(&stage.source.endpoint(), &options, end).await;
    (native, read(&fanout, &options, end).await)
}

async fn read(from: &Endpoint, options: &str, end: Lsn) -> Vec<String> {
    let client = when_free(|| PieceClient::start(from, SLOT, Lsn::INVALID, options)).await;
    let units = client.unwrap().receive_until(end, patience()).await;
    units.iter().map(what_ended).collect()
}

/// How the unit ends. One that is prepared may come in pieces from one server and whole from the other.
fn what_ended(unit: &Unit) -> String {
    let (what, gid) = match decode(&unit.last().unwrap().payload, Framing::Plain).unwrap() {
        Message::Prepare(end) | Message::StreamPrepare(end) => ("prepare ", end.gid),
        Message::CommitPrepared(end) => ("commit ", end.gid),
        Message::RollbackPrepared(end) => ("rollback ", end.gid),
        Message::Commit(_) => ("commit", &b""[..]),
        other => panic!("{other:?}"),
    };
    format!("{what}{}", String::from_utf8_lossy(gid))
}
