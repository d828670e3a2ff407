//! Publications that belong to Decant and not to the source.

use pg_proto::Lsn;
use pg_proto::pgoutput::{Framing, Message, decode};
use proto::v1::SubscribeRequest;
use tests::Session;
use tests::expect::assert_mentions;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, StreamClient, from_lsn};

use super::stage::Stage;

const TABLES: &str = "
    create table t (id int primary key, v text, secret text);
    create table u (id int primary key, v text);
    create schema s;
    create table s.w (id int primary key);
    create table parted (id int primary key) partition by range (id);
    create publication theirs for table u";

fn of(publication: &str) -> SubscribeRequest {
    let mut request = from_lsn(Lsn::INVALID);
    request.publications = vec![publication.to_owned()];
    request
}

/// Everything that a subscriber of this publication gets of a table, from the beginning of the log.
async fn rows(stage: &mut Stage, publication: &str, table: &str, end: Lsn) -> Vec<String> {
    let url = stage.decant.fanout(0).grpc_url();
    let subscriber = GrpcSubscriber::start(url, of(publication), Keep::Rows);
    subscriber.wait_for(end, patience()).await;
    let received = subscriber.stop().await;
    assert_eq!(received.error, None);
    let rows = received.model.rows(table).into_iter();
    rows.map(|row| {
        let values = row
            .into_iter()
            .map(|value| value.unwrap_or_else(|| "null".to_owned()));
        values.collect::<Vec<_>>().join(" ")
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_subscriber_sees_its_own_columns_15() {
    each_subscriber_sees_its_own_columns(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_subscriber_sees_its_own_columns_18() {
    each_subscriber_sees_its_own_columns(18).await;
}

async fn each_subscriber_sees_its_own_columns(major: u32) {
    let mut stage = Stage::new(major, 1, TABLES).await;
    let source = "select string_agg(pubname, ' ' order by pubname) from pg_publication";
    let before = stage.source.value(source).await;
    stage
        .source
        .sql("insert into t values (1, 'one', 's')")
        .await;
    for arguments in [
        &["create", "narrow", "--table", "public.t (id, v)"][..],
        &["create", "keys", "--table", "t (id)", "--publish", "insert"],
        &["create", "schema", "--schema", "s"],
    ] {
        stage
            .decant
            .decctl_successfully(&[&["publication"], arguments].concat());
    }
    assert_eq!(
        stage.source.value(source).await,
        before,
        "left at the source"
    );

    stage
        .source
        .sql("insert into t values (2, 'two', 's'); insert into s.w values (2)")
        .await;
    stage
        .source
        .sql("update t set v = 'changed' where id = 2")
        .await;
    stage
        .decant
        .decctl_successfully(&["publication", "alter", "keys", "--table", "t (v, id)"]);
    stage
        .source
        .sql("insert into t values (3, 'three', 's'); update t set v = 'x' where id = 3")
        .await;
    // Kept over a restart of the decoder.
    stage.decant.stop_decoder().await;
    stage.decant.start_decoder().await;
    stage
        .source
        .sql("insert into t values (4, 'four', 's')")
        .await;
    let end = stage.settle().await;

    // Twice: a replay gives the same.
    for _ in 0..2 {
        for (publication, table, expected) in [
            ("narrow", "public.t", &["2 changed", "3 x", "4 four"][..]),
            ("keys", "public.t", &["2", "3 x", "4 four"]),
            ("schema", "s.w", &["2"]),
        ] {
            assert_eq!(rows(&mut stage, publication, table, end).await, expected);
        }
    }
    by_postgresqls_protocol(&mut stage).await;
}

async fn by_postgresqls_protocol(stage: &mut Stage) {
    let endpoint = stage.decant.fanout(0).endpoint();
    let mut session = Session::connect_for_replication(&endpoint).await.unwrap();
    session
        .run("CREATE_REPLICATION_SLOT s LOGICAL pgoutput NOEXPORT_SNAPSHOT")
        .await;
    stage
        .source
        .sql("insert into t values (6, 'six', 's')")
        .await;
    let end = stage.settle().await;
    let options = "proto_version '1', publication_names 'narrow'";
    let client = StreamClient::start(&endpoint, "s", Lsn::INVALID, options).await;
    let received = client.unwrap().receive_until(end, patience()).await;
    let columns = received[0].messages.iter().filter_map(|(_, payload)| {
        match decode(payload, Framing::Plain).unwrap() {
            Message::Relation(relation) => Some(relation.columns.len()),
            _ => None,
        }
    });
    assert_eq!(columns.collect::<Vec<_>>(), [2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_listed_shown_and_dropped() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    let decctl = |arguments: &[&str]| {
        let all = [&["publication"], arguments].concat();
        stage.decant.decctl_successfully(&all)
    };
    decctl(&["create", "narrow", "--table", "public.t (id, v)"]);
    decctl(&["create", "gone", "--schema", "s", "--publish", "insert"]);
    let listed = decctl(&["list"]);
    assert_mentions(&listed, &["narrow", "FOR TABLE public.t (id, v)", "gone"]);
    let shown = decctl(&["show", "gone"]);
    let statement =
        "CREATE PUBLICATION \"gone\" FOR TABLES IN SCHEMA \"s\" WITH (publish = 'insert');";
    assert_mentions(&shown, &[statement]);
    decctl(&["drop", "gone"]);
    assert!(!decctl(&["list", "--json"]).contains("gone"));
    let url = stage.decant.fanout(0).grpc_url();
    let subscriber = GrpcSubscriber::start(url, of("gone"), Keep::Rows);
    let error = subscriber.wait_for_error(patience()).await;
    assert_mentions(&error, &["NotFound", "gone"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_made_is_refused() {
    let stage = Stage::new(15, 1, TABLES).await;
    stage
        .decant
        .decctl_successfully(&["publication", "create", "mine", "--table", "t"]);
    for (arguments, words) in [
        (
            &["create", "theirs", "--table", "t"][..],
            &["theirs", "already exists"][..],
        ),
        (
            &["create", "mine", "--table", "t"],
            &["mine", "already exists"],
        ),
        (&["alter", "nosuch", "--table", "t"], &["nosuch"]),
        (&["drop", "nosuch"], &["nosuch"]),
        (&["drop", "theirs"], &["theirs", "source"]),
        (
            &["create", "x", "--table", "nosuch"],
            &["nosuch", "does not exist"],
        ),
        (
            &["create", "x", "--table", "t (nosuch)"],
            &["nosuch", "does not exist"],
        ),
        (
            &["create", "x", "--table", "t; drop table t"],
            &["semicolon"],
        ),
        (&["create", "x", "--schema", "public"], &["partitioned"]),
        (
            &["create", "x", "--all-tables", "--via-partition-root"],
            &["partitioned"],
        ),
        (
            &["create", "x", "--table", "t where (now() > '2000-01-01')"],
            &["WHERE"],
        ),
    ] {
        let said = stage
            .decant
            .decctl_unsuccessfully(&[&["publication"], arguments].concat());
        assert_mentions(&said, words);
    }
    let left = "select count(*) from pg_publication where pubname in ('x', 'mine')";
    assert_eq!(stage.source.value(left).await, "0");
    assert_eq!(stage.source.value("select count(*) from t").await, "0");
}

const FOLLOWED: &str = "
    create table root (id int, r int, v text, primary key (id, r)) partition by list (r);
    create table leaf1 partition of root for values in (1);
    create table later (r int not null, id int not null, v text, primary key (id, r));
    create table c (id int primary key, v text, secret text)";

/// The source has no publication of its own that would tell of these.
const CHANGES: &[&str] = &[
    "insert into root values (1, 1, 'a')",
    "alter table root attach partition later for values in (2); insert into root values (2, 2, 'b')",
    "begin; create table leaf3 partition of root for values in (3); insert into root values (3, 3, 'c'); commit",
    "alter table root detach partition later; insert into later values (2, 4, 'd')",
    "alter table root rename v to w; insert into root values (5, 3, 'e')",
    "insert into c values (1, 'one', 'secret')",
    "alter table c rename v to name; insert into c values (2, 'two', 'secret')",
    "alter table c rename secret to v; insert into c values (3, 'three', 'secret')",
    "begin; insert into c values (4, 'four', 'secret'); alter table c drop column name; insert into c values (5, 'secret'); commit",
];

#[tokio::test(flavor = "multi_thread")]
async fn partitions_and_columns_are_followed_15() {
    partitions_and_columns_are_followed(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_and_columns_are_followed_18() {
    partitions_and_columns_are_followed(18).await;
}

async fn partitions_and_columns_are_followed(major: u32) {
    let mut stage = Stage::new(major, 1, FOLLOWED).await;
    for arguments in [
        &["via", "--table", "root (id, r, v)", "--via-partition-root"][..],
        &["leaves", "--table", "root"],
        &["list", "--table", "c (id, v)"],
        &[
            "filtered",
            "--table",
            "c where (v <> 'two')",
            "--publish",
            "insert",
        ],
    ] {
        let all = [&["publication", "create"], arguments].concat();
        stage.decant.decctl_successfully(&all);
    }
    for (number, change) in CHANGES.iter().enumerate() {
        stage.source.sql(change).await;
        if number == 3 {
            stage.decant.stop_decoder().await;
            stage.decant.start_decoder().await;
        }
    }
    let end = stage.settle().await;
    for (publication, table, expected) in [
        (
            "via",
            "public.root",
            &["1 1 a", "2 2 b", "3 3 c", "5 3 e"][..],
        ),
        ("leaves", "public.leaf1", &["1 1 a"]),
        ("leaves", "public.later", &["2 2 b"]),
        ("leaves", "public.leaf3", &["3 3 c", "5 3 e"]),
        (
            "list",
            "public.c",
            &["1 one", "2 two", "3 three", "4 four", "5"],
        ),
    ] {
        let seen = rows(&mut stage, publication, table, end).await;
        assert_eq!(seen, expected, "{publication} {table}");
    }
    // A filter can't be judged without its column.
    let url = stage.decant.fanout(0).grpc_url();
    let subscriber = GrpcSubscriber::start(url, of("filtered"), Keep::Rows);
    let error = subscriber.wait_for_error(patience()).await;
    assert_mentions(&error, &["row filter", "public.c"]);
}

/// Rows of transactions that are open beside an alteration are judged by what counted at their own place.
#[tokio::test(flavor = "multi_thread")]
async fn open_transactions_keep_what_counted_for_their_rows() {
    let settings = [("logical_decoding_work_mem", "64kB")];
    let mut stage = Stage::with_settings(15, &settings, 1, TABLES).await;
    let decctl = |what: &str, filter: &str| {
        let table = format!("t (id) where ({filter})");
        let arguments = ["publication", what, "p", "--table", &table];
        stage.decant.decctl_successfully(&arguments);
    };
    decctl("create", "id % 2 = 0");
    let mut sessions = Vec::new();
    for (number, rows) in [(0, 2), (1000, 3000)] {
        let mut session = stage.source.session().await;
        let sql = format!(
            "begin; insert into t select g, repeat('x', 100), '' from generate_series({number} + 1, {number} + {rows}) g"
        );
        session.run(&sql).await;
        sessions.push(session);
    }
    // One is prepared before the alteration; one is large enough to be streamed, and goes on behind it.
    sessions[0].run("prepare transaction 'g'").await;
    decctl("alter", "id % 2 = 1");
    sessions[1]
        .run("insert into t select g, '', '' from generate_series(5001, 5010) g")
        .await;
    stage.source.sql("commit prepared 'g'").await;
    stage
        .source
        .sql("insert into t values (11, '', ''), (12, '', '')")
        .await;
    sessions[1].run("commit").await;
    let end = stage.settle().await;
    let even = [2, 11].into_iter().chain((1002..=4000).step_by(2));
    let expected: Vec<u32> = even.chain((5001..=5009).step_by(2)).collect();
    for _ in 0..2 {
        let mut seen: Vec<u32> = rows(&mut stage, "p", "public.t", end)
            .await
            .iter()
            .map(|id| id.parse().unwrap())
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, expected);
        stage.decant.stop_fanout(0).await;
        stage.decant.restart_fanout(0).await;
    }
    // Made anew when all is over, from before the rows on: the same rows by the one rule.
    let sql = "select count(*) from t where id % 2 = 0";
    let even: usize = stage.source.value(sql).await.parse().unwrap();
    let table = "t (id) where (id % 2 = 0)";
    let time = "2020-01-01T00:00:00Z";
    let again = [
        "publication",
        "alter",
        "p",
        "--table",
        table,
        "--from-time",
        time,
    ];
    stage.decant.decctl_successfully(&again);
    assert_eq!(rows(&mut stage, "p", "public.t", end).await.len(), even);
}
