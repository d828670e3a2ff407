//! What happens to a subscription while it lives: its publications, name, slot and connection change, it is disabled and
//! enabled, its server and all others are started again. The source is written to all the time.

use pg_proto::Lsn;
use tests::cluster::Stop;
use tests::scale::patience;
use tests::subscriber::PostgresSubscriber;
use tests::wait_until;
use tests::workload::Pgbench;

use super::stage::Stage;

const DDL: &str = "
    create table a (id int primary key, v text);
    create table b (id int primary key, v text);
    create table c (id int primary key, v text)";
const PUBLICATIONS: &str = "
    create publication of_a for table a;
    create publication of_b for table b;
    create publication of_c for table c";
/// Every table gets rows, and rows change.
const SCRIPT: &str = "\\set id random(1, 2000)\n\
    insert into a values (:id, 'new') on conflict (id) do update set v = a.v || '+';\n\
    insert into b values (:id, 'new') on conflict (id) do update set v = 'changed';\n\
    insert into c values (:id, 'new') on conflict do nothing;\n\
    delete from a where id = :id + 1;\n\
    delete from c where id = :id + 1;\n";

struct Life {
    stage: Stage,
    subscriber: PostgresSubscriber,
    pgbench: Pgbench,
}

impl Life {
    async fn begin(major: u32, publications: &str) -> Self {
        let mut stage = Stage::new(major, 2, &format!("{DDL};{PUBLICATIONS}")).await;
        let rows = "insert into {} select g, 'old' from generate_series(1, 300) g";
        for table in ["a", "b", "c"] {
            stage.source.sql(&rows.replace("{}", table)).await;
        }
        let pgbench = Pgbench::start_script(&stage.source, 3, SCRIPT);
        let subscriber = PostgresSubscriber::start_new(major).await;
        subscriber.cluster.sql(DDL).await;
        let endpoint = stage.decant.fanout(0).endpoint();
        subscriber
            .subscribe_with("sub", &endpoint, publications, "")
            .await;
        subscriber.wait_until_copied("sub", patience()).await;
        Self {
            stage,
            subscriber,
            pgbench,
        }
    }

    /// ALTER SUBSCRIPTION, then all that is subscribed to is copied.
    async fn alter(&self, what: &str) {
        let sql = format!("alter subscription sub {what}");
        self.subscriber.cluster.sql(&sql).await;
        self.subscriber.wait_until_copied("sub", patience()).await;
    }

    /// Changes still arrive.
    async fn check_progress(&self, table: &str) {
        let sql = format!("insert into {table} values (100000, 'marked')");
        self.stage.source.sql(&sql).await;
        let what = format!("a change of {table} arrives");
        wait_until(&what, patience(), async || {
            let sql = format!("select count(*) from {table} where id = 100000");
            match self.subscriber.cluster.value(&sql).await.as_str() {
                "1" => Ok(()),
                other => Err(other.to_owned()),
            }
        })
        .await;
        let sql = format!("delete from {table} where id = 100000");
        self.stage.source.sql(&sql).await;
    }

    async fn slots(&self) -> Vec<String> {
        let slots = self.stage.decant.status().await.slots;
        slots.into_iter().map(|slot| slot.name).collect()
    }

    /// Stops the writers; these tables are equal in the end.
    async fn finish(self, tables: &[&str]) {
        self.pgbench.stop_and_settle(&self.stage.source).await;
        self.stage.settle().await;
        self.subscriber
            .wait_for_contents(&self.stage.source, tables, patience())
            .await;
        assert_eq!(self.stage.source.slot_count().await, 1);
        let cluster = &self.subscriber.cluster;
        cluster.sql("drop subscription sub").await;
        let slots = self.stage.decant.status().await.slots;
        assert!(slots.is_empty(), "{slots:?}");
    }
}

async fn publications_change(major: u32) {
    let life = Life::begin(major, "of_a").await;
    let cluster = &life.subscriber.cluster;
    assert_eq!(cluster.value("select count(*) from b").await, "0");
    life.alter("add publication of_b").await;
    life.check_progress("b").await;
    life.alter("drop publication of_a").await;
    // What is not subscribed to stays as it is, and is copied anew when it comes back.
    cluster.sql("truncate a").await;
    life.alter("set publication of_a, of_c").await;
    life.check_progress("c").await;
    // Not before it is refreshed.
    life.alter("add publication of_b with (refresh = false)")
        .await;
    cluster.sql("truncate b").await;
    life.alter("refresh publication").await;
    life.check_progress("b").await;

    let new = "create table d (id int primary key, v text)";
    cluster.sql(new).await;
    life.stage.source.sql(new).await;
    life.stage
        .source
        .sql("insert into d values (1, 'old')")
        .await;
    life.stage
        .source
        .sql("alter publication of_c add table d")
        .await;
    life.stage
        .source
        .sql("insert into d values (2, 'new')")
        .await;
    life.alter("refresh publication with (copy_data = true)")
        .await;
    life.check_progress("d").await;
    life.finish(&["a", "b", "c", "d"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn publications_of_version_15_change() {
    publications_change(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn publications_of_version_18_change() {
    publications_change(18).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_disabled_renamed_and_changed() {
    let life = Life::begin(15, "of_a, of_b, of_c").await;
    let cluster = &life.subscriber.cluster;
    life.alter("disable").await;
    life.stage
        .source
        .sql("insert into a values (50000, 'meanwhile')")
        .await;
    life.alter("enable").await;
    life.check_progress("a").await;
    for settings in [
        "synchronous_commit = on",
        "streaming = on",
        "binary = true",
        "disable_on_error = true",
    ] {
        life.alter(&format!("set ({settings})")).await;
        life.check_progress("b").await;
    }
    cluster.sql("alter subscription sub rename to other").await;
    cluster.sql("alter subscription other rename to sub").await;
    life.check_progress("c").await;
    // The slot keeps its name.
    assert_eq!(life.slots().await, ["sub"]);
    life.finish(&["a", "b", "c"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_version_18_change() {
    let life = Life::begin(18, "of_a, of_b, of_c").await;
    for settings in [
        "streaming = off",
        "origin = none",
        "run_as_owner = true",
        "password_required = false",
    ] {
        life.alter(&format!("set ({settings})")).await;
        life.check_progress("a").await;
    }
    // These two are told to the publisher, while nobody works.
    for settings in ["failover = true", "two_phase = true", "two_phase = false"] {
        life.alter("disable").await;
        wait_until("the apply worker has ended", patience(), async || {
            let sql = "select count(*) from pg_stat_subscription where pid is not null";
            match life.subscriber.cluster.value(sql).await.as_str() {
                "0" => Ok(()),
                left => Err(left.to_owned()),
            }
        })
        .await;
        life.alter(&format!("set ({settings})")).await;
        life.alter("enable").await;
        life.check_progress("b").await;
    }
    life.finish(&["a", "b", "c"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_moves_to_another_fanout_and_back() {
    let mut life = Life::begin(15, "of_a, of_b, of_c").await;
    for fanout in [1, 0] {
        let endpoint = life.stage.decant.fanout(fanout).endpoint();
        life.alter(&format!("connection '{}'", endpoint.conninfo()))
            .await;
        life.check_progress("a").await;
    }
    life.finish(&["a", "b", "c"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_leaves_its_slot_to_another_one() {
    let Life {
        mut stage,
        subscriber,
        pgbench,
    } = Life::begin(15, "of_a, of_b, of_c").await;
    // The other one goes on where the slot stands, which is behind what this one has applied as long as it has not
    // reported it: the same at a publisher.
    pgbench.stop_and_settle(&stage.source).await;
    let end = stage.settle().await;
    wait_until("all is confirmed", patience(), async || {
        let slots = stage.decant.status().await.slots;
        let confirmed = slots.first().map(|slot| Lsn(slot.confirmed_lsn));
        if confirmed.is_some_and(|confirmed| confirmed >= end) {
            Ok(())
        } else {
            Err(format!("{confirmed:?}"))
        }
    })
    .await;
    let endpoint = stage.decant.fanout(0).endpoint();
    for sql in [
        "alter subscription sub disable",
        "alter subscription sub set (slot_name = none)",
        "drop subscription sub",
    ] {
        subscriber.cluster.sql(sql).await;
    }
    let pgbench = Pgbench::start_script(&stage.source, 3, SCRIPT);
    let life = Life {
        stage,
        subscriber,
        pgbench,
    };
    assert_eq!(life.slots().await, ["sub"], "it was not the subscription's");
    life.subscriber
        .subscribe_with(
            "sub",
            &endpoint,
            "of_a, of_b, of_c",
            "create_slot = false, copy_data = false",
        )
        .await;
    life.check_progress("a").await;
    life.finish(&["a", "b", "c"]).await;
}

/// The subscription is dropped while its tables are being copied: their slots go with it.
#[tokio::test(flavor = "multi_thread")]
async fn it_is_dropped_in_the_middle_of_its_copy() {
    let life = Life::begin(15, "of_a").await;
    let cluster = &life.subscriber.cluster;
    // The copies stop where they would write.
    let mut locks = cluster.session().await;
    locks
        .run("begin; insert into b values (1, 'in the way')")
        .await;
    cluster
        .sql("alter subscription sub set publication of_a, of_b")
        .await;
    wait_until("a table's slot is made", patience(), async || {
        let slots = life.slots().await;
        if slots.len() > 1 {
            Ok(())
        } else {
            Err(format!("{slots:?}"))
        }
    })
    .await;
    locks.run("rollback").await;
    cluster.sql("drop subscription sub").await;
    assert_eq!(life.slots().await, Vec::<String>::new());
    life.pgbench.stop_and_settle(&life.stage.source).await;
    assert_eq!(life.stage.source.slot_count().await, 1);
}

/// Everything is started again, in different orders, while the source is written to.
#[tokio::test(flavor = "multi_thread")]
async fn its_servers_are_started_again_in_any_order() {
    let mut life = Life::begin(15, "of_a, of_b").await;
    for order in [
        "subscriber fanout decoder source",
        "source decoder fanout subscriber",
        "decoder subscriber source fanout",
    ] {
        let parts: Vec<&str> = order.split(' ').collect();
        for part in &parts {
            let stage = &mut life.stage;
            match *part {
                "subscriber" => life.subscriber.cluster.stop(Stop::Fast).await,
                "fanout" => stage.decant.stop_fanout(0).await,
                "decoder" => stage.decant.stop_decoder().await,
                _ => stage.source.stop(Stop::Immediate).await,
            }
        }
        life.pgbench.stop();
        for part in parts.iter().rev() {
            let stage = &mut life.stage;
            match *part {
                "subscriber" => life.subscriber.cluster.start().await,
                "fanout" => stage.decant.spawn_fanout(0),
                "decoder" => stage.decant.spawn_decoder(),
                _ => stage.source.start().await,
            }
        }
        life.stage.decant.wait_until_streaming().await;
        life.stage.decant.wait_until_serving(0).await;
        life.pgbench = Pgbench::start_script(&life.stage.source, 3, SCRIPT);
        life.check_progress("a").await;
    }
    life.alter("add publication of_c").await;
    life.finish(&["a", "b", "c"]).await;
}
