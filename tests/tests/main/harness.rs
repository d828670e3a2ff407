//! The harness itself: what the other tests rely on.

use tests::cluster::Stop;
use tests::workload::{
    PGBENCH_TABLES, Pgbench, contents, create_pgbench_tables, fill_pgbench_tables,
};
use tests::{Cluster, scale};

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
