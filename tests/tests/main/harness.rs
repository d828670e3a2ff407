//! The harness itself: what the other tests rely on.

use pg_proto::Lsn;
use tests::cluster::Stop;
use tests::subscriber::{PostgresSubscriber, RecvLogical, StreamClient};
use tests::workload::{
    PGBENCH_TABLES, Pgbench, contents, create_pgbench_tables, fill_pgbench_tables,
};
use tests::{Cluster, Session, scale};

#[tokio::test]
async fn a_server_survives_all_ways_to_end() {
    let mut cluster = Cluster::start_new(15).await;
    cluster.sql("create table t (id int primary key)").await;
    let mut expected = 0;
    for step in 0..3 {
        cluster.sql(&format!("insert into t values ({step})")).await;
        expected += 1;
        match step {
            0 => cluster.stop(Stop::Fast).await,
            1 => cluster.stop(Stop::Immediate).await,
            _ => cluster.kill().await,
        }
        cluster.start().await;
        assert_eq!(
            cluster.value("select count(*) from t").await,
            expected.to_string()
        );
    }
}

#[tokio::test]
async fn a_fetched_server_runs_pgbench() {
    let cluster = Cluster::start_new(18).await;
    create_pgbench_tables(&cluster);
    fill_pgbench_tables(&cluster, 1);
    let run = Pgbench::start(&cluster, 2, 100);
    run.finish(scale::patience()).await;
    let contents = contents(&mut cluster.session().await, &PGBENCH_TABLES).await;
    let rows: Vec<u64> = contents.iter().map(|table| table.rows).collect();
    assert_eq!(rows, [100_000, 1, 100, 10]);
}

/// Each kind of subscriber against the publisher itself, so that what it finds wrong with a fanout is not its own
/// mistake.
#[tokio::test(flavor = "multi_thread")]
async fn subscribers_work_with_a_publisher() {
    let source = Cluster::start_new(15).await;
    create_pgbench_tables(&source);
    source
        .sql("create publication everything for all tables")
        .await;
    let subscriber = PostgresSubscriber::start_new(15).await;
    create_pgbench_tables(&subscriber.cluster);
    let endpoint = source.endpoint();
    subscriber
        .subscribe("sub", &endpoint, "everything", "")
        .await;
    let directory = tempfile::tempdir().unwrap();
    let recv = RecvLogical::create(&endpoint, "recv", "everything", directory.path());
    let mut session = Session::connect_for_replication(&endpoint).await.unwrap();
    session
        .run("CREATE_REPLICATION_SLOT stream LOGICAL pgoutput (SNAPSHOT 'nothing')")
        .await;

    fill_pgbench_tables(&source, 1);
    Pgbench::start(&source, 2, 200)
        .finish(scale::patience())
        .await;
    let end = source.flush_lsn().await;
    subscriber.wait_for("sub", end, scale::patience()).await;
    subscriber
        .wait_for_contents(&source, &PGBENCH_TABLES, scale::patience())
        .await;
    recv.receive_until(end, scale::patience()).await;
    assert!(recv.received().len() > 1_000_000);
    let options = "proto_version '1', publication_names 'everything'";
    let mut stream = StreamClient::start(&endpoint, "stream", Lsn::INVALID, options)
        .await
        .unwrap();
    let all = stream.receive_until(end, scale::patience()).await;
    assert_eq!(all.len(), 201);
    recv.drop_slot();
}
