//! A standby as the source: the one slot is there, and what needs writing is done at its primary.

use pg_proto::Lsn;
use tests::expect::assert_mentions;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, PostgresSubscriber, from_lsn, tables};
use tests::workload::{PGBENCH_TABLES, Pgbench, create_pgbench_tables, fill_pgbench_tables};
use tests::{Cluster, Decant, wait_until};

use super::stage::PUBLICATION;

const TABLE: &str = "create table t (id int primary key, v text)";
/// What keeps the primary from removing what the standby's slot needs.
const SAFE: &[(&str, &str)] = &[
    ("primary_slot_name", "standby"),
    ("hot_standby_feedback", "on"),
];

/// A primary, its standby, and Decant before the standby.
struct Pair {
    // Dropped first, so that nobody complains about a source that went away.
    decant: Decant,
    primary: Cluster,
    standby: Cluster,
}

impl Pair {
    /// Nothing is prepared, and the primary not named.
    async fn new(major: u32, settings: &[(&str, &str)]) -> Self {
        let mut primary = Cluster::start_new(major).await;
        primary
            .sql("select pg_create_physical_replication_slot('standby')")
            .await;
        create_pgbench_tables(&primary);
        fill_pgbench_tables(&primary, 1);
        primary.sql(TABLE).await;
        primary
            .sql(&format!("create publication {PUBLICATION} for all tables"))
            .await;
        let standby = primary.standby(settings).await;
        Self {
            decant: Decant::new(&standby),
            primary,
            standby,
        }
    }

    fn name_primary(&mut self) {
        self.decant.set("source.primary_host", "127.0.0.1");
        self.decant.set("source.primary_port", self.primary.port());
    }

    /// With a decoder and a fanout.
    async fn started(major: u32, settings: &[(&str, &str)]) -> Self {
        let mut pair = Self::new(major, settings).await;
        pair.name_primary();
        pair.decant.initialise_and_start().await;
        pair.decant.start_fanout().await;
        pair
    }

    /// What the primary has committed is in the log.
    async fn settle(&self) -> Lsn {
        let lsn = self.primary.flush_lsn().await;
        self.decant.wait_until_durable(lsn).await;
        lsn
    }
}

/// From the preparation over the initial copy, with the primary idle and under load, to the promotion under load.
async fn follow_and_promote(major: u32) {
    let mut pair = Pair::new(major, SAFE).await;
    let refused = pair.decant.decctl_unsuccessfully(&["init"]);
    assert_mentions(&refused, &["a standby", "source.primary_host"]);
    let error = pair.decant.decoder_error().await;
    assert_mentions(&error, &["a standby", "source.primary_host"]);
    pair.name_primary();
    pair.decant.initialise_and_start().await;
    pair.decant.start_fanout().await;
    let slots = "select count(*) from pg_replication_slots where slot_type = 'logical'";
    assert_eq!(pair.primary.value(slots).await, "0");
    assert_eq!(pair.standby.value(slots).await, "1");

    let endpoint = pair.decant.fanout(0).endpoint();
    let idle = PostgresSubscriber::start_new(major).await;
    create_pgbench_tables(&idle.cluster);
    idle.cluster.sql(TABLE).await;
    idle.subscribe_with("idle", &endpoint, PUBLICATION, "")
        .await;
    idle.wait_until_copied("idle", patience()).await;

    let begun = pair.settle().await;
    let load = Pgbench::start_endless(&pair.primary, 4);
    let busy = PostgresSubscriber::start_new(major).await;
    create_pgbench_tables(&busy.cluster);
    busy.cluster.sql(TABLE).await;
    busy.subscribe_with("busy", &endpoint, PUBLICATION, "")
        .await;
    busy.wait_until_copied("busy", patience()).await;

    // What the old primary commits from now on, the standby never has.
    pair.standby.promote().await;
    load.stop();
    pair.primary.stop(tests::cluster::Stop::Immediate).await;
    Pgbench::start(&pair.standby, 4, 400)
        .finish(patience())
        .await;
    pair.standby.sql("insert into t values (1, 'after')").await;
    let end = pair.standby.flush_lsn().await;
    pair.decant.wait_until_durable(end).await;
    let status = pair.decant.status().await;
    assert_eq!(status.source.unwrap_or_default().timeline, 2);

    // Also after a restart, which looks whether the log and the source went different ways.
    pair.decant.stop_decoder().await;
    pair.decant.start_decoder().await;
    pair.standby.sql("insert into t values (2, 'again')").await;
    let end = pair.standby.flush_lsn().await;
    pair.decant.wait_until_durable(end).await;
    let all = [&PGBENCH_TABLES[..], &["t"]].concat();
    for subscriber in [&idle, &busy] {
        subscriber
            .wait_for_contents(&pair.standby, &all, patience())
            .await;
    }
    assert_all_once(&mut pair, begun, end).await;
    pair.decant.decctl_successfully(&["verify"]);
}

/// The log has each transaction of the new primary once: pgbench's history has a row for each.
async fn assert_all_once(pair: &mut Pair, begun: Lsn, end: Lsn) {
    let url = pair.decant.fanout(0).grpc_url();
    let mut request = from_lsn(begun);
    request.tables = tables(&["pgbench_history", "t"]);
    let log = GrpcSubscriber::start(url, request, Keep::Rows);
    log.wait_for(end, patience()).await;
    log.assert_contents(&pair.standby, &["pgbench_history", "t"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_of_16_is_followed_and_promoted() {
    follow_and_promote(16).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_of_17_is_followed_and_promoted() {
    follow_and_promote(17).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_of_18_is_followed_and_promoted() {
    follow_and_promote(18).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_standby_is_refused() {
    let mut pair = Pair::new(15, SAFE).await;
    pair.name_primary();
    let refused = pair.decant.decctl_unsuccessfully(&["init"]);
    assert_mentions(&refused, &["standby", "version 16"]);
    let error = pair.decant.decoder_error().await;
    assert_mentions(&error, &["standby", "15", "version 16"]);
}

/// What a standby can't be asked for is had from the primary.
#[tokio::test(flavor = "multi_thread")]
async fn what_needs_writing_goes_to_the_primary() {
    let mut pair = Pair::started(17, SAFE).await;
    let create = [
        "publication",
        "create",
        "own",
        "--table",
        "t where (id > 10)",
    ];
    pair.decant.decctl_successfully(&create);
    let begun = pair.settle().await;
    pair.primary
        .sql("create publication later for table t")
        .await;
    pair.primary.sql("insert into t values (5), (50)").await;
    let end = pair.settle().await;
    let url = pair.decant.fanout(0).grpc_url();
    for (publication, rows) in [("own", 1), ("later", 2)] {
        let mut request = from_lsn(begun);
        request.publications = vec![publication.to_owned()];
        let subscriber = GrpcSubscriber::start(url.clone(), request, Keep::Counts);
        subscriber.wait_for(end, patience()).await;
        subscriber.look(|received| assert_eq!(received.changes, rows, "{publication}"));
    }
    pair.decant
        .decctl_successfully(&["verify", "--against-source", "--table", "public.t"]);
    pair.decant.set("source.primary_port", pair.standby.port());
    let refused = pair.decant.decctl_unsuccessfully(&["init"]);
    assert_mentions(&refused, &["is a standby itself"]);
    let other = Cluster::start_new(17).await;
    pair.decant.set("source.primary_port", other.port());
    let refused = pair.decant.decctl_unsuccessfully(&["init"]);
    assert_mentions(&refused, &["another cluster"]);
}

/// Rows that the slot needs are removed at the primary, or its `wal_level` is lowered: the decoder stops with
/// PostgreSQL's reason, and says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_invalidates_the_slot() {
    for (major, reason) in [(16, "conflict with recovery"), (18, "rows_removed")] {
        let mut pair = Pair::started(major, &SAFE[..1]).await;
        pair.settle().await;
        wait_until("the slot is invalidated", patience(), async || {
            pair.primary
                .sql("create table gone (a int); drop table gone")
                .await;
            pair.primary.sql("vacuum pg_class").await;
            let sql = "select wal_status from pg_replication_slots where slot_name = 'decant'";
            match pair.standby.value(sql).await.as_str() {
                "lost" => Ok(()),
                other => Err(other.to_owned()),
            }
        })
        .await;
        let error = pair.decant.decoder_failure().await;
        assert_mentions(&error, &[reason, "hot_standby_feedback", "log ends at"]);
    }
    let mut pair = Pair::started(17, SAFE).await;
    pair.settle().await;
    pair.primary.stop(tests::cluster::Stop::Fast).await;
    pair.primary.set("wal_level", "replica");
    pair.primary.start().await;
    let error = pair.decant.decoder_failure().await;
    assert_mentions(&error, &["wal_level_insufficient", "wal_level = logical"]);
}
