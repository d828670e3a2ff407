//! Publications of Decant's own that count from an older position than the one at which they were made.

use pg_proto::Lsn;
use proto::v1::{GetCatalogRequest, SubscribeRequest};
use tests::expect::assert_mentions;
use tests::scale::{patience, pick};
use tests::sql::Endpoint;
use tests::subscriber::{
    GrpcSubscriber, Keep, PostgresSubscriber, StreamClient, Transaction, from_lsn, when_free,
};
use tests::{Session, wait_until};

use super::stage::Stage;

const TABLES: &str = "
    create table t (id int primary key, n int, v text);
    create table u (id int primary key, v text);
    create schema s;
    create table s.w (id int primary key);
    create table root (id int, r int, v text, primary key (id, r)) partition by list (r);
    create table leaf1 partition of root for values in (1);
    create table later (r int not null, id int not null, v text, primary key (id, r))";

/// What both kinds of publications publish: of Decant's own, and of the source.
const DEFINITIONS: &[(&str, &[&str], &str)] = &[
    ("plain", &["--table", "t", "--table", "u"], "for table t, u"),
    (
        "listed",
        &["--table", "t (id, v) where (id % 3 <> 0)"],
        "for table t (id, v) where (id % 3 <> 0)",
    ),
    (
        "rooted",
        &[
            "--table",
            "root (id, r) where (id < 50)",
            "--via-partition-root",
        ],
        "for table root (id, r) where (id < 50) with (publish_via_partition_root)",
    ),
    ("schema", &["--schema", "s"], "for tables in schema s"),
    (
        "all",
        &["--all-tables", "--publish", "insert, truncate"],
        "for all tables with (publish = 'insert, truncate')",
    ),
];

/// What is done behind the position from which on they count.
const CHANGES: &[&str] = &[
    "insert into t select g, g, 'v' from generate_series(10, 20) g; insert into u values (2, 'u')",
    "update t set n = 0, v = 'w' where id < 15; delete from t where id = 12",
    "update t set id = 300 where id = 13",
    "insert into root values (1, 1, 'a'), (60, 1, 'b'); insert into s.w values (1)",
    "alter table root attach partition later for values in (2); insert into root values (2, 2, 'c')",
    "update root set r = 2 where id = 1; alter table root detach partition later; insert into later values (2, 3, 'd')",
    "alter table u add more int; insert into u values (3, 'x', 4)",
    "create table s.x (id int primary key); insert into s.x values (1)",
    "begin; insert into t values (30, 1, 'a'); savepoint a; insert into t values (31, 1, 'a'); rollback to a; commit",
    "truncate u, s.w",
    "begin; insert into u values (33, 'a', 1), (34, 'a', 1); prepare transaction 'g'",
    "alter table t add added text; insert into t values (35, 1, 'a', 'b')",
    "commit prepared 'g'",
];

fn decctl(stage: &Stage, arguments: &[&str]) -> String {
    let all = [&["publication"], arguments].concat();
    stage.decant.decctl_successfully(&all)
}

fn refused(stage: &Stage, arguments: &[&str]) -> String {
    let all = [&["publication"], arguments].concat();
    stage.decant.decctl_unsuccessfully(&all)
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_what_the_sources_would_have_been_15() {
    they_are_what_the_sources_would_have_been(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_what_the_sources_would_have_been_18() {
    they_are_what_the_sources_would_have_been(18).await;
}

async fn they_are_what_the_sources_would_have_been(major: u32) {
    let settings = [("logical_decoding_work_mem", "64kB")];
    let mut stage = Stage::with_settings(major, &settings, 2, TABLES).await;
    let endpoints = [0, 1].map(|number| stage.decant.fanout(number).endpoint());
    let mut session = Session::connect_for_replication(&endpoints[0])
        .await
        .unwrap();
    let slot = "CREATE_REPLICATION_SLOT s LOGICAL pgoutput NOEXPORT_SNAPSHOT";
    session.run(slot).await;
    drop(session);
    stage.source.sql("insert into u values (1, 'before')").await;
    let mut open = stage.source.session().await;
    let rows =
        "begin; insert into t select g, g, repeat('x', 500) from generate_series(1000, 1200) g";
    // Up to version 17 a stream ends at a row that is older than the publication.
    let skips = major >= 18;
    if skips {
        open.run(rows).await;
    }
    for (name, _, definition) in DEFINITIONS {
        let sql = format!("create publication native_{name} {definition}");
        stage.source.sql(&sql).await;
    }
    let from = stage.source.flush_lsn().await;
    if !skips {
        open.run(rows).await;
    }
    open.run("insert into t select g, g, 'y' from generate_series(1201, 1210) g")
        .await;
    for (number, change) in CHANGES.iter().enumerate() {
        stage.source.sql(change).await;
        if number == 2 {
            open.run("commit").await;
        }
    }
    let altered = "t (id, n) where (id > 100)";
    let sql = format!("alter publication native_listed set table {altered}");
    stage.source.sql(&sql).await;
    let from_altered = stage.source.flush_lsn().await;
    stage
        .source
        .sql("insert into t values (50, 1), (150, 2)")
        .await;
    stage.settle().await;

    for (name, arguments, _) in DEFINITIONS {
        let from = from.to_string();
        let all = [&["create", name, "--from", &from], *arguments].concat();
        assert_mentions(&decctl(&stage, &all), &[name, &from]);
    }
    let again = from_altered.to_string();
    decctl(
        &stage,
        &["alter", "listed", "--table", altered, "--from", &again],
    );
    stage
        .source
        .sql("insert into t values (51, 1), (151, 2)")
        .await;
    let end = stage.settle().await;
    let start = if skips { Lsn::INVALID } else { from };
    assert_alike(&mut stage, &endpoints, (start, end)).await;
    stage.decant.stop_decoder().await;
    stage.decant.start_decoder().await;
    stage.decant.stop_fanout(1).await;
    stage.decant.restart_fanout(1).await;
    let endpoint = stage.decant.fanout(1).endpoint();
    assert_alike(&mut stage, &[endpoint], (start, end)).await;
    stage.decant.stop_decoder().await;
    stage.decant.decctl_successfully(&["verify"]);
}

async fn assert_alike(stage: &mut Stage, endpoints: &[Endpoint], (start, end): (Lsn, Lsn)) {
    for endpoint in endpoints {
        for (name, ..) in DEFINITIONS {
            let (own, theirs) = both(endpoint, name, start, end).await;
            assert_eq!(own, theirs, "{name}");
            let (own, error) = own;
            assert!(own.len() > 1 && error.is_none(), "{name}: {error:?}");
            for number in (0..own.len()).step_by(pick(4, 1)) {
                let boundary = own[number].end_lsn;
                let (rest, theirs) = both(endpoint, name, boundary, end).await;
                assert_eq!(rest, theirs, "{name} from {boundary}");
                let bare = |all: &[Transaction]| -> Vec<Transaction> {
                    let all = all.iter().cloned();
                    all.map(Transaction::without_schema).collect()
                };
                assert_eq!(
                    bare(&rest.0),
                    bare(&own[number + 1..]),
                    "{name} from {boundary}"
                );
            }
        }
    }
    // From the log's beginning, as gRPC does it: what is older than a publication is left out.
    for (name, ..) in DEFINITIONS {
        let own = grpc(stage, name, end).await;
        assert!(own.iter().any(|rows| !rows.is_empty()), "{name}");
        assert_eq!(
            own,
            grpc(stage, &format!("native_{name}"), end).await,
            "{name}"
        );
    }
}

type Outcome = (Vec<Transaction>, Option<String>);

async fn both(endpoint: &Endpoint, name: &str, start: Lsn, end: Lsn) -> (Outcome, Outcome) {
    let own = receive(endpoint, name, start, end).await;
    let (theirs, error) = receive(endpoint, &format!("native_{name}"), start, end).await;
    let error = error.map(|error| error.replace("native_", ""));
    (own, (theirs, error))
}

async fn receive(endpoint: &Endpoint, publication: &str, start: Lsn, end: Lsn) -> Outcome {
    let options = format!("proto_version '1', publication_names '{publication}'");
    let client = when_free(|| StreamClient::start(endpoint, "s", start, &options)).await;
    let mut client = client.unwrap_or_else(|error| panic!("{publication}: {error}"));
    let (received, error) = client.receive_until_or_error(end, patience()).await;
    (received, error.map(|error| error.to_string()))
}

fn of(publication: &str) -> SubscribeRequest {
    let mut request = from_lsn(Lsn::INVALID);
    request.publications = vec![publication.to_owned()];
    request
}

const SEEN: [&str; 6] = [
    "public.t",
    "public.u",
    "public.root",
    "public.later",
    "s.w",
    "s.x",
];

/// The rows of the tables that a subscriber has in the end.
async fn grpc(stage: &mut Stage, publication: &str, end: Lsn) -> Vec<Vec<Vec<Option<String>>>> {
    let url = stage.decant.fanout(0).grpc_url();
    let subscriber = GrpcSubscriber::start(url, of(publication), Keep::Rows);
    subscriber.wait_for(end, patience()).await;
    let received = subscriber.stop().await;
    assert_eq!(received.error, None, "{publication}");
    SEEN.map(|table| received.model.rows(table)).to_vec()
}

/// The ids of a table's rows.
async fn ids(stage: &mut Stage, publication: &str, end: Lsn) -> Vec<String> {
    let all = grpc(stage, publication, end).await;
    let rows = all[0].iter().map(|row| row[0].clone());
    rows.map(Option::unwrap_or_default).collect()
}

async fn insert(stage: &Stage, id: u32) -> Lsn {
    let sql = format!("insert into t (id, n, v) values ({id}, 1, 'v')");
    stage.source.sql(&sql).await;
    stage.source.flush_lsn().await
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_follow_each_other() {
    let mut stage = Stage::new(15, 2, TABLES).await;
    let mut places = vec![stage.settle().await];
    for id in 1..6 {
        places.push(insert(&stage, id).await);
    }
    stage.settle().await;
    let at = |number: usize| places[number].to_string();
    let (one, two, four) = (at(1), at(2), at(4));
    decctl(&stage, &["create", "p", "--table", "t"]);
    let end = insert(&stage, 6).await;
    assert_eq!(ids(&mut stage, "p", end).await, ["6"]);
    // One who is past all that sees later rows only.
    let url = stage.decant.fanout(0).grpc_url();
    let mut request = from_lsn(end);
    request.publications = vec!["p".to_owned()];
    let running = GrpcSubscriber::start(url, request, Keep::Rows);
    running.wait_for(end, patience()).await;

    decctl(&stage, &["alter", "p", "--table", "t", "--from", &two]);
    stage.settle().await;
    assert_eq!(ids(&mut stage, "p", end).await, ["3", "4", "5", "6"]);
    for (place, expected) in [(1, false), (3, true)] {
        let request = GetCatalogRequest {
            lsn: places[place].0,
        };
        let mut client = stage.decant.fanout(1).client().await;
        let catalog = client.get_catalog(request).await.unwrap().into_inner();
        let mut publications = catalog.publications.iter();
        assert_eq!(publications.any(|one| one.name == "p"), expected);
    }
    // Behind it: what counts before goes on to count.
    decctl(
        &stage,
        &["alter", "p", "--table", "t where (id > 4)", "--from", &four],
    );
    assert_eq!(ids(&mut stage, "p", end).await, ["3", "4", "5", "6"]);
    decctl(&stage, &["drop", "p", "--from", &four]);
    let error = refused(&stage, &["show", "p"]);
    assert_mentions(&error, &["\"p\""]);
    decctl(&stage, &["create", "p", "--table", "t where (id <> 6)"]);
    let end = insert(&stage, 7).await;
    stage.settle().await;
    assert_eq!(ids(&mut stage, "p", end).await, ["3", "4", "7"]);
    running.wait_for(end, patience()).await;
    let received = running.stop().await;
    assert_eq!(received.error, None);
    assert_eq!(received.model.rows("public.t").len(), 1);

    let shown = decctl(&stage, &["show", "p"]);
    let from = [
        format!("from {two}: FOR TABLE t"),
        format!("from {four}: (none)"),
    ];
    let words = [
        &from[0],
        &from[1],
        "CREATE PUBLICATION \"p\" FOR TABLE t where (id <> 6)",
    ];
    assert_mentions(&shown, &words);
    let json = decctl(&stage, &["list", "--json"]);
    assert_mentions(&json, &["from_lsn", &two, &four, "versions"]);
    // From further back than all of them: it takes their place.
    decctl(
        &stage,
        &["alter", "p", "--table", "t where (id <> 3)", "--from", &one],
    );
    assert_eq!(ids(&mut stage, "p", end).await, ["2", "4", "5", "6", "7"]);
    assert!(!decctl(&stage, &["show", "p"]).contains("(none)"));
}

const LATER: &str = "alter table t add w int; insert into t values (2, 1, 'v', 1);
    alter table u rename v to x; insert into u values (1, 'x');
    create table n (id int primary key, v text); insert into n values (1, 'v'), (2, 'w')";

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_cannot_be_is_refused() {
    let stage = Stage::new(15, 1, TABLES).await;
    let first = stage.settle().await.to_string();
    insert(&stage, 1).await;
    stage.source.sql(LATER).await;
    stage.settle().await;
    for (arguments, words) in [
        (
            &["--table", "t", "--from", "0/1"][..],
            &["0/1", "is not kept", "the log has"][..],
        ),
        (
            &["--table", "t", "--from", "FF/1"],
            &["FF/1", "is ahead of the log"],
        ),
        (
            &["--table", "t (id, w)", "--from", &first],
            &["public\".\"t", "\"w\"", "can count from"],
        ),
        (
            &["--table", "root", "--from", &first],
            &["partitioned table", "root", "can count from"],
        ),
    ] {
        let all = [&["create", "x"], arguments].concat();
        assert_mentions(&refused(&stage, &all), words);
        assert!(!decctl(&stage, &["list"]).contains('x'));
    }
}

/// What was added or made later does not matter to what does not name it.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_added_later_does_not_matter() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    let first = stage.settle().await.to_string();
    insert(&stage, 1).await;
    let before = stage.source.flush_lsn().await.to_string();
    stage.source.sql(LATER).await;
    let end = stage.settle().await;
    let create = |name: &str, table: &str, from: &str| {
        let all = [
            "create",
            name,
            "--table",
            table,
            "--publish",
            "insert",
            "--from",
            from,
        ];
        decctl(&stage, &all);
    };
    // No row of u came before its column had the name.
    create("renamed", "u where (x = 'x')", &first);
    create("listed", "t (id, v) where (n = 1)", &first);
    create("whole", "t", &before);
    create("new", "n where (v <> 'w')", &first);
    assert_eq!(ids(&mut stage, "listed", end).await, ["1", "2"]);
    assert_eq!(ids(&mut stage, "whole", end).await, ["2"]);
    let url = stage.decant.fanout(0).grpc_url();
    let subscriber = GrpcSubscriber::start(url, of("new"), Keep::Rows);
    subscriber.wait_for(end, patience()).await;
    assert_eq!(subscriber.stop().await.model.rows("public.n").len(), 1);
    let now =
        "select to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";
    let time = stage.source.value(now).await;
    insert(&stage, 3).await;
    let end = insert(&stage, 4).await;
    stage.settle().await;
    let timed = ["create", "timed", "--table", "t", "--from-time", &time];
    decctl(&stage, &timed);
    let seen = ids(&mut stage, "timed", end).await;
    assert!(
        seen.contains(&"4".to_owned()) && !seen.contains(&"2".to_owned()),
        "{seen:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_leaves_the_one_or_the_other() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    let first = stage.settle().await.to_string();
    insert(&stage, 1).await;
    stage.settle().await;
    for (failpoint, expected) in [
        ("publications.written", &["2"][..]),
        ("publications.renamed", &["1", "2"]),
    ] {
        stage.decant.stop_decoder().await;
        stage.decant.spawn_decoder_to_die_at(failpoint, 1);
        stage.decant.wait_until_streaming().await;
        refused(&stage, &["create", "p", "--table", "t", "--from", &first]);
        stage.decant.start_decoder().await;
        stage.source.sql("delete from t where id = 2").await;
        let end = insert(&stage, 2).await;
        stage.settle().await;
        assert_eq!(ids(&mut stage, "p", end).await, expected, "{failpoint}");
        decctl(&stage, &["alter", "p", "--table", "t", "--from", &first]);
        assert_eq!(ids(&mut stage, "p", end).await, ["1", "2"], "{failpoint}");
        decctl(&stage, &["drop", "p", "--from", &first]);
    }
    // What can't be read is not guessed.
    decctl(&stage, &["create", "p", "--table", "t", "--from", &first]);
    let path = stage.decant.log_directory().join("publications");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let url = stage.decant.fanout(0).grpc_url();
    let subscriber = GrpcSubscriber::start(url, of("p"), Keep::Rows);
    let error = subscriber.wait_for_error(patience()).await;
    assert_mentions(&error, &["can't be read"]);
    assert_mentions(&refused(&stage, &["list"]), &["publications is damaged"]);
    let found = stage.decant.decctl_unsuccessfully(&["verify"]);
    assert_mentions(&found, &["publications"]);
}

/// A subscription begins now, wherever its publication does: each row is copied once, as it is.
#[tokio::test(flavor = "multi_thread")]
async fn an_initial_copy_is_of_now() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    let first = stage.settle().await.to_string();
    for id in 1..4 {
        insert(&stage, id).await;
    }
    stage
        .source
        .sql("update t set v = 'now'; delete from t where id = 3")
        .await;
    stage.settle().await;
    let definition = ["--table", "t where (id <> 1)", "--from", &first];
    decctl(&stage, &[&["create", "p"], &definition[..]].concat());
    let subscriber = PostgresSubscriber::start_new(15).await;
    subscriber.cluster.sql(TABLES).await;
    let endpoint = stage.decant.fanout(0).endpoint();
    subscriber.subscribe_with("sub", &endpoint, "p", "").await;
    subscriber.wait_until_copied("sub", patience()).await;
    insert(&stage, 4).await;
    let seen = "select coalesce(string_agg(id || v, ' ' order by id), '') from t";
    wait_until(
        "the row behind the copy is there",
        patience(),
        async || match subscriber.cluster.value(seen).await {
            seen if seen == "2now 4v" => Ok(()),
            seen => Err(seen),
        },
    )
    .await;
    subscriber.cluster.sql("drop subscription sub").await;
}
