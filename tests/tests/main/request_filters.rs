//! Row filters that a gRPC request brings: a publication of the source with the same filter is the judge.

use std::time::Duration;

use pg_proto::Lsn;
use proto::v1::fanout_client::FanoutClient;
use proto::v1::{
    Event, RowFilter, SubscribeOptions, SubscribeRequest, TableColumns, TableName, event,
    subscribe_response,
};
use tests::expect::assert_mentions;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, from_lsn};
use tokio_stream::StreamExt;

use super::stage::Stage;

const TABLES: &str = "
    create table a (id int primary key, gone int, v text, n int, region text);
    alter table a drop column gone;
    alter table a replica identity full;
    create table keyed (id int primary key, v text);
    create table root (id int, r int, n int, primary key (id, r)) partition by list (r);
    create table leaf1 partition of root for values in (1);
    create table leaf2 (n int, r int not null, id int not null, primary key (id, r));
    alter table root attach partition leaf2 for values in (2);
    alter table root replica identity full; alter table leaf1 replica identity full; alter table leaf2 replica identity full;
    create publication whole for table a;
    create publication eu for table a where (region = 'eu');
    create publication native for table a where (region = 'eu' and n > 3);
    create publication pattern for table a where (v ~ '^x[0-9]*$');
    create publication via for table root with (publish_via_partition_root);
    create publication via_rows for table root where (n > 3) with (publish_via_partition_root);
    create publication leaves for table root";

const STEPS: &[&str] = &[
    "insert into a select g, case when g % 3 = 0 then 'y' else 'x' || g end, g, case when g % 2 = 0 then 'eu' else 'us' end
       from generate_series(1, 12) g",
    "insert into a values (100, null, null, null), (101, 'x', 5, 'eu')",
    "update a set region = 'eu' where id in (5, 7); update a set n = 1 where id = 8; update a set v = 'y' where id = 10",
    "begin; update a set id = id + 1000 where id < 7; delete from a where id in (1002, 1004, 9); commit",
    "insert into root select g, 1 + g % 2, g from generate_series(1, 8) g",
    "update root set n = 0 where id in (6, 7); update root set r = 3 - r where id = 8; delete from root where id in (2, 5)",
    "alter table a add extra int; insert into a values (200, 'x1', 9, 'eu', 1)",
    "alter table a rename region to area; insert into a values (201, 'x1', 9, 'eu', 1), (202, 'x1', 9, 'us', 1)",
    "truncate a",
];

fn table(name: &str) -> TableName {
    TableName {
        schema: "public".to_owned(),
        name: name.to_owned(),
    }
}

fn of(publications: &[&str], filters: &[(&str, &str)]) -> SubscribeRequest {
    let mut request = from_lsn(Lsn::INVALID);
    request.publications = publications.iter().map(|one| (*one).to_owned()).collect();
    request.row_filters = filters
        .iter()
        .map(|(name, expression)| RowFilter {
            table: Some(table(name)),
            expression: (*expression).to_owned(),
        })
        .collect();
    request
}

/// All events up to `end`.
async fn events(stage: &mut Stage, mut request: SubscribeRequest, end: Lsn) -> Vec<Event> {
    request.options = Some(SubscribeOptions {
        end_lsn: end.0,
        ..SubscribeOptions::default()
    });
    let url = stage.decant.fanout(0).grpc_url();
    let mut client = FanoutClient::connect(url).await.unwrap();
    let mut stream = client.subscribe(request).await.unwrap().into_inner();
    let mut events = Vec::new();
    while let Some(response) = tokio::time::timeout(patience(), stream.next())
        .await
        .unwrap()
    {
        if let Some(subscribe_response::Kind::Batch(batch)) = response.unwrap().kind {
            events.extend(batch.parts.into_iter().flat_map(|part| part.events));
        }
    }
    events
}

async fn error_of(stage: &mut Stage, request: SubscribeRequest, within: Duration) -> String {
    let url = stage.decant.fanout(0).grpc_url();
    let subscriber = GrpcSubscriber::start(url, request, Keep::Counts);
    subscriber.wait_for_error(within).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_of_a_request_is_that_of_a_publication_15() {
    a_filter_of_a_request_is_that_of_a_publication(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_of_a_request_is_that_of_a_publication_18() {
    a_filter_of_a_request_is_that_of_a_publication(18).await;
}

async fn a_filter_of_a_request_is_that_of_a_publication(major: u32) {
    let mut stage = Stage::new(major, 1, TABLES).await;
    stage.source.sql("select decant.emit_catalog()").await;
    for step in STEPS {
        stage.source.sql(step).await;
    }
    let end = stage.settle().await;
    // Names are those of now, of a column that was called otherwise when most rows were written.
    for (publication, publications, filters) in [
        (
            "native",
            &["whole"][..],
            &[("a", "area = 'eu' and n > 3")][..],
        ),
        ("native", &["eu"], &[("a", "n > 3 -- and not more")]),
        ("native", &["eu", "native"], &[("a", "n > 3")]),
        ("pattern", &["whole"], &[("a", "v ~ '^x[0-9]*$'")]),
        ("via_rows", &["via"], &[("root", "n > 3")]),
        ("whole", &["whole"], &[("a", "true"), ("keyed", "id > 1")]),
    ] {
        let expected = events(&mut stage, of(&[publication], &[]), end).await;
        assert!(expected.len() > 5, "{publication}");
        let received = events(&mut stage, of(publications, filters), end).await;
        assert_eq!(
            received, expected,
            "{publications:?} {filters:?} on {major}"
        );
    }
    // Without publications, of one table.
    let expected = events(&mut stage, of(&["native"], &[]), end).await;
    let mut request = of(&[], &[("a", "n > 3 and area = 'eu'")]);
    request.tables = vec![table("a")];
    assert_eq!(events(&mut stage, request.clone(), end).await, expected);
    // And of fewer columns, which the filter need not be among.
    request.columns = vec![TableColumns {
        table: Some(table("a")),
        columns: vec!["id".to_owned(), "v".to_owned()],
    }];
    let narrow = events(&mut stage, request, end).await;
    let changes = |events: &[Event]| {
        let of_kind = |event: &&Event| matches!(event.kind, Some(event::Kind::Change(_)));
        events.iter().filter(of_kind).count()
    };
    assert_eq!(changes(&narrow), changes(&expected));
    assert!(narrow.iter().all(|event| match &event.kind {
        Some(event::Kind::Relation(relation)) => relation.columns.len() == 2,
        _ => true,
    }));
    let left = "select count(*) from pg_publication where pubname like 'decant%'";
    let made = stage.source.value(left).await;
    assert_eq!(made, "1", "publications at the source");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_filter_is_refused_in_postgresqls_words() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    stage.source.sql("select decant.emit_catalog()").await;
    stage.settle().await;
    for (name, expression, words) in [
        ("a", "n +", &["syntax error"][..]),
        ("a", "n", &["must be type boolean"]),
        ("a", "nosuch > 1", &["column \"nosuch\" does not exist"]),
        (
            "nosuch",
            "true",
            &["relation \"public.nosuch\" does not exist"],
        ),
        (
            "a",
            "now() > '2000-01-01'",
            &["invalid publication WHERE expression"],
        ),
        (
            "a",
            "true); drop table keyed; create publication x for table a where (true",
            &["multiple commands"],
        ),
        ("a", "true), keyed where (true", &["one expression"]),
        ("a", " ", &["empty row filter"]),
        ("root", "n > 3", &["partitioned table"]),
    ] {
        let error = error_of(&mut stage, of(&[], &[(name, expression)]), patience()).await;
        assert_mentions(&error, &[&["InvalidArgument"], words].concat());
    }
    assert_eq!(stage.source.value("select count(*) from keyed").await, "0");
    // Rows of partitions would pass it by.
    let error = error_of(
        &mut stage,
        of(&["leaves"], &[("root", "n > 3")]),
        patience(),
    )
    .await;
    assert_mentions(&error, &["FailedPrecondition", "public.root"]);
    stage.source.sql("insert into root values (1, 1, 1)").await;
    let error = error_of(&mut stage, of(&["via"], &[("leaf1", "n > 3")]), patience()).await;
    assert_mentions(&error, &["FailedPrecondition", "public.leaf1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_never_sent_past_a_filter_that_cannot_judge_them() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    stage
        .source
        .sql("insert into keyed values (1, 'x'), (2, 'y')")
        .await;
    let end = stage.settle().await;
    let request = of(&[], &[("keyed", "v = 'x'")]);
    let inserts = events(&mut stage, request.clone(), end).await;
    assert_eq!(inserts.len(), 2, "the relation and one row: {inserts:?}");
    // At the source the UPDATE itself would fail.
    stage
        .source
        .sql("update keyed set v = 'z' where id = 1")
        .await;
    let error = error_of(&mut stage, request, patience()).await;
    assert_mentions(&error, &["FailedPrecondition", "keyed", "replica identity"]);
    // Another table of the same name has rows that the filter was not made for.
    stage
        .source
        .sql("drop table keyed; create table keyed (id int primary key, v text); insert into keyed values (3, 'x')")
        .await;
    let error = error_of(&mut stage, of(&[], &[("keyed", "id > 1")]), patience()).await;
    assert_mentions(&error, &["FailedPrecondition", "public.keyed"]);
}

const GRANTS: &str = r#"
    [[role]]
    name = "grpc"
    publications = ["*"]
    [[role.table]]
    schema = "public"
    name = "a"
    columns = ["id", "n"]"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_does_not_tell_of_columns_that_are_denied() {
    let mut stage = Stage::new(15, 0, TABLES).await;
    let file = stage.decant.home().join("grants.toml");
    std::fs::write(&file, GRANTS).unwrap();
    stage.decant.set("fanout.grants_file", file.display());
    stage.decant.start_fanout().await;
    stage
        .source
        .sql("insert into a values (1, 'secret', 1, 'eu'), (2, 'other', 2, 'eu')")
        .await;
    let end = stage.settle().await;
    let narrow = |name: &str, expression: &str| {
        let mut request = of(&[], &[(name, expression)]);
        request.tables = vec![table("a")];
        request.columns = vec![TableColumns {
            table: Some(table("a")),
            columns: vec!["id".to_owned(), "n".to_owned()],
        }];
        request
    };
    let allowed = events(&mut stage, narrow("a", "n > 1"), end).await;
    assert_eq!(allowed.len(), 2, "the relation and one row: {allowed:?}");
    for (name, expression, word) in [
        ("a", "v = 'secret'", "column \"v\""),
        ("a", "n > 1 or length(region) > 0", "column \"region\""),
        ("keyed", "true", "table \"public.keyed\""),
    ] {
        let error = error_of(&mut stage, narrow(name, expression), patience()).await;
        assert_mentions(&error, &["PermissionDenied", "permission denied for", word]);
    }
    // Nor under the name that a denied column had before.
    stage
        .source
        .sql("alter table a rename v to was; alter table a rename n to v; alter table a rename was to n")
        .await;
    stage.settle().await;
    let error = error_of(&mut stage, narrow("a", "n = 'secret'"), patience()).await;
    assert_mentions(&error, &["PermissionDenied", "column \"v\""]);
}
