//! Many subscriptions that apply what comes in pieces at once, by workers of their own, behind one fanout.

use tests::scale::patience;
use tests::subscriber::PostgresSubscriber;
use tests::{Cluster, wait_until};

use super::stage::Stage;

const SUBSCRIPTIONS: usize = 16;

/// The source streams early; the subscriber has workers for all.
const SETTINGS: &[(&str, &str)] = &[
    ("logical_decoding_work_mem", "64kB"),
    ("max_worker_processes", "80"),
    ("max_logical_replication_workers", "64"),
    ("max_parallel_apply_workers_per_subscription", "2"),
    ("max_replication_slots", "40"),
];

const PARALLEL: &str =
    "select count(distinct subid)::text from pg_stat_subscription where leader_pid is not null";

fn tables() -> Vec<String> {
    (0..SUBSCRIPTIONS)
        .map(|table| format!("t{table}"))
        .collect()
}

/// One statement for each table.
fn each(sql: impl Fn(&str) -> String) -> String {
    let all: Vec<String> = tables().iter().map(|table| sql(table)).collect();
    all.join("; ")
}

fn insert(from: u32, to: u32) -> String {
    each(|table| {
        format!("insert into {table} select g, md5(g::text) from generate_series({from}, {to}) g")
    })
}

/// Every subscription has all that has not ended in parallel workers, or its leader has written it to a file.
async fn wait_until_applied_in_parallel(subscriber: &Cluster) {
    wait_until("all apply in parallel", patience(), async || {
        let count = subscriber.value(PARALLEL).await;
        let all = count == SUBSCRIPTIONS.to_string();
        if all { Ok(()) } else { Err(count) }
    })
    .await;
}

async fn apply_in_parallel(major: u32) {
    let create = each(|table| format!("create table {table} (id int primary key, v text)"));
    let publish = each(|table| format!("create publication p_{table} for table {table}"));
    let settings = [SETTINGS[0]];
    let sql = format!("{create}; {publish}");
    let mut stage = Stage::with_settings(major, &settings, 1, &sql).await;
    let fanout = stage.decant.fanout(0).endpoint();
    let subscriber = PostgresSubscriber {
        cluster: Cluster::start_with(major, &SETTINGS[1..]).await,
    };
    subscriber.cluster.sql(&create).await;
    for table in tables() {
        let publication = format!("p_{table}");
        stage.wait_for_publication(&publication).await;
        let name = format!("s_{table}");
        subscriber
            .subscribe(&name, &fanout, &publication, ", streaming = parallel")
            .await;
    }
    // Two at once, with parts that are undone; then one that is given up beside one that commits.
    let mut one = stage.source.session().await;
    let mut two = stage.source.session().await;
    for (round, end_of_two) in ["commit", "rollback"].into_iter().enumerate() {
        let from = 100_000 * u32::try_from(round).unwrap();
        one.run("begin").await;
        two.run("begin").await;
        one.run(&insert(from + 1, from + 300)).await;
        two.run(&insert(from + 50_001, from + 50_300)).await;
        wait_until_applied_in_parallel(&subscriber.cluster).await;
        one.run("savepoint a").await;
        one.run(&insert(from + 1001, from + 1300)).await;
        one.run("savepoint b").await;
        one.run(&each(|table| format!("update {table} set v = 'no'")))
            .await;
        one.run("rollback to a").await;
        one.run(&each(|table| {
            format!("delete from {table} where id % 7 = 0")
        }))
        .await;
        two.run(&insert(from + 51_001, from + 51_300)).await;
        two.run(end_of_two).await;
        one.run(&insert(from + 2001, from + 2300)).await;
        one.run("commit").await;
    }
    let tables = tables();
    let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
    subscriber
        .wait_for_contents(&stage.source, &tables, patience())
        .await;
    let log = subscriber.cluster.log_text();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR:")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_subscriptions_of_version_16() {
    apply_in_parallel(16).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_subscriptions_of_version_17() {
    apply_in_parallel(17).await;
}
