//! What most tests begin with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pg_proto::Lsn;
use proto::v1::GetCatalogRequest;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, PostgresSubscriber};
use tests::workload::create_pgbench_tables;
use tests::{Cluster, Decant, wait_until};
use tokio::task::JoinHandle;

/// The publication that subscribers name.
pub(crate) const PUBLICATION: &str = "everything";

/// A source with a decoder and fanouts in front of it.
pub(crate) struct Stage {
    // Dropped first, so that nobody complains about a source that went away.
    pub(crate) decant: Decant,
    pub(crate) source: Cluster,
}

impl Stage {
    /// A source on which `sql` was run, a publication of all tables, a running decoder, `fanouts` fanouts.
    pub(crate) async fn new(major: u32, fanouts: usize, sql: &str) -> Self {
        Self::with_settings(major, &[], fanouts, sql).await
    }

    /// The same with settings of the source.
    pub(crate) async fn with_settings(
        major: u32,
        settings: &[(&str, &str)],
        fanouts: usize,
        sql: &str,
    ) -> Self {
        let source = Cluster::start_with(major, settings).await;
        if !sql.is_empty() {
            source.sql(sql).await;
        }
        Self::on(source, fanouts).await
    }

    /// The same whose slot at the source is not one of two-phase commit.
    pub(crate) async fn new_without_two_phase(major: u32, fanouts: usize, sql: &str) -> Self {
        let source = Cluster::start_new(major).await;
        source.sql(sql).await;
        Self::on_with(source, fanouts, &[("source.two_phase", "off")]).await
    }

    /// The same with pgbench's tables, empty.
    pub(crate) async fn with_pgbench(major: u32, fanouts: usize) -> Self {
        let source = Cluster::start_new(major).await;
        create_pgbench_tables(&source);
        Self::on(source, fanouts).await
    }

    /// The same with settings of the programs.
    pub(crate) async fn with_pgbench_and(
        major: u32,
        fanouts: usize,
        settings: &[(&str, &str)],
    ) -> Self {
        let source = Cluster::start_new(major).await;
        create_pgbench_tables(&source);
        Self::on_with(source, fanouts, settings).await
    }

    /// One fanout, with settings of the programs.
    pub(crate) async fn with_fanout_settings(
        major: u32,
        settings: &[(&str, &str)],
        sql: &str,
    ) -> Self {
        let source = Cluster::start_new(major).await;
        source.sql(sql).await;
        Self::on_with(source, 1, settings).await
    }

    /// The same around a server that is there, with further arguments of `decctl init`.
    pub(crate) async fn around_with(source: Cluster, fanouts: usize, init: &[&str]) -> Self {
        let decant = Decant::new(&source);
        decant.decctl_successfully(&[&["init"], init].concat());
        drop(decant);
        Self::on(source, fanouts).await
    }

    /// On a source that is there already.
    pub(crate) async fn on(source: Cluster, fanouts: usize) -> Self {
        Self::on_with(source, fanouts, &[]).await
    }

    async fn on_with(source: Cluster, fanouts: usize, settings: &[(&str, &str)]) -> Self {
        source
            .sql(&format!("create publication {PUBLICATION} for all tables"))
            .await;
        let mut decant = Decant::new(&source);
        for (key, value) in settings {
            decant.set(key, value);
        }
        decant.initialise_and_start().await;
        for _ in 0..fanouts {
            decant.start_fanout().await;
        }
        Self { decant, source }
    }

    /// Waits until the log knows a publication that was made before the decoder began: what commits before that is judged
    /// without it.
    pub(crate) async fn wait_for_publication(&mut self, name: &str) {
        let mut client = self.decant.fanout(0).client().await;
        let what = format!("publication {name} is in the log");
        wait_until(&what, patience(), async || {
            let request = GetCatalogRequest { lsn: 0 };
            let catalog = client.get_catalog(request).await;
            let catalog = catalog.map_err(|status| status.to_string())?.into_inner();
            let mut known = catalog.publications.iter();
            let found = known.any(|one| one.name == name);
            found.then_some(()).ok_or_else(|| "it is not".to_owned())
        })
        .await;
    }

    /// The end of what the source has committed, as the log sees it: waits until that is durable.
    pub(crate) async fn settle(&self) -> Lsn {
        let lsn = self.source.flush_lsn().await;
        self.decant.wait_until_durable(lsn).await;
        lsn
    }

    /// A PostgreSQL subscriber with pgbench's tables behind a fanout; its subscription and slot have `name`.
    pub(crate) async fn pgbench_subscriber(
        &mut self,
        name: &str,
        major: u32,
        fanout: usize,
    ) -> PostgresSubscriber {
        let subscriber = PostgresSubscriber::start_new(major).await;
        create_pgbench_tables(&subscriber.cluster);
        let endpoint = self.decant.fanout(fanout).endpoint();
        subscriber.subscribe(name, &endpoint, PUBLICATION, "").await;
        subscriber
    }

    /// A gRPC subscriber from the beginning of the log.
    pub(crate) fn grpc_subscriber(&mut self, fanout: usize, keep: Keep) -> GrpcSubscriber {
        let url = self.decant.fanout(fanout).grpc_url();
        GrpcSubscriber::start(url, tests::subscriber::from_lsn(Lsn::INVALID), keep)
    }
}

/// Looks all the time at how many replication slots the source has.
pub(crate) struct SlotWatch {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<u64, String>>,
}

impl SlotWatch {
    pub(crate) async fn start(source: &Cluster) -> Self {
        let mut session = source.session().await;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut looks = 0;
            while !stopped.load(Ordering::Relaxed) {
                let names = session
                    .value("select coalesce(string_agg(slot_name, ', '), '') from pg_replication_slots")
                    .await;
                if names != "decant" {
                    return Err(names);
                }
                looks += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(looks)
        });
        Self { stop, task }
    }

    /// Panics unless there was exactly the decoder's slot every time.
    pub(crate) async fn assert_one(self) {
        self.stop.store(true, Ordering::Relaxed);
        let result = self.task.await.expect("the watch does not panic");
        let looks = result.unwrap_or_else(|names| panic!("slots at the source: {names}"));
        assert!(looks > 0);
    }
}
