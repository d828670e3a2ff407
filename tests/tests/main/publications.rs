//! Who gets what: publications of all tables, of some tables, of schemas, several of them, their actions.

use pg_proto::Lsn;
use proto::v1::TableColumns;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, PostgresSubscriber, StreamClient, from_lsn, tables};

use super::stage::Stage;

const TABLES: &str = "
    create table a (id int primary key, v text);
    create table b (id int primary key, v text);
    create table c (id int primary key, v text);
    create schema s;
    create table s.d (id int primary key, v text);
    create publication only_a for table a;
    create publication b_and_c for table b, c with (publish = 'insert');
    create publication in_schema for tables in schema s";

const CHANGES: &str = "
    insert into a select g, 'a' from generate_series(1, 10) g;
    insert into b select g, 'b' from generate_series(1, 10) g;
    insert into c select g, 'c' from generate_series(1, 10) g;
    insert into s.d select g, 'd' from generate_series(1, 10) g;
    update a set v = 'changed' where id < 5;
    update b set v = 'changed' where id < 5;
    delete from a where id = 10;
    delete from c where id = 10";

async fn counts(subscriber: &PostgresSubscriber) -> Vec<String> {
    let mut counts = Vec::new();
    for table in ["a", "b", "c", "s.d"] {
        let sql =
            format!("select count(*) || '/' || count(*) filter (where v = 'changed') from {table}");
        counts.push(subscriber.cluster.value(&sql).await);
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn two_subscribers_with_different_tables() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let cases = [
        ("only_a", ["9/4", "0/0", "0/0", "0/0"]),
        ("only_a, b_and_c", ["9/4", "10/0", "10/0", "0/0"]),
        ("in_schema", ["0/0", "0/0", "0/0", "10/0"]),
        ("everything", ["9/4", "10/4", "9/0", "10/0"]),
        // What one publication of several publishes is published.
        ("b_and_c, everything", ["9/4", "10/4", "9/0", "10/0"]),
    ];
    let mut running = Vec::new();
    for (number, (publications, expected)) in cases.into_iter().enumerate() {
        let subscriber = PostgresSubscriber::start_new(15).await;
        for ddl in TABLES.split(';').filter(|sql| !sql.contains("publication")) {
            subscriber.cluster.sql(ddl).await;
        }
        let name = format!("sub_{number}");
        subscriber
            .subscribe(&name, &endpoint, publications, "")
            .await;
        running.push((subscriber, name, expected));
    }
    for change in CHANGES.split(';') {
        stage.source.sql(change).await;
    }
    let end = stage.settle().await;
    for (subscriber, name, expected) in &running {
        subscriber.wait_for(name, end, patience()).await;
        assert_eq!(counts(subscriber).await, expected, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_and_publications_over_grpc() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    stage.wait_for_publication("only_a").await;
    let url = stage.decant.fanout(0).grpc_url();
    for change in CHANGES.split(';') {
        stage.source.sql(change).await;
    }
    let end = stage.settle().await;
    let cases: [(&[&str], &[&str], u64); 7] = [
        (&[], &[], 40 + 4 + 4 + 2),
        (&["a"], &[], 10 + 4 + 1),
        (&["a", "b"], &[], 10 + 4 + 1 + 10 + 4),
        (&[], &["only_a"], 10 + 4 + 1),
        (&[], &["only_a", "b_and_c"], 10 + 4 + 1 + 20),
        (&["b"], &["b_and_c"], 10),
        (&["a"], &["b_and_c"], 0),
    ];
    for (names, publications, expected) in cases {
        let mut request = from_lsn(Lsn::INVALID);
        request.tables = tables(names);
        request.publications = publications.iter().map(|name| (*name).to_owned()).collect();
        let subscriber = GrpcSubscriber::start(url.clone(), request, Keep::Rows);
        subscriber.wait_for(end, patience()).await;
        let received = subscriber.stop().await;
        assert_eq!(received.error, None);
        assert_eq!(
            received.changes, expected,
            "tables {names:?}, publications {publications:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_over_grpc() {
    let definitions = "
        create table a (id int primary key, v text, secret text);
        create publication without_secret for table a (id, v)";
    let mut stage = Stage::new(15, 1, definitions).await;
    stage.wait_for_publication("without_secret").await;
    let url = stage.decant.fanout(0).grpc_url();
    stage.source.sql("insert into a values (1, 'v', 's')").await;
    let end = stage.settle().await;
    let v = Some("v".to_owned());
    let cases: [(&[&str], &[&str], _); 3] = [
        (&["v"], &[], Ok(vec![vec![v.clone()]])),
        (&["v"], &["without_secret"], Ok(vec![vec![v]])),
        (&["id", "secret"], &["without_secret"], Err("secret")),
    ];
    for (columns, publications, expected) in cases {
        let mut request = from_lsn(Lsn::INVALID);
        request.publications = publications.iter().map(|name| (*name).to_owned()).collect();
        request.columns = vec![TableColumns {
            table: tables(&["a"]).pop(),
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        }];
        let subscriber = GrpcSubscriber::start(url.clone(), request, Keep::Rows);
        match expected {
            Ok(rows) => {
                subscriber.wait_for(end, patience()).await;
                let received = subscriber.stop().await;
                assert_eq!(received.error, None);
                assert_eq!(received.model.rows("public.a"), rows);
            }
            Err(column) => {
                let error = subscriber.wait_for_error(patience()).await;
                tests::expect::assert_mentions(&error, &[column, "public.a"]);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_publication_is_an_error() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let mut session = tests::Session::connect_for_replication(&endpoint)
        .await
        .unwrap();
    session
        .run("CREATE_REPLICATION_SLOT s LOGICAL pgoutput (SNAPSHOT 'nothing')")
        .await;
    let options = "proto_version '1', publication_names 'nowhere'";
    let error = StreamClient::start(&endpoint, "s", Lsn::INVALID, options)
        .await
        .unwrap_err();
    assert_eq!(error.code, "42704", "{error}");
    assert_eq!(
        error.message.lines().next(),
        Some("publication \"nowhere\" does not exist")
    );

    let mut request = from_lsn(Lsn::INVALID);
    request.publications = vec!["nowhere".to_owned()];
    let url = stage.decant.fanout(0).grpc_url();
    let error = GrpcSubscriber::start(url, request, Keep::Rows)
        .wait_for_error(patience())
        .await;
    tests::expect::assert_mentions(&error, &["NotFound", "nowhere"]);
}
