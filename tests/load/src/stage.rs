//! What is measured on: one source with data, Decant beside it, and slots at both for the receivers.

use std::fmt::Write as _;
use std::time::Duration;

use pg_proto::Lsn;
use proto::v1::{CreateSlotRequest, WatchHeadRequest};
use tests::{Cluster, Decant, postgres, wait_until};
use tokio::time::Instant;

use crate::drain::Server;

/// Long enough for the largest backlog on a slow machine.
const DEADLINE: Duration = Duration::from_secs(900);

/// Room for 64 native slots. Checkpoints and autovacuum would come at one side's time and not at the other's.
const SETTINGS: &[(&str, &str)] = &[
    ("max_wal_senders", "100"),
    ("max_replication_slots", "100"),
    ("max_connections", "200"),
    ("shared_buffers", "256MB"),
    ("max_wal_size", "32GB"),
    ("checkpoint_timeout", "1h"),
    ("autovacuum", "off"),
    ("log_replication_commands", "off"),
    // The receivers say nothing; 64 of the server's own senders may need more than a minute on a slow machine.
    ("wal_sender_timeout", "0"),
];

/// The table of which everything is made: a row is about 150 bytes on the wire.
const COLUMNS: &str = "(id bigint primary key, account int not null, amount numeric(12,2) not null, \
     at timestamptz not null, note text not null)";

/// Fills a table with rows `first ..`, so many per transaction. The text is not compressible by more than its hexadecimal
/// digits allow.
const FILL: &str = "
create procedure bench_fill(into_table text, first bigint, row_count bigint, per_transaction int)
language plpgsql as $$
declare
  n bigint := 0;
begin
  while n < row_count loop
    execute format('insert into %I select i, i %% 1000, (i %% 100000)::numeric / 100, clock_timestamp(), '
      'md5(i::text) || md5((i + 1)::text) from generate_series($1, $2) i', into_table)
      using first + n, first + least(n + per_transaction, row_count) - 1;
    commit;
    n := n + per_transaction;
  end loop;
end $$";

/// The same for several tables `rows_0 …`, in turn: each transaction has rows of one of them, as many as are asked for.
const MIX: &str = "
create procedure bench_mix(tables int, row_count bigint, per_transaction int)
language plpgsql as $$
declare
  n bigint := 0;
begin
  while n < row_count loop
    execute format('insert into rows_%s select i, i %% 1000, (i %% 100000)::numeric / 100, clock_timestamp(), '
      'md5(i::text) || md5((i + 1)::text) from generate_series($1, $2) i', n / per_transaction % tables)
      using n, least(n + per_transaction, row_count) - 1;
    commit;
    n := n + per_transaction;
  end loop;
end $$";

/// Rows of a transaction, where a part does not ask for something else.
pub const ROWS_PER_TRANSACTION: u64 = 100;

/// The source and Decant. Dropped, everything ends and its files go.
#[derive(Debug)]
pub struct Stage {
    /// Decoder and fanouts.
    pub decant: Decant,
    /// The server.
    pub source: Cluster,
}

impl Stage {
    /// A source with `tables` tables named `rows_0 …`, each in a publication of the same name, all in the publication
    /// `everything`; Decant, with its decoder and one fanout.
    pub async fn start(tables: usize) -> Self {
        let mut stage = Self::without_programs(tables).await;
        stage.decant.initialise_and_start().await;
        stage.decant.start_fanout().await;
        stage
    }

    /// The same before `decctl init`.
    pub async fn without_programs(tables: usize) -> Self {
        let source = Cluster::start_with(major(), SETTINGS).await;
        let mut sql = String::new();
        for number in 0..tables {
            write!(
                sql,
                "create table rows_{number} {COLUMNS};\
                 create publication rows_{number} for table rows_{number};"
            )
            .expect("text can be written");
        }
        source.sql(&sql).await;
        let all: Vec<String> = (0..tables).map(|number| format!("rows_{number}")).collect();
        let all = all.join(", ");
        source
            .sql(&format!("create publication everything for table {all}"))
            .await;
        source.sql(FILL).await;
        source.sql(MIX).await;
        let mut decant = Decant::new(&source);
        // The product's own defaults, not those of the tests.
        decant.set("log.segment_bytes", 64 << 20);
        decant.set("decoder.catalog_poll_ms", 2_000);
        Self { decant, source }
    }

    /// The source's replication protocol.
    pub fn native(&self) -> Server {
        Server::Postgres {
            port: self.source.port(),
        }
    }

    /// A fanout's.
    pub fn fanout(&mut self, number: usize) -> Server {
        Server::Postgres {
            port: self.decant.fanout(number).port(),
        }
    }

    /// Slots `<prefix>_0 …` at the source.
    pub async fn create_native_slots(&self, prefix: &str, count: usize) {
        let mut session = self.source.session().await;
        for number in 0..count {
            let sql = format!(
                "select pg_create_logical_replication_slot('{prefix}_{number}', 'pgoutput')"
            );
            session.run(&sql).await;
        }
    }

    /// Drops them, so that the source need not keep its WAL.
    pub async fn drop_native_slots(&self, prefix: &str) {
        let sql = format!(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots \
             where slot_name like '{prefix}\\_%' and not active"
        );
        self.source.sql(&sql).await;
    }

    /// Slots `<prefix>_0 …` of Decant, all at the log's head.
    pub async fn create_decant_slots(&self, prefix: &str, count: usize) {
        let mut control = self.decant.control().await;
        let mut start_lsn = None;
        for number in 0..count {
            let request = CreateSlotRequest {
                name: format!("{prefix}_{number}"),
                start_lsn,
                creator: "bench".to_owned(),
                plugin: "pgoutput".to_owned(),
                ..CreateSlotRequest::default()
            };
            let created = control
                .create_slot(request)
                .await
                .unwrap_or_else(|status| panic!("no slot {prefix}_{number}: {status}"));
            // The first one is at the head, behind all publications; the others are where it is.
            start_lsn = created.into_inner().slot.map(|slot| slot.confirmed_lsn);
        }
    }

    /// Inserts rows into a table; the position behind the last commit.
    pub async fn fill(&self, table: usize, first: u64, rows: u64, per_transaction: u64) -> Lsn {
        let mut session = self.source.session().await;
        session.run("set synchronous_commit = off").await;
        let call = format!("call bench_fill('rows_{table}', {first}, {rows}, {per_transaction})");
        session.run(&call).await;
        self.end_of_wal().await
    }

    /// Inserts rows into the first `tables` tables in turn; the position behind the last commit.
    pub async fn mix(&self, tables: usize, rows: u64, per_transaction: u64) -> Lsn {
        let mut session = self.source.session().await;
        session.run("set synchronous_commit = off").await;
        let call = format!("call bench_mix({tables}, {rows}, {per_transaction})");
        session.run(&call).await;
        self.end_of_wal().await
    }

    /// The position behind everything that has committed, once it is on disk.
    pub async fn end_of_wal(&self) -> Lsn {
        let mut session = self.source.session().await;
        let end = session.value("select pg_current_wal_insert_lsn()").await;
        // A commit of its own that waits for the disk, since those before may not have.
        session.run("select txid_current()").await;
        end.parse().expect("the server prints positions")
    }

    /// Process ids of the walsenders that serve the receivers.
    pub async fn native_walsenders(&self) -> Vec<u32> {
        self.process_ids(
            "select pid from pg_stat_activity where backend_type = 'walsender' \
             and application_name = 'decant_tests'",
        )
        .await
    }

    /// Process id of the walsender that serves the decoder.
    pub async fn decoder_walsender(&self) -> Vec<u32> {
        self.process_ids("select active_pid from pg_replication_slots where slot_name = 'decant'")
            .await
    }

    async fn process_ids(&self, sql: &str) -> Vec<u32> {
        let rows = self.source.sql(sql).await;
        rows.iter()
            .filter_map(|row| row.first()?.as_ref()?.parse().ok())
            .collect()
    }

    /// Waits until every finished segment is sealed.
    pub async fn wait_until_sealed(&self) {
        wait_until("all finished segments are sealed", DEADLINE, async || {
            let files = self.decant.segment_files();
            let active = files.iter().filter(|name| name.ends_with(".active"));
            match active.count() {
                0 | 1 => Ok(()),
                count => Err(format!("{count} are not")),
            }
        })
        .await;
    }
}

/// The source's version: `BENCH_POSTGRES`, or the newest that is installed.
pub fn major() -> u32 {
    let wanted = std::env::var("BENCH_POSTGRES").ok();
    let wanted = wanted.map(|text| text.parse().expect("BENCH_POSTGRES is a major version"));
    wanted.unwrap_or_else(postgres::newest_complete)
}

/// Waits until the log is durable up to a position; when that was.
pub async fn wait_until_durable(decant: &Decant, end: Lsn) -> Instant {
    let mut control = decant.control().await;
    let request = WatchHeadRequest::default();
    let head = control.watch_head(request).await;
    let mut head = head
        .unwrap_or_else(|status| panic!("the decoder tells no head: {status}"))
        .into_inner();
    let wait = async {
        loop {
            let next = head.message().await;
            match next.unwrap_or_else(|status| panic!("no head any more: {status}")) {
                Some(head) if head.durable_lsn >= end.0 => return Instant::now(),
                Some(_) => {}
                None => panic!("the decoder ended"),
            }
        }
    };
    tokio::time::timeout(DEADLINE, wait)
        .await
        .unwrap_or_else(|_| panic!("the log is not durable up to {end} within {DEADLINE:?}"))
}
