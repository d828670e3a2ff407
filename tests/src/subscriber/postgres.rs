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

    /// The same, which may fail.
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
