//! Thousands of random filters and rows: the engine against the server that the filters were made on.

use row_filter::{
    ColumnView, Compiled, DefaultCollation, Environment, FilterColumn, FilterSource, Program,
    Scratch, TupleView, compile, native_functions,
};
use tests::scale::pick;
use tests::sql::Row;
use tests::{Cluster, Session};

use super::catalog::producers;
use super::expression::{COLUMNS_PER_TYPE, Generator};
use super::families::{FAMILIES, Family};
use super::random::Random;

/// What the server says of each row, be it an error.
const EVALUATE: &str = r"
CREATE FUNCTION evaluate(expression text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  results bool[]; result bool; row int;
BEGIN
  BEGIN
    EXECUTE format('SELECT array_agg((%s) ORDER BY id) FROM t', expression) INTO results;
    RETURN QUERY SELECT coalesce(one::text, 'null') FROM unnest(results) WITH ORDINALITY u(one, n) ORDER BY n;
    RETURN;
  EXCEPTION WHEN OTHERS THEN NULL;
  END;
  FOR row IN SELECT id FROM t ORDER BY id LOOP
    BEGIN
      EXECUTE format('SELECT (%s) FROM t WHERE id = $1', expression) INTO result USING row;
      RETURN NEXT coalesce(result::text, 'null');
    EXCEPTION WHEN OTHERS THEN
      RETURN NEXT SQLSTATE || ' ' || SQLERRM;
    END;
  END LOOP;
END $$";

/// As the decoder sets them.
const SETTINGS: &str = "SET datestyle = ISO; SET intervalstyle = postgres; SET extra_float_digits = 3; \
    SET timezone = 'UTC'; SET bytea_output = hex; SET jit = off; SET client_min_messages = error";

struct RowView<'a>(&'a Row);

impl TupleView for RowView<'_> {
    fn column(&self, index: usize) -> ColumnView<'_> {
        match &self.0[index] {
            Some(text) => ColumnView::Text(text.as_bytes()),
            None => ColumnView::Null,
        }
    }
}

/// What was compared.
#[derive(Debug, Default)]
struct Tally {
    native: usize,
    /// Filters with a guard, and rows that these leave to an index.
    guarded: usize,
    left_out: usize,
    postgres: usize,
    fails: usize,
    refused: usize,
    rows: usize,
    errors: usize,
}

/// A table of a family's types, filled with their edge values.
struct Bench {
    session: Session,
    rows: Vec<Row>,
    columns: Vec<(String, u32)>,
    environment: Environment,
}

impl Bench {
    async fn new(cluster: &Cluster, family: &Family, random: &mut Random, rows: usize) -> Self {
        let mut session = cluster.session().await;
        session.run(SETTINGS).await;
        session.run("DROP TABLE IF EXISTS t").await;
        let types = family.types.iter();
        let types: Vec<_> = types.flat_map(|one| [one; COLUMNS_PER_TYPE]).collect();
        let declared = types.iter().enumerate();
        let declared: Vec<String> = declared
            .map(|(index, one)| format!("c{index} {}", one.column))
            .collect();
        let create = format!("CREATE TABLE t ({}, id int)", declared.join(", "));
        session.run(&create).await;
        for id in 0..rows {
            let values = types.iter().map(|one| {
                if random.percent(8) {
                    return "null".to_owned();
                }
                let value = random.pick(one.values).replace("''", "'");
                format!("'{}'", value.replace('\'', "''"))
            });
            let values: Vec<String> = values.collect();
            let insert = format!("INSERT INTO t VALUES ({}, {id})", values.join(", "));
            session.run(&insert).await;
        }
        let columns = session
            .run("SELECT attname, atttypid FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum")
            .await;
        let columns = columns
            .into_iter()
            .map(|row| {
                (
                    row[0].clone().unwrap(),
                    row[1].clone().unwrap().parse().unwrap(),
                )
            })
            .collect();
        let rows = session.run("SELECT * FROM t ORDER BY id").await;
        let environment = environment(&mut session).await;
        Self {
            session,
            rows,
            columns,
            environment,
        }
    }

    /// The tree of a filter, none if the server does not take the filter.
    async fn tree(&mut self, filter: &str) -> Option<String> {
        let create = format!("BEGIN; CREATE PUBLICATION p FOR TABLE t WHERE ({filter})");
        let tree = match self.session.try_run(&create).await {
            Ok(_) => {
                let sql = "SELECT prqual::text FROM pg_publication_rel";
                Some(self.session.value(sql).await)
            }
            Err(error) => {
                let expected = [
                    "42883", "0A000", "42725", "22P02", "42P22", "42804", "42P21", "22008", "22003",
                ];
                assert!(expected.contains(&error.code.as_str()), "{error}: {filter}");
                None
            }
        };
        self.session.run("ROLLBACK").await;
        tree
    }

    async fn expected(&mut self, filter: &str) -> Vec<String> {
        let quoted = filter.replace('\'', "''");
        // A backslash in a literal is a plain character.
        let sql = format!("SELECT * FROM evaluate('{quoted}')");
        let rows = self.session.run(&sql).await;
        rows.into_iter()
            .map(|mut row| row.remove(0).unwrap())
            .collect()
    }

    fn compiled(&self, tree: &str) -> Compiled {
        let columns: Vec<FilterColumn<'_>> = (1..)
            .zip(&self.columns)
            .map(|(attribute, (name, type_oid))| FilterColumn {
                attribute,
                name,
                type_oid: *type_oid,
                collation: 0,
            })
            .collect();
        compile(&FilterSource {
            tree,
            columns: &columns,
            environment: self.environment,
        })
    }
}

async fn environment(session: &mut Session) -> Environment {
    let sql = "SELECT coalesce(to_jsonb(d) ->> 'datlocprovider', 'c'), datcollate, datctype,
        coalesce(to_jsonb(d) ->> 'datlocale', ''), pg_encoding_to_char(encoding)
        FROM pg_database d WHERE datname = current_database()";
    let row = session.run(sql).await.remove(0);
    let text = |index: usize| row[index].clone().unwrap_or_default();
    let provider = text(0).chars().next().unwrap();
    Environment {
        utf8: text(4) == "UTF8",
        default_collation: DefaultCollation::of(provider, &text(1), &text(2), &text(3)),
    }
}

fn results(program: &Program, rows: &[Row]) -> Vec<String> {
    let mut scratch = Scratch::new();
    let mut result = |row| match program.eval(&RowView(row), &mut scratch) {
        Ok(None) => "null".to_owned(),
        Ok(Some(value)) => value.to_string(),
        Err(error) => format!("{} {}", error.sqlstate, error.message),
    };
    rows.iter().map(&mut result).collect()
}

async fn compare(
    cluster: &Cluster,
    family: &Family,
    seed: u64,
    filters: usize,
    tally: &mut Tally,
) -> Vec<String> {
    let mut random = Random::new(seed);
    let mut bench = Bench::new(cluster, family, &mut random, pick(40, 150)).await;
    let producers = producers(&mut bench.session, family).await;
    let mut generator = Generator {
        family,
        producers: &producers,
        random,
    };
    let mut differences = Vec::new();
    for _ in 0..filters {
        let filter = generator.filter();
        let Some(tree) = bench.tree(&filter).await else {
            tally.refused += 1;
            continue;
        };
        let mut left_out = vec![false; bench.rows.len()];
        let ours = match bench.compiled(&tree) {
            Compiled::Native(program) => {
                tally.native += 1;
                if let Some(guard) = program.guard() {
                    tally.guarded += 1;
                    let mut scratch = Scratch::new();
                    for (row, left_out) in bench.rows.iter().zip(&mut left_out) {
                        *left_out = !guard.admits(&RowView(row), &mut scratch);
                    }
                }
                results(&program, &bench.rows)
            }
            Compiled::Fails(error) => {
                tally.fails += 1;
                let error = format!("{} {}", error.sqlstate, error.message);
                vec![error; bench.rows.len()]
            }
            Compiled::Postgres { .. } => {
                tally.postgres += 1;
                continue;
            }
        };
        let theirs = bench.expected(&filter).await;
        tally.rows += theirs.len();
        tally.errors += theirs.iter().filter(|one| one.len() > 5).count();
        assert_eq!(ours.len(), theirs.len());
        let quiet = |row: usize| matches!(theirs[row].as_str(), "false" | "null");
        let differs = |row: &usize| ours[*row] != theirs[*row] || (left_out[*row] && !quiet(*row));
        tally.left_out += left_out.iter().filter(|one| **one).count();
        if let Some(row) = (0..ours.len()).find(differs) {
            differences.push(format!(
                "{} seed {seed}: {filter}\n  row {:?}\n  PostgreSQL {}: {}\n  here: {}, left out by an index: {}",
                family.name,
                bench.rows[row],
                cluster.major(),
                theirs[row],
                ours[row],
                left_out[row]
            ));
        }
    }
    differences
}

async fn differences(major: u32, seed: u64, filters: usize) {
    let cluster = Cluster::start_with(major, &[("wal_level", "logical")]).await;
    cluster.sql(EVALUATE).await;
    let mut all = Vec::new();
    for family in FAMILIES {
        let mut tally = Tally::default();
        all.extend(compare(&cluster, family, seed, filters, &mut tally).await);
        let asked = tally.native + tally.postgres + tally.fails;
        println!(
            "PostgreSQL {major}, {}: {asked} filters ({} refused by the server), {} % native, {} rows, {} errors; \
             {} for an index, {} rows left out by it",
            family.name,
            tally.refused,
            (tally.native + tally.fails) * 100 / asked.max(1),
            tally.rows,
            tally.errors,
            tally.guarded,
            tally.left_out
        );
        assert!(tally.native > 0);
    }
    let shown = all.iter().take(60).cloned().collect::<Vec<_>>().join("\n");
    assert!(
        all.is_empty(),
        "{} differences, seed {seed}:\n{shown}",
        all.len()
    );
}

fn seed() -> u64 {
    let seed = std::env::var("DECANT_SEED").ok();
    seed.map_or(1, |seed| seed.parse().expect("DECANT_SEED is a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn random_filters_say_what_postgresql_15_says() {
    differences(15, seed(), pick(60, 3000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_filters_say_what_postgresql_18_says() {
    differences(18, seed(), pick(60, 3000)).await;
}

/// The tables of functions name what a server has under these OIDs, and only what a filter may call.
async fn assert_functions_exist(major: u32) {
    let cluster = Cluster::start_new(major).await;
    let mut session = cluster.session().await;
    let mut seen = std::collections::HashSet::new();
    for (oid, source) in native_functions() {
        assert!(seen.insert(oid), "function {oid} is there twice");
        let sql = format!(
            "SELECT prosrc, proisstrict, provolatile, prolang FROM pg_proc WHERE oid = {oid}"
        );
        let rows = session.run(&sql).await;
        // Some are younger than the oldest server.
        if let [row] = rows.as_slice() {
            let row: Vec<_> = row.iter().flatten().map(String::as_str).collect();
            assert_eq!(
                row,
                [source, "t", "i", "12"],
                "function {oid} of PostgreSQL {major}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_are_those_of_the_server() {
    assert_functions_exist(15).await;
    assert_functions_exist(18).await;
}
