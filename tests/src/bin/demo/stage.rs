//! What the demo consists of.

use std::time::Duration;

use pg_proto::Lsn;
use tests::subscriber::{GrpcSubscriber, Keep, PostgresSubscriber, from_lsn};
use tests::workload::{PGBENCH_TABLES, Pgbench, create_pgbench_tables, fill_pgbench_tables};
use tests::{Cluster, Decant, postgres};

/// 100,000 accounts.
const SCALE: u32 = 1;
const CLIENTS: u32 = 4;
/// The subscription's name, and its slot's.
pub(super) const SUBSCRIPTION: &str = "demo";

/// All parts, running. Dropped, they are ended and their files removed.
pub(super) struct Stage {
    pub(super) grpc: GrpcSubscriber,
    pub(super) subscriber: PostgresSubscriber,
    pub(super) decant: Decant,
    pub(super) source: Cluster,
    /// The source's position before the load.
    pub(super) begin: Lsn,
}

fn say(text: &str) {
    println!("==> {text}");
}

impl Stage {
    pub(super) async fn set_up() -> Self {
        let major = postgres::newest_complete();
        say(&format!(
            "starting a private PostgreSQL {major} as the source, and one as a subscriber"
        ));
        let source = Cluster::start_new(major).await;
        let subscriber = PostgresSubscriber::start_new(major).await;
        for cluster in [&source, &subscriber.cluster] {
            create_pgbench_tables(cluster);
        }
        // It has no key; pgbench only inserts, but whoever tries the demo may not.
        source
            .sql("alter table pgbench_history replica identity full")
            .await;
        let tables = PGBENCH_TABLES.join(", ");
        source
            .sql(&format!("create publication demo for table {tables}"))
            .await;
        say("decctl init");
        let mut decant = Decant::new(&source);
        decant.prefer_default_ports();
        print!("{}", decant.decctl_successfully(&["init"]));
        say("starting one decoder and two fanouts");
        decant.start_decoder().await;
        for _ in 0..2 {
            decant.start_fanout().await;
        }
        let first = decant.fanout(0).endpoint();
        say("CREATE SUBSCRIPTION through the first fanout, gRPC Subscribe at the second");
        subscriber.subscribe(SUBSCRIPTION, &first, "demo", "").await;
        let mut request = from_lsn(Lsn::INVALID);
        request.publications = vec!["demo".to_owned()];
        let grpc = GrpcSubscriber::start(decant.fanout(1).grpc_url(), request, Keep::Rows);
        let begin = source.flush_lsn().await;
        Self {
            grpc,
            subscriber,
            decant,
            source,
            begin,
        }
    }

    /// Fills pgbench's tables and starts it.
    pub(super) async fn start_load(&self, duration: Duration) -> Pgbench {
        say(&format!(
            "filling pgbench's tables: {} rows in one transaction",
            100_011 * SCALE
        ));
        fill_pgbench_tables(&self.source, SCALE);
        say(&format!(
            "pgbench: {CLIENTS} clients for {} s",
            duration.as_secs()
        ));
        Pgbench::start_for(&self.source, CLIENTS, duration)
    }

    /// Says how to connect, and ends without ending anything.
    pub(super) fn leave_running(mut self) {
        let socket = self.source.socket_directory().display().to_string();
        let replica = self
            .subscriber
            .cluster
            .socket_directory()
            .display()
            .to_string();
        let home = self.decant.home().display().to_string();
        println!("\nEverything goes on running:");
        println!(
            "  source        psql -h 127.0.0.1 -p {} -U postgres postgres",
            self.source.port()
        );
        println!(
            "  subscriber    psql -h 127.0.0.1 -p {} -U postgres postgres",
            self.subscriber.cluster.port()
        );
        for number in 0..2 {
            let fanout = self.decant.fanout(number);
            println!(
                "  fanout {}      PostgreSQL 127.0.0.1:{}, gRPC {}",
                number + 1,
                fanout.port(),
                fanout.grpc_url()
            );
        }
        let decctl = self.decant.program_path("decctl").display().to_string();
        println!("  decctl        {decctl} --config {home}/decant.toml status");
        println!("  a subscription of your own:");
        println!(
            "    CREATE SUBSCRIPTION mine CONNECTION '{}'",
            self.decant.fanout(0).endpoint().conninfo()
        );
        println!("      PUBLICATION demo WITH (copy_data = false);");
        println!(
            "  follow it     {decctl} --config {home}/decant.toml tail --fanout {}",
            self.decant.fanout(1).grpc_url()
        );
        let ids: Vec<String> = self.process_ids().iter().map(u32::to_string).collect();
        println!(
            "End it with:    kill -INT {} && sleep 3 && rm -rf {socket} {replica} {home}",
            ids.join(" ")
        );
        std::mem::forget(self);
    }

    fn process_ids(&mut self) -> Vec<u32> {
        let mut ids = vec![self.decant.decoder().id()];
        ids.extend((0..2).map(|number| self.decant.fanout(number).process().id()));
        ids.extend(self.source.process_id());
        ids.extend(self.subscriber.cluster.process_id());
        ids
    }
}
