//! One subscriber of the publisher and one behind a fanout, under a workload out of a seed: after each round both have the
//! same rows.
//!
//! `DECANT_SEED=n` runs that seed; `DECANT_ROUNDS=n` so many rounds, for as long as one likes. A failure prints the seed.

use std::collections::BTreeSet;
use std::time::Duration;

use tests::random_sql::{Step, TABLES, WRITERS, Workload, schema, subscriber_schema};
use tests::scale::{patience, pick};
use tests::workload::contents;
use tests::{Cluster, Endpoint, Session, wait_until};

use super::stage::Stage;

const STATEMENTS: usize = 120;

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_of_version_15_end_up_the_same() {
    run(15, "", Workload::new).await;
}

/// Version 18's own apply worker crashes at the publisher's stream if that rolls back subtransactions that change
/// definitions.
#[tokio::test(flavor = "multi_thread")]
async fn subscribers_of_version_18_end_up_the_same() {
    run(
        18,
        ", streaming = parallel, two_phase = true, binary = true",
        |seed| Workload::new(seed).with_fewer_definitions(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_that_stream_and_prepare_end_up_the_same() {
    run(15, ", streaming = on, two_phase = true", Workload::new).await;
}

fn number(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.and_then(|text| text.parse().ok()).unwrap_or(default)
}

async fn run(major: u32, options: &str, workload: impl Fn(u64) -> Workload) {
    // A different seed each day would find more, and a failure that is not there the next day would be lost.
    let seed = number("DECANT_SEED", 20_261_121);
    let rounds = number("DECANT_ROUNDS", pick(3, 40));
    eprintln!("DECANT_SEED={seed} DECANT_ROUNDS={rounds}");
    let mut race = Race::start(major, options).await;
    let mut workload = workload(seed);
    for round in 1..=rounds {
        let steps = workload.round(STATEMENTS);
        race.play(steps).await;
        race.compare(&format!("DECANT_SEED={seed}, round {round}"))
            .await;
    }
    race.play(workload.finish()).await;
    race.compare(&format!("DECANT_SEED={seed}, at the end"))
        .await;
}

/// The source, its writers, and a server with both subscribers, each in a database of its own.
struct Race {
    stage: Stage,
    writers: Vec<Session>,
    subscriber: Cluster,
}

const SIDES: [&str; 2] = ["native", "fanout"];

impl Race {
    async fn start(major: u32, options: &str) -> Self {
        let settings = [("logical_decoding_work_mem", "64kB")];
        let mut stage = Stage::with_settings(major, &settings, 1, &schema()).await;
        let mut session = stage.source.session().await;
        session
            .run("select pg_replication_origin_create('r_elsewhere')")
            .await;
        let subscriber = Cluster::start_new(major).await;
        let publishers = [stage.source.endpoint(), stage.decant.fanout(0).endpoint()];
        for (side, publisher) in SIDES.iter().zip(&publishers) {
            subscriber.sql(&format!("create database {side}")).await;
            let mut session = Session::connect(&database(&subscriber, side))
                .await
                .unwrap();
            session.run(&subscriber_schema()).await;
            session
                .run(&format!(
                    "create subscription r_{side} connection '{}' publication r_pub, r_sel \
                     with (copy_data = false{options})",
                    publisher.conninfo()
                ))
                .await;
        }
        let mut writers = Vec::new();
        for _ in 0..WRITERS {
            let mut session = stage.source.session().await;
            session.run("set lock_timeout = '100ms'").await;
            writers.push(session);
        }
        Self {
            stage,
            writers,
            subscriber,
        }
    }

    async fn play(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Writer(writer, sql) => self.write(writer, &sql).await,
                Step::Everywhere {
                    writer,
                    subscribers,
                    source,
                } => {
                    // What is on its way may be about the table.
                    self.caught_up("before a change of the schema").await;
                    for side in SIDES {
                        let endpoint = database(&self.subscriber, side);
                        let mut session = Session::connect(&endpoint).await.unwrap();
                        session.run(&subscribers).await;
                    }
                    self.write(writer, &source).await;
                }
            }
        }
    }

    /// An error ends the writer's transaction, and nothing else: which statements fail is part of the workload.
    async fn write(&mut self, writer: usize, sql: &str) {
        let session = &mut self.writers[writer];
        if session.try_run(sql).await.is_err() {
            let _ = session.try_run("rollback").await;
            let _ = session
                .try_run("select pg_replication_origin_session_reset()")
                .await;
        }
    }

    /// Waits until both subscribers have all that was committed.
    async fn caught_up(&self, what: &str) {
        let end = self.stage.source.flush_lsn().await;
        for side in SIDES {
            let endpoint = database(&self.subscriber, side);
            let sql = format!(
                "select coalesce(max(latest_end_lsn), '0/0') >= '{end}', max(latest_end_lsn) from pg_stat_subscription \
                 where subname = 'r_{side}'"
            );
            let what = format!("{what}: {side} reaches {end}");
            wait_until(&what, patience(), async || {
                let mut session = Session::connect(&endpoint)
                    .await
                    .map_err(|error| error.to_string())?;
                let rows = session.run(&sql).await;
                match rows[0][0].as_deref() {
                    Some("t") => Ok(()),
                    _ => Err(format!("{:?}", rows[0][1])),
                }
            })
            .await;
        }
    }

    async fn compare(&self, what: &str) {
        self.caught_up(what).await;
        let mut seen = Vec::new();
        for side in SIDES {
            let endpoint = database(&self.subscriber, side);
            let mut session = Session::connect(&endpoint).await.unwrap();
            seen.push(contents(&mut session, TABLES).await);
        }
        for (native, served) in seen[0].iter().zip(&seen[1]) {
            if native != served {
                self.print_difference(&native.table).await;
            }
        }
        if seen[0] != seen[1] {
            // Applied in another process: give it the time that a commit takes to be seen.
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.print_logs();
        }
        assert_eq!(seen[0], seen[1], "{what}: native and behind a fanout");
        let rows: u64 = seen[0].iter().map(|one| one.rows).sum();
        assert!(rows > 0, "{what}: there is nothing to compare");
    }

    /// The rows that one side has and the other has not.
    async fn print_difference(&self, table: &str) {
        let mut rows: Vec<BTreeSet<String>> = Vec::new();
        for side in SIDES {
            let endpoint = database(&self.subscriber, side);
            let mut session = Session::connect(&endpoint).await.unwrap();
            let texts = session.run(&format!("select t::text from {table} t")).await;
            rows.push(texts.into_iter().flatten().flatten().collect());
        }
        for (side, other) in [(0, 1), (1, 0)] {
            for row in rows[side].difference(&rows[other]).take(20) {
                eprintln!("{table}: only {}: {row}", SIDES[side]);
            }
        }
    }

    fn print_logs(&self) {
        let log = self.subscriber.log_text();
        let tail: Vec<&str> = log.lines().rev().take(40).collect();
        eprintln!("{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
}

fn database(cluster: &Cluster, name: &str) -> Endpoint {
    Endpoint {
        database: name.to_owned(),
        ..cluster.endpoint()
    }
}
