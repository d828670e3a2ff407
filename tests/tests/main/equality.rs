//! Many subscribers, each with a row filter `tenant = <its own>`: what a change costs grows with those it is for.

use std::fmt::Write as _;

use pg_proto::Lsn;
use tests::Cluster;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, from_lsn};

use super::stage::Stage;

const TENANTS: usize = 200;
const COLUMNS: usize = 3;

/// A table whose key has the tenant, and a publication for each.
fn definitions() -> String {
    let mut sql =
        "create table t (tenant int, id int, v text, primary key (tenant, id));".to_owned();
    for tenant in 0..TENANTS {
        write!(
            sql,
            "create publication tenant_{tenant} for table t where (tenant = {tenant});"
        )
        .unwrap();
    }
    sql
}

fn subscribers(url: &str, start: Lsn) -> Vec<GrpcSubscriber> {
    let subscriber = |tenant| {
        let mut request = from_lsn(start);
        request.publications = vec![format!("tenant_{tenant}")];
        GrpcSubscriber::start(url.to_owned(), request, Keep::Rows)
    };
    (0..TENANTS).map(subscriber).collect()
}

/// Rows of a tenant, in order of their text.
async fn rows_of(source: &Cluster) -> Vec<Vec<Vec<Option<String>>>> {
    let mut tenants = vec![Vec::new(); TENANTS];
    for row in source.sql("select tenant, id, v from t").await {
        assert_eq!(row.len(), COLUMNS);
        let tenant: usize = row[0].as_deref().unwrap().parse().unwrap();
        tenants[tenant].push(row);
    }
    for rows in &mut tenants {
        rows.sort();
    }
    tenants
}

async fn assert_each_has_its_own(source: &Cluster, subscribers: &[GrpcSubscriber], end: Lsn) {
    for (subscriber, expected) in subscribers.iter().zip(rows_of(source).await) {
        subscriber.wait_for(end, patience()).await;
        let mut rows = subscriber.look(|seen| seen.model.rows("public.t"));
        rows.sort();
        assert_eq!(rows, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_evaluated_for_those_it_is_for() {
    let mut stage = Stage::new(15, 1, &definitions()).await;
    stage.wait_for_publication("tenant_0").await;
    // The table is described before its first row, for everybody.
    stage
        .source
        .sql("insert into t values (0, 0, 'first'); delete from t")
        .await;
    let start = stage.settle().await;
    let url = stage.decant.fanout(0).grpc_url();
    let running = subscribers(&url, start);
    for subscriber in &running {
        subscriber.wait_for(start, patience()).await;
    }
    let evaluated = "decant_fanout_filtered_rows_total{path=\"native\"}";
    let before = stage.decant.fanout(0).metric(evaluated).await;
    let mut session = stage.source.session().await;
    // One by one, and many at once.
    for id in 1..=300 {
        let sql = format!("insert into t values ({}, {id}, 'single')", id % 20);
        session.run(&sql).await;
    }
    for sql in [
        format!("insert into t select g % {TENANTS}, g, 'many' from generate_series(1000, 5999) g"),
        "update t set v = 'other' where id between 2000 and 2999".to_owned(),
        format!("update t set tenant = (tenant + 1) % {TENANTS} where id between 3000 and 3999"),
        "delete from t where id between 4000 and 4499".to_owned(),
    ] {
        session.run(&sql).await;
    }
    let end = stage.settle().await;
    assert_each_has_its_own(&stage.source, &running, end).await;
    let evaluated = stage.decant.fanout(0).metric(evaluated).await - before;
    // Each row for whom it is for, an UPDATE with two rows, and each for the one that asks first, who has no index.
    let rows: u64 = 300 + 5000 + 2 * 1000 + 2 * 1000 + 500;
    assert!(evaluated >= rows, "{evaluated}");
    assert!(
        evaluated <= 3 * rows,
        "{evaluated} evaluations of {rows} rows for {TENANTS} subscribers"
    );

    // Who comes later reads the same.
    drop(running);
    let later = subscribers(&url, Lsn::INVALID);
    assert_each_has_its_own(&stage.source, &later, end).await;
}
