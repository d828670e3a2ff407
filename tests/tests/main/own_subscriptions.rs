//! CREATE SUBSCRIPTION with publications that belong to Decant: the subscriber looks them up in the source's catalog.
//! A publication of the source with the same definition is the judge of what it is told.

use tests::scale::patience;
use tests::subscriber::PostgresSubscriber;
use tests::{Session, wait_until};

use super::stage::Stage;

/// The same tables on both sides.
const TABLES: &str = "
    create table t (id int primary key, gone int, v text, secret text default 'none');
    alter table t drop column gone;
    create table u (id int primary key, v text);
    create schema s;
    create table s.w (id int primary key, v text, twice int generated always as (id * 2) stored);
    create table s.\"Odd \u{fc}\" (id int primary key)";

const ROWS: &str = "
    insert into t select g, 'v' || g, 'secret' from generate_series(1, 10) g;
    insert into u select g, 'v' || g from generate_series(1, 10) g;
    insert into s.w (id, v) select g, 'v' || g from generate_series(1, 10) g;
    insert into s.\"Odd \u{fc}\" select generate_series(1, 3)";

/// What stands behind the name, for both kinds. From 15 on.
const DEFINITIONS: &[(&str, &[&str], &str)] = &[
    (
        "rows",
        &["--table", "t (id, v) where (id > 3)"],
        "for table t (id, v) where (id > 3)",
    ),
    (
        "schema",
        &["--schema", "s", "--table", "u where (v <> 'v\u{fc}')"],
        "for tables in schema s, table u where (v <> 'v\u{fc}')",
    ),
    (
        "whole",
        &["--table", "t", "--publish", "insert"],
        "for table t with (publish = 'insert')",
    ),
    ("all", &["--all-tables"], "for all tables"),
];

/// What a subscriber asks (`fetch_table_list`, `fetch_remote_table_info`), for publications of these names.
fn questions(major: u32, names: &str) -> Vec<String> {
    let mut all = vec![
        format!(
            "SELECT t.pubname FROM\n pg_catalog.pg_publication t WHERE\n t.pubname IN ({names})"
        ),
        format!(
            "SELECT DISTINCT t.schemaname, t.tablename\n  FROM pg_catalog.pg_publication_tables t\n WHERE t.pubname IN ({names}) ORDER BY 1, 2"
        ),
        format!(
            "select puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot from pg_publication where pubname in ({names}) order by 1, 2, 3, 4, 5, 6"
        ),
    ];
    if major >= 15 {
        all.push(format!(
            "SELECT DISTINCT t.schemaname, t.tablename, t.attnames, t.rowfilter FROM pg_catalog.pg_publication_tables t \
             WHERE t.pubname IN ({names}) ORDER BY 1, 2, 3, 4"
        ));
        all.push(format!(
            "SELECT DISTINCT gpt.relid::regclass, (CASE WHEN (array_length(gpt.attrs, 1) = c.relnatts)   THEN NULL ELSE gpt.attrs END)::text  \
             FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt,  pg_class c \
             WHERE c.oid = gpt.relid   AND p.pubname IN ( {names} ) ORDER BY 1, 2"
        ));
        all.push(format!(
            "SELECT DISTINCT pg_get_expr(gpt.qual, gpt.relid)  FROM pg_publication p,  \
             LATERAL pg_get_publication_tables(p.pubname) gpt WHERE gpt.relid = 't'::regclass   AND p.pubname IN ( {names} )"
        ));
    }
    if major >= 16 {
        all.push(format!(
            "SELECT DISTINCT n.nspname, c.relname, gpt.attrs\n       FROM pg_class c\n         JOIN pg_namespace n ON n.oid = c.relnamespace\n         \
             JOIN ( SELECT (pg_get_publication_tables(VARIADIC array_agg(pubname::text))).*\n                FROM pg_publication\n                \
             WHERE pubname IN ( {names} )) AS gpt\n             ON gpt.relid = c.oid\n ORDER BY 1, 2"
        ));
    }
    all
}

/// Has the definition as one of Decant's own, and as one of the source's whose name begins with `native_`.
async fn define(stage: &Stage, name: &str, arguments: &[&str], definition: &str) {
    let all = [&["publication", "create", name], arguments].concat();
    stage.decant.decctl_successfully(&all);
    let native = format!("create publication native_{name} {definition}");
    stage.source.sql(&native).await;
}

async fn the_catalog_has_both_kinds(major: u32) {
    let mut stage = Stage::new(major, 1, TABLES).await;
    let definitions = if major < 15 {
        &DEFINITIONS[2..]
    } else {
        DEFINITIONS
    };
    for (name, arguments, definition) in definitions {
        define(&stage, name, arguments, definition).await;
    }
    stage.settle().await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let mut sessions = [
        Session::connect(&endpoint).await.unwrap(),
        Session::connect_for_replication(&endpoint).await.unwrap(),
    ];
    for session in &mut sessions {
        for (name, ..) in definitions {
            let own = questions(major, &format!("'{name}'"));
            let native = questions(major, &format!("'native_{name}'"));
            for (own, native) in own.iter().zip(&native).skip(1) {
                let expected = session.run(native).await;
                assert_eq!(session.run(own).await, expected, "{own}");
                assert!(!expected.is_empty() || own.contains("pg_get_expr"), "{own}");
            }
            assert_eq!(session.run(&own[0]).await.len(), 1, "{name}");
        }
        // One of each kind together.
        let mixed = questions(major, "'whole', 'native_all'");
        let native = questions(major, "'native_whole', 'native_all'");
        for (mixed, native) in mixed.iter().zip(&native).skip(1) {
            let expected = session.run(native).await;
            assert_eq!(session.run(mixed).await, expected, "{mixed}");
        }
        let nothing = session
            .run("SELECT pubname FROM pg_publication WHERE pubname = 'nosuch'")
            .await;
        assert!(nothing.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_has_both_kinds_14() {
    the_catalog_has_both_kinds(14).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_has_both_kinds_15() {
    the_catalog_has_both_kinds(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_has_both_kinds_16() {
    the_catalog_has_both_kinds(16).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_has_both_kinds_17() {
    the_catalog_has_both_kinds(17).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_has_both_kinds_18() {
    the_catalog_has_both_kinds(18).await;
}

/// What the subscriber has of a table, in order.
async fn rows(subscriber: &PostgresSubscriber, sql: &str) -> String {
    let sql = format!("select coalesce(string_agg(r::text, ' ' order by r), '') from ({sql}) as r");
    subscriber.cluster.value(&sql).await
}

fn decctl(stage: &Stage, arguments: &[&str]) {
    let all = [&["publication"], arguments].concat();
    stage.decant.decctl_successfully(&all);
}

async fn assert_copied(subscriber: &PostgresSubscriber, filters: bool) {
    let copied = rows(subscriber, "select id from t").await;
    let expected = if filters {
        "(4) (5) (6) (7) (8) (9) (10)"
    } else {
        "(1) (2) (3) (4) (5) (6) (7) (8) (9) (10)"
    };
    assert_eq!(copied, expected);
    if filters {
        // The subscriber's default, never the source's.
        let secrets = rows(subscriber, "select distinct secret from t").await;
        assert_eq!(secrets, "(none)");
    }
    assert_eq!(rows(subscriber, "select count(*) from u").await, "(10)");
}

async fn a_subscription_copies_and_follows(source: u32, version: u32) {
    let mut stage = Stage::new(
        source,
        1,
        &format!("{TABLES}; {ROWS}; create publication theirs for table u"),
    )
    .await;
    let filters = source >= 15 && version >= 15;
    let definition = if filters {
        "t (id, v) where (id > 3)"
    } else {
        "t"
    };
    decctl(&stage, &["create", "mine", "--table", definition]);
    let subscriber = PostgresSubscriber::start_new(version).await;
    subscriber.cluster.sql(TABLES).await;
    let endpoint = stage.decant.fanout(0).endpoint();
    subscriber
        .subscribe_with("sub", &endpoint, "mine, theirs", "")
        .await;
    subscriber.wait_until_copied("sub", patience()).await;
    assert_copied(&subscriber, filters).await;

    stage
        .source
        .sql("insert into t values (2000, 'new', 'secret'), (-1, 'low', 'secret'); update t set v = 'changed' where id < 6; insert into u values (11)")
        .await;
    // A table more, which the subscription learns of when it is refreshed.
    decctl(
        &stage,
        &["alter", "mine", "--table", definition, "--table", "s.w"],
    );
    subscriber
        .cluster
        .sql("alter subscription sub refresh publication")
        .await;
    subscriber.wait_until_copied("sub", patience()).await;
    stage
        .source
        .sql("insert into s.w values (100, 'streamed')")
        .await;
    stage.settle().await;
    let all = "select (select count(*) from s.w)::text || ' ' || (select count(*) from t where v = 'changed') \
               || ' ' || (select count(*) from u)";
    let expected = if filters { "11 2 11" } else { "11 6 11" };
    wait_until(
        "the subscriber has all",
        patience(),
        async || match subscriber.cluster.value(all).await {
            seen if seen == expected => Ok(()),
            seen => Err(seen),
        },
    )
    .await;
    let left = "select string_agg(pubname, ' ' order by pubname) from pg_publication";
    assert_eq!(stage.source.value(left).await, "decant everything theirs");
    subscriber.cluster.sql("drop subscription sub").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_copies_and_follows_14() {
    a_subscription_copies_and_follows(14, 14).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_copies_and_follows_15() {
    a_subscription_copies_and_follows(15, 15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_copies_and_follows_16() {
    a_subscription_copies_and_follows(16, 16).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_copies_and_follows_17() {
    a_subscription_copies_and_follows(17, 17).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_copies_and_follows_18() {
    a_subscription_copies_and_follows(18, 18).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_of_18_at_15_copies_and_follows() {
    a_subscription_copies_and_follows(15, 18).await;
}
