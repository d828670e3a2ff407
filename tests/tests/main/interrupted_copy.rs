//! `kill -9` in the middle of an initial copy: it is taken up again, and in the end nothing is lost and nothing doubled.

use std::time::Duration;

use tests::scale::{patience, pick};
use tests::sql::{Endpoint, Session};
use tests::subscriber::PostgresSubscriber;
use tests::wait_until;
use tests::workload::Pgbench;

use super::stage::{PUBLICATION, Stage};

const TABLES: [&str; 3] = ["large", "small", "keyless"];
const DDL: &str = "
    create table large (id int primary key, v text);
    create table small (id int primary key, v text);
    create table keyless (k int, v text);
    alter table keyless replica identity full";
const ROWS: &str = "
    insert into large select g, repeat('x', 100) from generate_series(1, 3000) g;
    insert into small select g, 'old' from generate_series(1, 100) g;
    insert into keyless select g % 50, 'old' from generate_series(1, 200) g";
/// Makes the copy of a table last: every row waits a moment at the subscriber.
const SLOW: &str = "
    create function slow() returns trigger language plpgsql as
        'begin perform pg_sleep(0.002); return new; end';
    create trigger slow before insert on large for each row execute function slow();
    alter table large enable always trigger slow";
const SCRIPT: &str = "\\set id random(1, 6000)\n\\set k random(1, 50)\n\
    insert into large values (:id, 'new') on conflict (id) do update set v = 'changed';\n\
    delete from large where id = :id + 1;\n\
    insert into small values (:id, 'new') on conflict do nothing;\n\
    insert into keyless values (:k, 'new');\n\
    update keyless set v = 'changed' where k = :k and v = 'old';\n";

struct Copying {
    stage: Stage,
    subscriber: PostgresSubscriber,
    pgbench: Pgbench,
}

impl Copying {
    /// Up to the middle of the large table's copy.
    async fn begin() -> Self {
        let mut stage = Stage::new(15, 1, DDL).await;
        stage.source.sql(ROWS).await;
        let pgbench = Pgbench::start_script(&stage.source, 4, SCRIPT);
        let subscriber = PostgresSubscriber::start_new(15).await;
        subscriber.cluster.sql(DDL).await;
        subscriber.cluster.sql(SLOW).await;
        let endpoint = stage.decant.fanout(0).endpoint();
        subscriber
            .subscribe_with("sub", &endpoint, PUBLICATION, "")
            .await;
        let copying = Self {
            stage,
            subscriber,
            pgbench,
        };
        copying.wait_until_in_the_middle().await;
        copying
    }

    async fn wait_until_in_the_middle(&self) {
        wait_until("rows are being copied", patience(), async || {
            let sql = "select coalesce(max(tuples_processed), 0) from pg_stat_progress_copy \
                       where relid = 'large'::regclass";
            let rows = self.subscriber.cluster.value(sql).await;
            match rows.parse::<u32>() {
                Ok(100..) => Ok(()),
                _ => Err(rows),
            }
        })
        .await;
    }

    async fn finish(self) {
        self.subscriber
            .cluster
            .sql("alter table large disable trigger slow")
            .await;
        self.subscriber.wait_until_copied("sub", patience()).await;
        self.pgbench.stop_and_settle(&self.stage.source).await;
        self.stage.settle().await;
        self.subscriber
            .wait_for_contents(&self.stage.source, &TABLES, patience())
            .await;
        assert_eq!(self.stage.source.slot_count().await, 1);
        let slots = self.stage.decant.status().await.slots;
        let names: Vec<&str> = slots.iter().map(|slot| slot.name.as_str()).collect();
        assert_eq!(names, ["sub"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_end_of_the_subscriber() {
    let mut copying = Copying::begin().await;
    copying.subscriber.cluster.kill().await;
    copying.subscriber.cluster.start().await;
    copying.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_end_of_the_fanout() {
    let mut copying = Copying::begin().await;
    copying.stage.decant.kill_fanout(0);
    copying.stage.decant.restart_fanout(0).await;
    copying.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_end_of_the_decoder() {
    let mut copying = Copying::begin().await;
    copying.stage.decant.kill_decoder();
    copying.stage.decant.start_decoder().await;
    copying.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_end_of_the_source() {
    let mut copying = Copying::begin().await;
    copying.stage.source.kill().await;
    copying.stage.source.start().await;
    copying.stage.decant.wait_until_streaming().await;
    copying.pgbench.stop();
    copying.pgbench = Pgbench::start_script(&copying.stage.source, 4, SCRIPT);
    copying.finish().await;
}

/// Many tables, and somebody ends every now and then: tables are hit in every state.
#[tokio::test(flavor = "multi_thread")]
async fn by_the_end_of_each_in_turn() {
    let count = pick(12, 40);
    let tables: Vec<String> = (1..=count).map(|number| format!("t_{number}")).collect();
    let ddl: String = tables
        .iter()
        .map(|table| {
            format!(
                "create table {table} (k int, v text); alter table {table} replica identity full;"
            )
        })
        .collect();
    let mut stage = Stage::new(15, 1, &ddl).await;
    for table in &tables {
        let fill = format!("insert into {table} select g, 'old' from generate_series(1, 300) g");
        stage.source.sql(&fill).await;
    }
    let script = format!(
        "\\set n random(1, {count})\n\\set k random(1, 1000)\n\
         insert into t_:n values (:k, 'new');\n\
         update t_:n set v = 'changed' where k = :k and v = 'old';\n"
    );
    let pgbench = Pgbench::start_script(&stage.source, 3, &script);
    let mut subscriber = PostgresSubscriber::start_new(15).await;
    subscriber.cluster.sql(&ddl).await;
    let endpoint = stage.decant.fanout(0).endpoint();
    // A table's worker drops its slot before it commits that it is done (`process_syncing_tables_for_sync` in tablesync.c).
    // One that a crash of either side ends in between asks for that slot for ever, as it would at a publisher; so its
    // commits are durable here, and whoever is killed is killed while no worker is in that place.
    subscriber
        .subscribe_with("sub", &endpoint, PUBLICATION, "synchronous_commit = on")
        .await;
    for round in 0..pick(6, 40) {
        tokio::time::sleep(Duration::from_millis(150 + 97 * round % 300)).await;
        let mut states = subscriber.cluster.session().await;
        states
            .run("begin; lock table pg_subscription_rel in share mode")
            .await;
        match round % 3 {
            0 => {
                stage.decant.kill_fanout(0);
                stage.decant.restart_fanout(0).await;
            }
            1 => {
                subscriber.cluster.kill().await;
                subscriber.cluster.start().await;
            }
            _ => {
                stage.decant.kill_decoder();
                stage.decant.start_decoder().await;
            }
        }
        // Closed, it holds the lock no more.
        drop(states);
    }
    subscriber.wait_until_copied("sub", patience()).await;
    pgbench.stop_and_settle(&stage.source).await;
    stage.settle().await;
    let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
    subscriber
        .wait_for_contents(&stage.source, &tables, patience())
        .await;
    assert_eq!(stage.source.slot_count().await, 1);
}

/// The slots of the source, but for the decoder's.
async fn others(stage: &Stage) -> String {
    let sql = "select coalesce(string_agg(slot_name, ', '), '') from pg_replication_slots \
               where slot_name <> 'decant'";
    stage.source.value(sql).await
}

/// A fanout whose snapshots are all made by the source, a transaction that the source waits for, and a client that waits.
async fn waiting_for_a_writer() -> (Stage, Session, tokio::task::JoinHandle<()>, Endpoint) {
    let settings = [("fanout.snapshot_tries", "0")];
    let mut stage = Stage::with_fanout_settings(15, &settings, DDL).await;
    let mut writer = stage.source.session().await;
    writer.run("begin; insert into small values (1, 'x')").await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let to = endpoint.clone();
    let client = tokio::spawn(async move {
        let mut session = Session::connect_for_replication(&to).await.unwrap();
        let create = "CREATE_REPLICATION_SLOT waits LOGICAL pgoutput";
        let error = session.try_run(create).await.unwrap_err();
        panic!("{error}");
    });
    wait_until(
        "the source makes a snapshot",
        patience(),
        async || match others(&stage).await.as_str() {
            "" => Err("no slot".to_owned()),
            _ => Ok(()),
        },
    )
    .await;
    (stage, writer, client, endpoint)
}

async fn wait_until_gone(stage: &Stage) {
    wait_until(
        "the temporary slot is gone",
        patience(),
        async || match others(stage).await.as_str() {
            "" => Ok(()),
            left => Err(left.to_owned()),
        },
    )
    .await;
}

/// Whoever waits for a snapshot may leave: the source then stops waiting, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_leaves_no_slot() {
    let (mut stage, mut writer, client, endpoint) = waiting_for_a_writer().await;
    client.abort();
    wait_until_gone(&stage).await;
    // The writer was not waited for, and there is no slot here either.
    writer.run("commit").await;
    let mut session = Session::connect_for_replication(&endpoint).await.unwrap();
    let error = session
        .try_run("DROP_REPLICATION_SLOT waits")
        .await
        .unwrap_err();
    assert_eq!(error.code, "42704");
    let fanout = stage.decant.fanout(0);
    assert_eq!(
        fanout.metric("decant_fanout_snapshots_failed_total").await,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fanout_that_is_killed_leaves_no_slot() {
    let (mut stage, mut writer, client, _) = waiting_for_a_writer().await;
    stage.decant.kill_fanout(0);
    client.abort();
    tokio::time::sleep(Duration::from_millis(100)).await;
    writer.run("commit").await;
    wait_until_gone(&stage).await;
}
