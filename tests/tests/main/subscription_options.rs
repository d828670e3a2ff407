//! CREATE SUBSCRIPTION with each of its options, and DROP SUBSCRIPTION: the tables are copied, changes follow, and no
//! slot stays behind.

use tests::Session;
use tests::scale::patience;
use tests::subscriber::PostgresSubscriber;

use super::stage::{PUBLICATION, Stage};

const DDL: &str = "create table t (id int primary key, v text, b bytea)";
const TABLES: [&str; 1] = ["t"];

struct Pair {
    stage: Stage,
    subscriber: PostgresSubscriber,
    next: u32,
}

impl Pair {
    async fn start(source: u32, subscriber: u32) -> Self {
        let stage = Stage::new(source, 1, DDL).await;
        let subscriber = PostgresSubscriber::start_new(subscriber).await;
        subscriber.cluster.sql(DDL).await;
        Self {
            stage,
            subscriber,
            next: 1,
        }
    }

    async fn insert(&mut self) {
        let from = self.next;
        self.next += 10;
        let insert = format!(
            "insert into t select g, 'row ' || g, decode(md5(g::text), 'hex') \
             from generate_series({from}, {}) g",
            from + 9
        );
        self.stage.source.sql(&insert).await;
    }

    async fn create(&mut self, options: &str) {
        self.insert().await;
        let endpoint = self.stage.decant.fanout(0).endpoint();
        self.subscriber
            .subscribe_with("sub", &endpoint, PUBLICATION, options)
            .await;
    }

    /// Copied, and changed behind that.
    async fn check(&mut self) {
        self.subscriber.wait_until_copied("sub", patience()).await;
        self.insert().await;
        self.subscriber
            .wait_for_contents(&self.stage.source, &TABLES, patience())
            .await;
    }

    async fn slots(&self) -> Vec<String> {
        let slots = self.stage.decant.status().await.slots;
        slots.into_iter().map(|slot| slot.name).collect()
    }

    async fn drop_subscription(&mut self) {
        let cluster = &self.subscriber.cluster;
        cluster.sql("drop subscription sub").await;
        cluster.sql("truncate t").await;
        assert_eq!(self.slots().await, Vec::<String>::new());
        assert_eq!(self.stage.source.slot_count().await, 1);
    }

    async fn make_slot(&mut self, name: &str) {
        let endpoint = self.stage.decant.fanout(0).endpoint();
        let mut session = Session::connect_for_replication(&endpoint).await.unwrap();
        let create = format!("CREATE_REPLICATION_SLOT {name} LOGICAL pgoutput NOEXPORT_SNAPSHOT");
        session.run(&create).await;
    }
}

/// Options with which all goes by itself.
async fn each(pair: &mut Pair, options: &[&str]) {
    for options in options {
        println!("with ({options})");
        pair.create(options).await;
        pair.check().await;
        pair.drop_subscription().await;
    }
}

const OF_15: [&str; 8] = [
    "",
    "synchronous_commit = local",
    "slot_name = named",
    "binary = true",
    "streaming = on",
    "two_phase = true",
    "disable_on_error = true",
    "binary = true, streaming = true, two_phase = true",
];

#[tokio::test(flavor = "multi_thread")]
async fn of_version_15() {
    let mut pair = Pair::start(15, 15).await;
    each(&mut pair, &OF_15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_version_18() {
    let mut pair = Pair::start(18, 18).await;
    each(&mut pair, &OF_15[2..]).await;
    let further = [
        "origin = none",
        "streaming = parallel",
        "run_as_owner = true, password_required = false",
        "failover = true",
    ];
    each(&mut pair, &further).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_subscriber_and_source_of_different_versions() {
    let mut pair = Pair::start(15, 18).await;
    each(&mut pair, &["", "binary = true, origin = none"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn that_leave_something_for_later() {
    let mut pair = Pair::start(15, 15).await;

    // Nothing is connected to: slot and tables are for later.
    pair.create("connect = false").await;
    assert_eq!(pair.slots().await, Vec::<String>::new());
    pair.make_slot("sub").await;
    let cluster = &pair.subscriber.cluster;
    cluster.sql("alter subscription sub enable").await;
    cluster
        .sql("alter subscription sub refresh publication")
        .await;
    pair.check().await;
    pair.drop_subscription().await;

    // The slot is made, and nobody works.
    pair.create("enabled = false").await;
    assert_eq!(pair.slots().await, ["sub"]);
    pair.insert().await;
    let cluster = &pair.subscriber.cluster;
    assert_eq!(cluster.value("select count(*) from t").await, "0");
    cluster.sql("alter subscription sub enable").await;
    pair.check().await;
    pair.drop_subscription().await;

    // A slot that is there already.
    pair.make_slot("mine").await;
    pair.create("create_slot = false, slot_name = mine").await;
    pair.check().await;
    pair.drop_subscription().await;

    // No slot at all.
    pair.create("create_slot = false, enabled = false, slot_name = none")
        .await;
    assert_eq!(pair.slots().await, Vec::<String>::new());
    pair.make_slot("other").await;
    let cluster = &pair.subscriber.cluster;
    cluster
        .sql("alter subscription sub set (slot_name = other)")
        .await;
    cluster.sql("alter subscription sub enable").await;
    pair.check().await;
    pair.drop_subscription().await;
}
