//! A source under load, and a subscriber who knows what has to come: for tests in which the machine fails.
//!
//! The gRPC subscriber's model refuses a row that comes twice and a transaction out of order; so equal tables in the end
//! mean that nothing was lost, doubled or out of order.

use std::path::Path;

use pg_proto::Lsn;
use storage_format::watermark::WatermarkReader;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep};
use tests::wait_until;
use tests::workload::Pgbench;

use super::stage::Stage;

const TABLES: &str = "create table txs (id bigserial primary key, note text); \
    create table acc (id int primary key, n bigint)";
const SCRIPT: &str = "\\set a random(1, 100)\nbegin;\n\
    insert into txs (note) select repeat(md5(g::text), 20) from generate_series(1, 20) g;\n\
    update acc set n = n + 1 where id = :a;\nend;\n\\sleep 4 ms\n";

/// Everything, at work.
pub(crate) struct Load {
    pub(crate) stage: Stage,
    pub(crate) grpc: GrpcSubscriber,
    pgbench: Pgbench,
}

impl Load {
    /// With the log in `log`, if that is somewhere else than usual, and settings of the programs.
    pub(crate) async fn start(log: Option<&Path>, settings: &[(&str, &str)]) -> Self {
        let mut all = vec![("log.segment_bytes", "1048576")];
        all.extend(log.map(|log| ("log.directory", log.to_str().unwrap())));
        all.extend(settings);
        let mut stage = Stage::with_fanout_settings(15, &all, TABLES).await;
        // From now on, so that nobody else is slowed down by looking for faults.
        stage.decant.let_fail();
        stage.decant.stop_decoder().await;
        stage.decant.start_decoder().await;
        stage.decant.restart_fanout(0).await;
        let grpc = stage.grpc_subscriber(0, Keep::Rows);
        let rows = "insert into acc select g, 0 from generate_series(1, 100) g";
        stage.source.sql(rows).await;
        let pgbench = Pgbench::start_script(&stage.source, 2, SCRIPT);
        let load = Self {
            stage,
            grpc,
            pgbench,
        };
        load.wait_for_commits(100).await;
        load
    }

    async fn commits(&self) -> u64 {
        let count = self.stage.source.value("select count(*) from txs").await;
        count.parse::<u64>().unwrap() / 20
    }

    /// The load goes on.
    pub(crate) async fn wait_for_commits(&self, more: u64) {
        let before = self.commits().await;
        wait_until("the load goes on", patience(), async || {
            let now = self.commits().await;
            if now >= before + more {
                Ok(())
            } else {
                Err(now.to_string())
            }
        })
        .await;
    }

    /// The subscriber gets what commits from now on.
    pub(crate) async fn wait_for_progress(&self) {
        self.wait_for_commits(50).await;
        let end = self.stage.settle().await;
        self.grpc.wait_for(end, patience()).await;
    }

    /// What the log holds for certain, also if nobody runs who could be asked.
    pub(crate) fn durable(&self) -> Lsn {
        let reader = WatermarkReader::open(&self.stage.decant.log_directory());
        reader.unwrap().read().unwrap().durable.lsn
    }

    /// The source was never told that something is safe which is not in the log.
    pub(crate) async fn assert_nothing_is_confirmed_early(&self) {
        let sql = "select confirmed_flush_lsn from pg_replication_slots";
        let confirmed: Lsn = self.stage.source.value(sql).await.parse().unwrap();
        let durable = self.durable();
        assert!(
            confirmed <= durable,
            "{confirmed} is confirmed, {durable} is durable"
        );
    }

    /// Everything arrives, nothing twice, and the log is sound.
    pub(crate) async fn finish(mut self) {
        self.pgbench.stop_and_settle(&self.stage.source).await;
        let end = self.stage.settle().await;
        self.grpc.wait_for(end, patience()).await;
        let source = &self.stage.source;
        self.grpc.assert_contents(source, &["txs", "acc"]).await;
        self.stage.decant.decctl_successfully(&["verify"]);
        self.stage.decant.stop_decoder().await;
    }
}
