//! How much disk the log needs.

use proto::v1::{ListSegmentsRequest, Segment};
use tests::workload::{Pgbench, create_pgbench_tables, fill_pgbench_tables};

use std::time::Duration;

use crate::cpu;
use crate::measure::{count, say};
use crate::outcome::{Outcome, Table, Target};
use crate::scale::Scale;
use crate::stage::{Stage, wait_until_durable};

const ABOUT: &str = "Bytes of sealed log per byte of WAL from which it was made, for three kinds of load. WAL is all that the source wrote \
    between a segment's first and last position: also indexes, and pages as a whole after a checkpoint.";

/// Small, so that nearly everything gets into finished segments.
const SEGMENT_BYTES: u64 = 8 << 20;
/// The least that can be configured.
const SEGMENT_BYTES_MIN: f64 = 1_048_576.0;
const TRANSACTIONS: u64 = 40_000;
const CLIENTS: u32 = 4;
const WIDE_ROWS: u64 = 40_000;
const DDL_ROUNDS: u64 = 20_000;
const DEADLINE: Duration = Duration::from_secs(600);

/// 40 columns of numbers, words and a text of 1,600 characters.
const WIDE: &str = "
do $$
begin
  execute 'create table wide (id bigint primary key, '
    || (select string_agg(format('n%s int, w%s text', i, i), ', ') from generate_series(1, 20) i)
    || ', body text)';
end $$;
create procedure wide_fill(row_count bigint) language plpgsql as $$
declare
  columns text := (select string_agg(format('(i * %s) %% 100000, left(md5((i * %s)::text), 12)', n, n), ', ')
                   from generate_series(1, 20) n);
begin
  for begins in 0 .. row_count - 1 by 50 loop
    execute 'insert into wide select i, ' || columns
      || ', (select string_agg(md5((i * 50 + k)::text), '' '') from generate_series(1, 48) k)'
      || ' from generate_series($1::bigint, $2) i' using begins, least(begins + 49, row_count - 1);
    commit;
  end loop;
end $$;";

/// Each round changes the table's definition, and a row or two under each of them.
const DDL: &str = "
create table shifting (id bigint primary key, note text);
create procedure shift(begins bigint, rounds bigint) language plpgsql as $$
begin
  for i in begins .. begins + rounds - 1 loop
    execute format('alter table shifting add column c%s int default 7', i);
    execute format('insert into shifting (id, note, c%s) values (%s, ''row'', %s)', i, i, i);
    commit;
    execute format('alter table shifting drop column c%s', i);
    execute format('update shifting set note = ''changed'' where id = %s', i);
    commit;
    if i % 500 = 499 then
      drop table shifting;
      create table shifting (id bigint primary key, note text);
    end if;
  end loop;
end $$;";

/// One load.
struct Stored {
    load: &'static str,
    segments: usize,
    wal_bytes: u64,
    sealed_bytes: u64,
    raw_bytes: u64,
    seal_cpu: f64,
}

impl Stored {
    fn ratio(&self) -> f64 {
        count(self.sealed_bytes) / count(self.wal_bytes)
    }
}

pub(super) async fn run(scale: Scale) -> Outcome {
    let all = [
        pgbench(scale, "pgbench", true).await,
        pgbench(scale, "pgbench, full_page_writes = off", false).await,
        wide(scale).await,
        ddl(scale).await,
    ];
    outcome(&all)
}

async fn start(scale: Scale) -> Stage {
    let mut stage = Stage::without_programs(1).await;
    let segment_bytes = scale.count(SEGMENT_BYTES, SEGMENT_BYTES_MIN);
    stage.decant.set("log.segment_bytes", segment_bytes);
    stage
}

async fn pgbench(scale: Scale, load: &'static str, full_pages: bool) -> Stored {
    let mut stage = start(scale).await;
    let accounts = if scale.factor() < 0.1 { 1 } else { 10 };
    create_pgbench_tables(&stage.source);
    fill_pgbench_tables(&stage.source, accounts);
    if !full_pages {
        stage
            .source
            .sql("alter system set full_page_writes = off")
            .await;
        stage.source.sql("select pg_reload_conf()").await;
    }
    stage.source.sql("checkpoint").await;
    let transactions = scale.count(TRANSACTIONS, 5_000.0);
    measure(&mut stage, load, async |stage| {
        let transactions = u32::try_from(transactions).unwrap_or(u32::MAX);
        let running = Pgbench::start(&stage.source, CLIENTS, transactions);
        running.finish(DEADLINE).await;
    })
    .await
}

async fn wide(scale: Scale) -> Stored {
    let mut stage = start(scale).await;
    stage.source.sql(WIDE).await;
    stage.source.sql("checkpoint").await;
    let rows = scale.count(WIDE_ROWS, 1_500.0);
    measure(&mut stage, "wide rows", async |stage| {
        stage.source.sql(&format!("call wide_fill({rows})")).await;
    })
    .await
}

async fn ddl(scale: Scale) -> Stored {
    let mut stage = start(scale).await;
    stage.source.sql(DDL).await;
    stage.source.sql("checkpoint").await;
    let rounds = scale.count(DDL_ROUNDS, 2_000.0);
    measure(&mut stage, "DDL", async |stage| {
        stage.source.sql(&format!("call shift(0, {rounds})")).await;
    })
    .await
}

async fn measure(stage: &mut Stage, load: &'static str, work: impl AsyncFnOnce(&Stage)) -> Stored {
    say(load);
    stage.decant.initialise_and_start().await;
    let begin = stage.end_of_wal().await;
    let decoder = stage.decant.decoder().id();
    let before = cpu::of_threads(decoder, "sealer");
    work(stage).await;
    let end = stage.end_of_wal().await;
    wait_until_durable(&stage.decant, end).await;
    stage.wait_until_sealed().await;
    let seal_cpu = cpu::of_threads(decoder, "sealer") - before;
    let segments = sealed_segments(stage).await;
    // A segment that begins earlier also has what was before.
    let of_load = segments.iter().filter(|segment| segment.end_lsn > begin.0);
    let mut stored = Stored {
        load,
        segments: 0,
        wal_bytes: 0,
        sealed_bytes: 0,
        raw_bytes: 0,
        seal_cpu,
    };
    for segment in of_load {
        stored.segments += 1;
        stored.wal_bytes += segment.end_lsn - segment.first_lsn.max(begin.0);
        stored.sealed_bytes += segment.bytes;
        stored.raw_bytes += segment.raw_bytes();
    }
    stored
}

async fn sealed_segments(stage: &Stage) -> Vec<Segment> {
    let mut control = stage.decant.control().await;
    let answer = control.list_segments(ListSegmentsRequest {}).await;
    let mut segments = answer
        .unwrap_or_else(|status| panic!("no list of segments: {status}"))
        .into_inner()
        .segments;
    segments.retain(|segment| segment.sealed);
    segments
}

fn outcome(all: &[Stored]) -> Outcome {
    let mut table = Table::new(
        "Sealed segments",
        &[
            "load",
            "segments",
            "WAL, MB",
            "raw, MB",
            "sealed, MB",
            "sealed / WAL",
            "seal CPU, ms per raw MB",
        ],
    );
    for stored in all {
        let megabytes = |bytes: u64| count(bytes) / 1e6;
        table.row([
            stored.load.into(),
            stored.segments.into(),
            megabytes(stored.wal_bytes).into(),
            megabytes(stored.raw_bytes).into(),
            megabytes(stored.sealed_bytes).into(),
            stored.ratio().into(),
            (stored.seal_cpu * 1e3 / megabytes(stored.raw_bytes)).into(),
        ]);
    }
    Outcome {
        about: ABOUT.to_owned(),
        tables: vec![table],
        targets: vec![Target::at_most("sealed log / WAL, pgbench", all[0].ratio(), 0.15, "")],
        notes: vec![
            "The loads begin right after a checkpoint, and no other one comes: each page is in the WAL as a whole once.".to_owned(),
        ],
        ..Outcome::default()
    }
}
