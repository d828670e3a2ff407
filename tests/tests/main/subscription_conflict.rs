//! A conflict at the subscriber: its transaction is skipped, or what is in the way is removed, and all goes on.

use pg_proto::Lsn;
use tests::scale::patience;
use tests::subscriber::PostgresSubscriber;
use tests::wait_until;

use super::stage::{PUBLICATION, Stage};

const DDL: &str = "create table t (id int primary key, v text)";

struct Conflict {
    stage: Stage,
    subscriber: PostgresSubscriber,
}

impl Conflict {
    /// Row 7 is at the subscriber before the source inserts it, together with row 8.
    async fn make(major: u32, options: &str) -> Self {
        let mut stage = Stage::new(major, 1, DDL).await;
        stage.source.sql("insert into t values (1, 'copied')").await;
        let subscriber = PostgresSubscriber::start_new(major).await;
        subscriber.cluster.sql(DDL).await;
        let endpoint = stage.decant.fanout(0).endpoint();
        subscriber
            .subscribe_with("sub", &endpoint, PUBLICATION, options)
            .await;
        subscriber.wait_until_copied("sub", patience()).await;
        subscriber
            .cluster
            .sql("insert into t values (7, 'in the way')")
            .await;
        stage
            .source
            .sql("insert into t values (7, 'source'), (8, 'source')")
            .await;
        stage.source.sql("insert into t values (9, 'later')").await;
        Self { stage, subscriber }
    }

    async fn rows(&self) -> String {
        let sql = "select string_agg(id || ' ' || v, ', ' order by id) from t";
        self.subscriber.cluster.value(sql).await
    }

    async fn wait_for_rows(&self, expected: &str) {
        wait_until("the rows are as expected", patience(), async || {
            let seen = self.rows().await;
            if seen == expected { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    /// Where the log of the subscriber says that the transaction ends.
    async fn finished_at(&self) -> Lsn {
        wait_until("the conflict is in the log", patience(), async || {
            let log = self.subscriber.cluster.log_text();
            let place = log.split("finished at ").nth(1).ok_or("no conflict")?;
            let end = place.find(|c: char| !c.is_ascii_hexdigit() && c != '/');
            let text = &place[..end.unwrap_or(place.len())];
            text.parse::<Lsn>().map_err(|_| text.to_owned())
        })
        .await
    }
}

async fn skip(major: u32) {
    let conflict = Conflict::make(major, "").await;
    let lsn = conflict.finished_at().await;
    assert_eq!(conflict.rows().await, "1 copied, 7 in the way");
    let cluster = &conflict.subscriber.cluster;
    cluster
        .sql(&format!("alter subscription sub skip (lsn = '{lsn}')"))
        .await;
    conflict
        .wait_for_rows("1 copied, 7 in the way, 9 later")
        .await;
    conflict
        .stage
        .source
        .sql("insert into t values (10, 'last')")
        .await;
    conflict
        .wait_for_rows("1 copied, 7 in the way, 9 later, 10 last")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn is_skipped_by_version_15() {
    skip(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn is_skipped_by_version_18() {
    skip(18).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disables_the_subscription_until_it_is_resolved() {
    let conflict = Conflict::make(15, "disable_on_error = true").await;
    let cluster = &conflict.subscriber.cluster;
    wait_until(
        "the subscription is disabled",
        patience(),
        async || match cluster
            .value("select subenabled from pg_subscription")
            .await
            .as_str()
        {
            "f" => Ok(()),
            other => Err(other.to_owned()),
        },
    )
    .await;
    cluster.sql("delete from t where id = 7").await;
    cluster.sql("alter subscription sub enable").await;
    conflict
        .wait_for_rows("1 copied, 7 source, 8 source, 9 later")
        .await;
}
