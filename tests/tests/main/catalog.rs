//! Changes of publications count from their own place in commit order.

use pg_proto::Lsn;
use proto::v1::CatalogMode;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, from_lsn};
use tests::{Cluster, Decant, Session, wait_until};

use super::stage::Stage;

const TABLES: &str = "
    create table a (id int primary key);
    create table b (id int primary key);
    create publication pub for table a";

async fn catalog_mode(stage: &Stage) -> CatalogMode {
    stage
        .decant
        .status()
        .await
        .source
        .unwrap_or_default()
        .catalog_mode()
}

fn subscribe(stage: &mut Stage) -> GrpcSubscriber {
    let mut request = from_lsn(Lsn::INVALID);
    request.publications = vec!["pub".to_owned()];
    let url = stage.decant.fanout(0).grpc_url();
    GrpcSubscriber::start(url, request, Keep::Rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn with_triggers_a_change_counts_from_its_own_place_15() {
    with_triggers_a_change_counts_from_its_own_place(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_triggers_a_change_counts_from_its_own_place_18() {
    with_triggers_a_change_counts_from_its_own_place(18).await;
}

async fn with_triggers_a_change_counts_from_its_own_place(major: u32) {
    let mut stage = Stage::new(major, 1, TABLES).await;
    assert_eq!(catalog_mode(&stage).await, CatalogMode::Triggers);
    let subscriber = subscribe(&mut stage);
    for sql in [
        "insert into b values (1)",
        "alter publication pub add table b",
        "insert into b values (2)",
        "begin; insert into b values (3); alter publication pub drop table b; insert into b values (4); commit",
        "insert into b values (5)",
        "begin; alter publication pub add table b; insert into b values (6); rollback",
        "begin; insert into b values (7); alter publication pub add table b; insert into b values (8); commit",
        "insert into b values (9)",
        "alter publication pub set (publish = 'delete')",
        "insert into b values (10); insert into a values (10)",
        "alter publication pub set (publish = 'insert')",
        "insert into a values (11)",
        // What changes inside of a subtransaction counts behind it too.
        "alter publication pub drop table b",
        "begin; insert into b values (12); savepoint s; alter publication pub add table b; release s; \
         insert into b values (13); savepoint s; alter publication pub drop table b; release s; \
         insert into b values (14); commit",
    ] {
        stage.source.sql(sql).await;
    }
    let end = stage.settle().await;
    subscriber.wait_for(end, patience()).await;
    // The same again from the files, when all of it is history.
    let again = subscribe(&mut stage);
    again.wait_for(end, patience()).await;
    for subscriber in [subscriber, again] {
        let received = subscriber.stop().await;
        assert_eq!(received.error, None);
        let ids = |table| {
            let rows = received.model.rows(table).into_iter();
            rows.map(|row| row[0].clone().unwrap_or_default())
                .collect::<Vec<_>>()
        };
        assert_eq!(ids("public.b"), ["13", "2", "3", "8", "9"]);
        assert_eq!(ids("public.a"), ["11"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_triggers_the_decoder_polls() {
    let source = Cluster::start_new(15).await;
    source.sql(TABLES).await;
    let mut decant = Decant::new(&source);
    decant.decctl_successfully(&["init", "--no-event-triggers"]);
    decant.start_decoder().await;
    decant.start_fanout().await;
    let mut stage = Stage { decant, source };
    assert_eq!(catalog_mode(&stage).await, CatalogMode::Polling);

    let subscriber = subscribe(&mut stage);
    stage.source.sql("alter publication pub add table b").await;
    let mut row = 0;
    wait_until("the new table is published", patience(), async || {
        row += 1;
        stage
            .source
            .sql(&format!("insert into b values ({row})"))
            .await;
        let end = stage.settle().await;
        subscriber.wait_for(end, patience()).await;
        match subscriber.look(|received| received.model.row_count("public.b")) {
            0 => Err("no row of b".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
    let first = subscriber.look(|received| received.model.row_count("public.b"));
    stage.source.sql("insert into b values (-1)").await;
    let end = stage.settle().await;
    subscriber.wait_for(end, patience()).await;
    assert_eq!(
        subscriber.look(|received| received.model.row_count("public.b")),
        first + 1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publication_made_later_is_known_at_once() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    stage
        .source
        .sql("create publication later for table b")
        .await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let mut session = tests::Session::connect_for_replication(&endpoint)
        .await
        .unwrap();
    session
        .run("CREATE_REPLICATION_SLOT s LOGICAL pgoutput (SNAPSHOT 'nothing')")
        .await;
    let options = "proto_version '1', publication_names 'later'";
    let mut client = tests::subscriber::StreamClient::start(&endpoint, "s", Lsn::INVALID, options)
        .await
        .unwrap();
    stage.source.sql("insert into b values (1)").await;
    let end = stage.settle().await;
    assert_eq!(client.receive_until(end, patience()).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_message_changes_nothing() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    // The true state, before anything else.
    stage.source.sql("select decant.emit_catalog()").await;
    let subscriber = subscribe(&mut stage);
    stage.source.sql("create role mallory login").await;
    let mut endpoint = stage.source.endpoint();
    endpoint.user = "mallory".to_owned();
    let mut mallory = Session::connect(&endpoint).await.unwrap();
    let forged = format!("{}{{\"version\":2,\"publications\":[]}}", "0".repeat(64));
    mallory
        .run(&format!(
            "select pg_logical_emit_message(true, 'decant', '{forged}')"
        ))
        .await;
    stage.source.sql("insert into a values (1)").await;
    let end = stage.settle().await;
    subscriber.wait_for(end, patience()).await;
    assert_eq!(subscriber.look(|received| received.changes), 1);
    let source = stage.decant.status().await.source.unwrap_or_default();
    assert_eq!(source.forged_messages, 1);
    let metric = stage
        .decant
        .metric("decant_decoder_forged_messages_total")
        .await;
    assert_eq!(metric, 1);
}
