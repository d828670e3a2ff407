//! Definitions that change inside transactions, also inside subtransactions that are rolled back: partitions, columns,
//! publications, filters. Message for message as the publisher.

use pg_proto::Lsn;
use tests::scale::patience;
use tests::subscriber::StreamClient;

use super::native::compare_streams;
use super::stage::Stage;

const TABLES: &str = "
    create table root (id int, k int, v text) partition by list (k);
    alter table root replica identity full;
    create table root_0 partition of root for values in (0);
    alter table root_0 replica identity full;
    create table spare (k int, id int, v text);
    alter table spare replica identity full;
    create table other (id int primary key, v text);
    create publication by_root for table root with (publish_via_partition_root);
    create publication by_root_and_other for table root, other with (publish_via_partition_root)";

const STEPS: &[&str] = &[
    "insert into root values (1, 0, 'a'); insert into spare values (3, 1, 'not published')",
    "begin; alter table root attach partition spare for values in (3); insert into root values (2, 3, 'b'); commit",
    "insert into root values (3, 3, 'c')",
    "begin; savepoint s; alter table root detach partition spare; insert into spare values (3, 4, 'undone'); rollback to s; release s; \
     insert into root values (5, 3, 'd'); commit",
    "insert into root values (6, 3, 'e')",
    "begin; alter table root detach partition spare; insert into spare values (3, 7, 'not published'); \
     alter table root attach partition spare for values in (3); insert into root values (8, 3, 'f'); commit",
    "insert into root values (9, 3, 'g')",
    "begin; alter publication by_root_and_other drop table other; insert into other values (1, 'not published'); savepoint s; \
     alter publication by_root_and_other add table other; insert into other values (2, 'undone'); rollback to s; release s; \
     insert into other values (3, 'not published'); alter table root detach partition spare; savepoint t; \
     alter table root attach partition spare for values in (3); insert into root values (10, 3, 'undone'); rollback to t; \
     insert into spare values (3, 11, 'not published'); commit",
    "insert into spare values (3, 12, 'not published')",
    "alter table root attach partition spare for values in (3)",
    "insert into root values (13, 3, 'h'); update root set v = 'i' where id = 13; update root set k = 0 where id = 13",
    "begin; insert into root select g, g % 2 * 3, repeat('large', 20) from generate_series(100, 2000) g; savepoint s; \
     alter table root detach partition spare; insert into spare select 3, g, repeat('undone', 20) from generate_series(100, 2000) g; \
     rollback to s; release s; insert into root values (14, 3, 'j'); alter publication by_root_and_other add table other; \
     insert into other values (4, 'k'); commit",
    "insert into root values (15, 3, 'l'); insert into other values (5, 'm')",
    "truncate root",
    "insert into root values (16, 3, 'n')",
];

/// From version 15 on; 14 goes on with what it knew of a partition.
async fn compare(major: u32) {
    let publications = [("root", "by_root"), ("both", "by_root_and_other")];
    let options = publications.map(|(slot, publication)| {
        let options = format!("proto_version '1', publication_names '{publication}'");
        (slot, options)
    });
    let slots = options.each_ref();
    let slots = slots.map(|(slot, options)| (*slot, options.as_str()));
    compare_streams(major, TABLES, STEPS, &slots).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_as_at_version_15() {
    compare(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_as_at_version_18() {
    compare(18).await;
}

/// What describes a table in the log comes with its next row: nobody is refused because that has not come yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_begins_although_no_row_has_come_since_columns_were_added() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    let source = &stage.source;
    source
        .sql("create publication narrow for table other (id)")
        .await;
    source
        .sql("insert into root values (1, 0, 'a'); insert into other values (1, 'a')")
        .await;
    source
        .sql("alter table root add w int; alter table other add w int")
        .await;
    source
        .sql("alter publication narrow set table other (id, w)")
        .await;
    stage.settle().await;
    let fanout = stage.decant.fanout(0).endpoint();
    let mut session = tests::Session::connect_for_replication(&fanout)
        .await
        .unwrap();
    session
        .run("CREATE_REPLICATION_SLOT s LOGICAL pgoutput NOEXPORT_SNAPSHOT")
        .await;
    let options = "proto_version '1', publication_names 'by_root,narrow'";
    let mut client = StreamClient::start(&fanout, "s", Lsn::INVALID, options)
        .await
        .unwrap();
    stage
        .source
        .sql("insert into root values (2, 0, 'b', 7); insert into other values (2, 'b', 8)")
        .await;
    let end = stage.settle().await;
    let received = client.receive_until(end, patience()).await;
    let rows = received.iter().flat_map(|one| &one.messages);
    let rows = rows.filter(|(_, payload)| payload[0] == b'I').count();
    assert_eq!(rows, 2);
}
