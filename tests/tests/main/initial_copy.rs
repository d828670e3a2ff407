//! CREATE SUBSCRIPTION with initial copy, as PostgreSQL does it by default, while the source works: afterwards the
//! subscriber has the source's rows. A row that is lost or comes twice makes a difference, or stops the subscriber with an
//! error (primary keys); pgbench's history has no key, and is counted.

use std::time::Duration;

use tests::Cluster;
use tests::scale::{patience, pick};
use tests::subscriber::PostgresSubscriber;
use tests::workload::{PGBENCH_TABLES, Pgbench, create_pgbench_tables, fill_pgbench_tables};

use super::stage::{PUBLICATION, Stage};

/// How many write at the source while tables are copied.
const WRITERS: u32 = 8;

/// A server with pgbench's tables, empty.
async fn subscriber(major: u32) -> PostgresSubscriber {
    let subscriber = PostgresSubscriber::start_new(major).await;
    create_pgbench_tables(&subscriber.cluster);
    subscriber
}

/// Only the decoder's own slot is left at the source, and it has no connections but the decoder's.
async fn assert_nothing_is_left(source: &Cluster) {
    let slots = source
        .value("select string_agg(slot_name, ', ') from pg_replication_slots")
        .await;
    assert_eq!(slots, "decant");
}

/// Copies pgbench's tables in a run at full load.
async fn copy_under_load(source: u32, subscriber_version: u32, configure: &[(&str, &str)]) {
    let mut stage = Stage::with_pgbench_and(source, 1, configure).await;
    fill_pgbench_tables(&stage.source, 1);
    let pgbench = Pgbench::start_endless(&stage.source, WRITERS);
    let subscriber = subscriber(subscriber_version).await;
    let endpoint = stage.decant.fanout(0).endpoint();
    subscriber
        .subscribe_with("copied", &endpoint, PUBLICATION, "")
        .await;
    subscriber.wait_until_copied("copied", patience()).await;
    // The streams that follow the copies have something to do, too.
    tokio::time::sleep(Duration::from_millis(pick(500, 5_000))).await;
    pgbench.stop_and_settle(&stage.source).await;
    stage.settle().await;
    subscriber
        .wait_for_contents(&stage.source, &PGBENCH_TABLES, patience())
        .await;
    assert_nothing_is_left(&stage.source).await;
    let slots = stage.decant.status().await.slots;
    let names: Vec<&str> = slots.iter().map(|slot| slot.name.as_str()).collect();
    assert_eq!(
        names,
        ["copied"],
        "slots of table synchronisations are dropped"
    );
    let fanout = stage.decant.fanout(0);
    let by_cut = fanout
        .metric("decant_fanout_snapshots_total{method=\"cut\"}")
        .await;
    let by_slot = fanout
        .metric("decant_fanout_snapshots_total{method=\"slot\"}")
        .await;
    let tries = fanout.metric("decant_fanout_snapshot_tries_total").await;
    println!("{by_cut} snapshots by a cut of {tries} tried, {by_slot} by a slot");
    assert!(by_cut + by_slot >= 4, "one for each table");
    if configure
        .iter()
        .any(|(key, _)| *key == "fanout.snapshot_tries")
    {
        assert_eq!(by_cut, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_version_15() {
    copy_under_load(15, 15, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_version_18() {
    copy_under_load(18, 18, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn from_version_15_to_18_with_snapshots_that_the_source_makes() {
    copy_under_load(15, 18, &[("fanout.snapshot_tries", "0")]).await;
}

/// Writes to `t_1` ... `t_count`, and to a table without a key.
fn script(count: u32) -> String {
    format!(
        "\\set n random(1, {count})\n\\set m random(1, {count})\n\\set id random(1, 100000)\n\\set k random(1, 500)\n\
         begin;\n\
         insert into t_:n values (:id, 'new') on conflict (id) do update set v = t_:n.v || '+';\n\
         delete from t_:m where id = :id + 1;\n\
         insert into keyless values (:k, 'x');\n\
         end;\n\
         update t_:m set v = 'changed' where id = :k;\n\
         update keyless set v = 'y' where k = :k and v = 'x' and random() < 0.1;\n"
    )
}

/// Many tables and several subscribers at once: as many copies as their servers' workers do at a time.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_tables_to_three_subscribers_at_once() {
    let count = pick(16, 100);
    let tables: Vec<String> = (1..=count)
        .map(|number| format!("t_{number}"))
        .chain(["keyless".to_owned()])
        .collect();
    let mut ddl = "create table keyless (k int, v text); alter table keyless replica identity full"
        .to_owned();
    for number in 1..=count {
        ddl += &format!("; create table t_{number} (id int primary key, v text)");
    }
    let mut stage = Stage::new(15, 2, &ddl).await;
    for number in 1..=count {
        let fill = format!(
            "insert into t_{number} select g, 'old' from generate_series(1, {}) g",
            pick(500, 5_000)
        );
        stage.source.sql(&fill).await;
    }
    let pgbench = Pgbench::start_script(&stage.source, WRITERS, &script(count));
    let mut subscribers = Vec::new();
    for (number, major) in [15, 15, 18].into_iter().enumerate() {
        let subscriber = PostgresSubscriber::start_new(major).await;
        subscriber.cluster.sql(&ddl).await;
        subscribers.push((format!("sub_{number}"), number % 2, subscriber));
    }
    for (name, fanout, subscriber) in &subscribers {
        let endpoint = stage.decant.fanout(*fanout).endpoint();
        subscriber
            .subscribe_with(name, &endpoint, PUBLICATION, "")
            .await;
    }
    for (name, _, subscriber) in &subscribers {
        subscriber.wait_until_copied(name, patience()).await;
    }
    pgbench.stop_and_settle(&stage.source).await;
    stage.settle().await;
    let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
    for (_, _, subscriber) in &subscribers {
        subscriber
            .wait_for_contents(&stage.source, &tables, patience())
            .await;
    }
    assert_nothing_is_left(&stage.source).await;
    assert_eq!(stage.decant.status().await.slots.len(), subscribers.len());
    let fanout = stage.decant.fanout(0);
    let by_cut = fanout
        .metric("decant_fanout_snapshots_total{method=\"cut\"}")
        .await;
    let tries = fanout.metric("decant_fanout_snapshot_tries_total").await;
    println!("the first fanout: {by_cut} snapshots by a cut of {tries} tried");
}

/// A partitioned table beside, whose root has a filter and a list of columns, and a table with two filters: one is
/// evaluated here, the other by the source.
const SELECTED: &str = "
    create table filtered (id int primary key, n int, v text);
    alter table filtered replica identity full;
    create table deep (id int, region text, n int, v text, primary key (id, region)) partition by list (region);
    create table deep_x partition of deep for values in ('x');
    create table deep_y partition of deep for values in ('y') partition by range (id);
    create table deep_y_low partition of deep_y for values from (minvalue) to (1000);
    create table deep_y_high partition of deep_y for values from (1000) to (maxvalue);
    create table listed (id int primary key, a text, b text, c text);
    create table parted (id int, region text, v text, primary key (id, region)) partition by list (region);
    create table parted_x partition of parted for values in ('x');
    create table parted_y partition of parted for values in ('y')";
/// Some columns, some rows, and partitioned tables by their roots.
const SELECTION: &str = "
    create publication of_columns for table listed (id, b);
    create publication of_rows for table filtered where (n % 3 = 0), deep (id, region, n) where (id % 5 <> 0)
        with (publish_via_partition_root);
    create publication of_more_rows for table filtered where (v ~ '^u.*[7]$');
    create publication of_root for table parted with (publish_via_partition_root)";
const SELECTED_SCRIPT: &str = "\\set id random(1, 2000)\n\
    insert into listed values (:id, 'a', 'new', 'c') on conflict (id) do update set b = listed.b || '+';\n\
    delete from listed where id = :id + 1;\n\
    insert into parted values (:id, 'x', 'new') on conflict do nothing;\n\
    update parted set region = 'y' where id = :id - 1;\n\
    delete from parted where id = :id + 1;\n\
    insert into filtered values (:id, :id, 'new') on conflict (id) do update set n = filtered.n + 1;\n\
    update filtered set v = 'u' || :id, n = -n where id = :id - 1;\n\
    delete from filtered where id = :id + 1;\n\
    insert into deep values (:id, 'x', 1, 'new') on conflict do nothing;\n\
    update deep set region = 'y', n = n + 1 where id = :id - 1;\n\
    update deep set region = 'x', n = n + 1 where id = :id - 2;\n\
    delete from deep where id = :id + 1;\n";

/// The subscriber has what its publications publish: other columns, and one table in the place of the partitions.
async fn copy_what_is_selected(major: u32) {
    let mut stage = Stage::new(major, 1, &format!("{SELECTED};{SELECTION}")).await;
    let fill = "
        insert into listed select g, 'a', 'old', 'c' from generate_series(1, 500) g;
        insert into filtered select g, g, 'u' || g from generate_series(1, 500) g;
        insert into deep select g, case when g % 2 = 0 then 'x' else 'y' end, g, 'old' from generate_series(1, 1500) g;
        insert into parted select g, case when g % 2 = 0 then 'x' else 'y' end, 'old' from generate_series(1, 500) g";
    stage.source.sql(fill).await;
    let pgbench = Pgbench::start_script(&stage.source, WRITERS, SELECTED_SCRIPT);
    let subscriber = PostgresSubscriber::start_new(major).await;
    let ddl = "create table listed (b text, id int primary key, own text default 'mine');
        create table filtered (id int primary key, n int, v text);
        create table deep (n int, region text, id int, own int, primary key (id, region));
        create table parted (id int, region text, v text, primary key (id, region))";
    subscriber.cluster.sql(ddl).await;
    let endpoint = stage.decant.fanout(0).endpoint();
    subscriber
        .subscribe_with(
            "sub",
            &endpoint,
            "of_columns, of_rows, of_more_rows, of_root",
            "",
        )
        .await;
    subscriber.wait_until_copied("sub", patience()).await;
    pgbench.stop_and_settle(&stage.source).await;
    stage.settle().await;
    let tables = [
        "(select id, b from listed)",
        "parted",
        "(select * from filtered where n % 3 = 0 or v ~ '^u.*[7]$')",
        "(select id, region, n from deep where id % 5 <> 0)",
    ];
    subscriber
        .wait_for_contents(&stage.source, &tables, patience())
        .await;
    let own = "select count(*) from listed where own is distinct from 'mine'";
    assert_eq!(subscriber.cluster.value(own).await, "0");
    let hidden = "select count(*) from filtered where not (n % 3 = 0 or v ~ '^u.*[7]$')";
    assert_eq!(subscriber.cluster.value(hidden).await, "0");
    let hidden = "select count(*) from deep where id % 5 = 0";
    assert_eq!(subscriber.cluster.value(hidden).await, "0");
    assert_nothing_is_left(&stage.source).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_columns_rows_and_partitions_of_version_15() {
    copy_what_is_selected(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_columns_rows_and_partitions_of_version_18() {
    copy_what_is_selected(18).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_version_14() {
    copy_under_load(14, 14, &[]).await;
    copy_under_load(14, 14, &[("fanout.snapshot_tries", "0")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_version_16() {
    copy_under_load(16, 16, &[]).await;
    copy_under_load(16, 16, &[("fanout.snapshot_tries", "0")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_version_17() {
    copy_under_load(17, 17, &[]).await;
    copy_under_load(17, 17, &[("fanout.snapshot_tries", "0")]).await;
}
