//! Positions advance also when nothing that is published changes.

use pg_proto::Lsn;
use tests::scale::patience;
use tests::subscriber::{Keep, PostgresSubscriber};
use tests::wait_until;

use super::stage::{PUBLICATION, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_database_does_not_hold_wal() {
    let mut stage = Stage::new(15, 1, "create table t (id int primary key)").await;
    let subscriber = PostgresSubscriber::start_new(15).await;
    subscriber
        .cluster
        .sql("create table t (id int primary key)")
        .await;
    let endpoint = stage.decant.fanout(0).endpoint();
    subscriber
        .subscribe("sub", &endpoint, PUBLICATION, "")
        .await;
    let grpc = stage.grpc_subscriber(0, Keep::Rows);

    // The WAL grows by what another database does.
    stage.source.sql("create database other").await;
    let mut other = stage.source.endpoint();
    other.database = "other".to_owned();
    let mut session = tests::Session::connect(&other).await.unwrap();
    session
        .run("create table x as select generate_series(1, 50000)")
        .await;

    let end = stage.settle().await;
    let confirmed = "select confirmed_flush_lsn from pg_replication_slots";
    wait_until("the source's slot advances", patience(), async || {
        let text = stage.source.value(confirmed).await;
        let confirmed: Lsn = text.parse().unwrap();
        if confirmed >= end { Ok(()) } else { Err(text) }
    })
    .await;
    grpc.wait_for(end, patience()).await;
    subscriber.wait_for("sub", end, patience()).await;

    // And so do the subscriber's slot and what may be deleted.
    wait_until("the subscriber's slot advances", patience(), async || {
        let slots = stage.decant.status().await.slots;
        let slot = slots.iter().find(|slot| slot.name == "sub");
        let slot = slot.ok_or("no slot")?;
        let confirmed = Lsn(slot.confirmed_lsn);
        if confirmed >= end {
            Ok(())
        } else {
            Err(confirmed.to_string())
        }
    })
    .await;
}
