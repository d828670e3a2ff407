//! A real PostgreSQL subscriber.

use std::time::Duration;

use pg_proto::Lsn;

use crate::cluster::Cluster;
use crate::expect::wait_until;
use crate::sql::{Endpoint, SqlError};
use crate::workload::contents;

/// A server that subscribes to a fanout as if that were the publisher.
#[derive(Debug)]
pub struct PostgresSubscriber {
    /// The server.
    pub cluster: Cluster,
}

impl PostgresSubscriber {
    /// A new server of a major version, without subscriptions.
    pub async fn start_new(major: u32) -> Self {
        Self {
            cluster: Cluster::start_new(major).await,
        }
    }

    /// CREATE SUBSCRIPTION without initial copy; `options` are further ones, after a comma.
    pub async fn subscribe(&self, name: &str, to: &Endpoint, publications: &str, options: &str) {
        self.try_subscribe(name, to, publications, options)
            .await
            .unwrap_or_else(|error| panic!("CREATE SUBSCRIPTION: {error}"));
    }

    /// CREATE SUBSCRIPTION with these options, and the server's defaults for all others: with initial copy.
    pub async fn subscribe_with(
        &self,
        name: &str,
        to: &Endpoint,
        publications: &str,
        options: &str,
    ) {
        let with = if options.is_empty() {
            String::new()
        } else {
            format!(" with ({options})")
        };
        let sql = format!(
            "create subscription {name} connection '{}' publication {publications}{with}",
            to.conninfo()
        );
        self.cluster.sql(&sql).await;
    }

    /// Waits until every table of a subscription was copied and has caught up.
    pub async fn wait_until_copied(&self, name: &str, deadline: Duration) {
        let what = format!("the tables of subscription {name} are copied");
        let sql = format!(
            "select coalesce(string_agg(srrelid::regclass || ' ' || srsubstate::text, ', '), '') \
             from pg_subscription_rel join pg_subscription on oid = srsubid \
             where subname = '{name}' and srsubstate <> 'r'"
        );
        wait_until(&what, deadline, async || {
            let left = connect(&self.cluster).await?.value(&sql).await;
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
    }

    /// The same as [`Self::subscribe`], which may fail.
    pub async fn try_subscribe(
        &self,
        name: &str,
        to: &Endpoint,
        publications: &str,
        options: &str,
    ) -> Result<(), SqlError> {
        let sql = format!(
            "create subscription {name} connection '{}' publication {publications} \
             with (copy_data = false{options})",
            to.conninfo()
        );
        self.cluster.session().await.try_run(&sql).await.map(drop)
    }

    /// Waits until the apply worker has applied all up to a position.
    pub async fn wait_for(&self, name: &str, lsn: Lsn, deadline: Duration) {
        let what = format!("subscription {name} reaches {lsn}");
        let sql = format!(
            "select coalesce(max(latest_end_lsn), '0/0') from pg_stat_subscription \
             where subname = '{name}'"
        );
        wait_until(&what, deadline, async || {
            let mut session = connect(&self.cluster).await?;
            let reached = session.value(&sql).await;
            let position: Lsn = reached.parse().expect("the server prints positions");
            if position >= lsn {
                Ok(())
            } else {
                Err(reached)
            }
        })
        .await;
    }

    /// Waits until some tables have the same rows here as at the source.
    pub async fn wait_for_contents(&self, source: &Cluster, tables: &[&str], deadline: Duration) {
        let expected = contents(&mut source.session().await, tables).await;
        wait_until(
            "the subscriber has the source's rows",
            deadline,
            async || {
                let mut session = connect(&self.cluster).await?;
                let seen = contents(&mut session, tables).await;
                crate::expect::equal(&seen, &expected)
            },
        )
        .await;
    }
}

async fn connect(cluster: &Cluster) -> Result<crate::sql::Session, String> {
    crate::sql::Session::connect(&cluster.endpoint())
        .await
        .map_err(|error| error.to_string())
}
