//! Thousands of random filters and rows: the engine against the server that the filters were made on.

use std::collections::BTreeSet;

use row_filter::{Compiled, Guard, NativeFunction, Scratch, native_functions};
use tests::Cluster;
use tests::scale::pick;
use tests::sql::Row;

use super::bench::{Bench, EVALUATE, RowView, results};
use super::catalog::producers;
use super::expression::Generator;
use super::families::{FAMILIES, Family};
use super::random::Random;

/// What was compared.
#[derive(Debug, Default)]
struct Tally {
    native: usize,
    /// Filters with a guard, and rows that these leave to an index.
    guarded: usize,
    left_out: usize,
    postgres: usize,
    guarded_for_postgres: usize,
    fails: usize,
    refused: usize,
    rows: usize,
    errors: usize,
}

/// Finds the rows that an index answers for.
fn guarded(guard: &Guard, rows: &[Row], left_out: &mut [bool]) {
    let mut scratch = Scratch::new();
    for (row, left_out) in rows.iter().zip(left_out) {
        *left_out = !guard.admits(&RowView(row), &mut scratch);
    }
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
        used: BTreeSet::new(),
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
                    guarded(guard, &bench.rows, &mut left_out);
                }
                results(&program, &bench.rows)
            }
            Compiled::Fails(error) => {
                tally.fails += 1;
                let error = format!("{} {}", error.sqlstate, error.message);
                vec![error; bench.rows.len()]
            }
            Compiled::Postgres { guard, .. } => {
                tally.postgres += 1;
                let Some(guard) = guard else {
                    continue;
                };
                tally.guarded_for_postgres += 1;
                guarded(&guard, &bench.rows, &mut left_out);
                bench.expected(&filter).await
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
             {} for an index and {} more of PostgreSQL's, {} rows left out by it",
            family.name,
            tally.refused,
            (tally.native + tally.fails) * 100 / asked.max(1),
            tally.rows,
            tally.errors,
            tally.guarded,
            tally.guarded_for_postgres,
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

/// Random filters leave none of the functions out that are computed here.
async fn assert_all_are_generated(major: u32) {
    let cluster = Cluster::start_new(major).await;
    let mut session = cluster.session().await;
    let mut used = BTreeSet::new();
    for family in FAMILIES {
        let producers = producers(&mut session, family).await;
        let mut generator = Generator {
            family,
            producers: &producers,
            random: Random::new(1),
            used: BTreeSet::new(),
        };
        for _ in 0..20_000 {
            generator.filter();
        }
        used.extend(generator.used);
    }
    let there = session.run("SELECT oid FROM pg_proc").await;
    let there: BTreeSet<u32> = there
        .into_iter()
        .map(|row| row[0].as_deref().unwrap().parse().unwrap())
        .collect();
    let missing: Vec<_> = native_functions()
        .filter(|function| there.contains(&function.oid) && !used.contains(&function.oid))
        .collect();
    assert!(missing.is_empty(), "never generated: {missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_function_is_generated() {
    assert_all_are_generated(15).await;
    assert_all_are_generated(18).await;
}

/// The tables of functions name what a server has under these OIDs, and only what a filter may call.
async fn assert_functions_exist(major: u32) {
    let cluster = Cluster::start_new(major).await;
    let mut session = cluster.session().await;
    let mut seen = std::collections::HashSet::new();
    for NativeFunction { oid, source, .. } in native_functions() {
        assert!(seen.insert(oid), "function {oid} is there twice");
        let sql = format!(
            "SELECT coalesce(pg_get_function_sqlbody(oid), prosrc), proisstrict, provolatile,
                    CASE prolang WHEN 12 THEN prosrc ELSE 'sql' END
               FROM pg_proc WHERE oid = {oid}"
        );
        let rows = session.run(&sql).await;
        // Some are younger than the oldest server.
        if let [row] = rows.as_slice() {
            let row: Vec<_> = row.iter().flatten().map(String::as_str).collect();
            let body = if source == "sql" { body(oid) } else { source };
            let expected = [body, "t", "i", source];
            assert_eq!(row, expected, "function {oid} of PostgreSQL {major}");
        }
    }
}

/// What a function in SQL does.
fn body(oid: u32) -> &'static str {
    match oid {
        879 => "RETURN lpad($1, $2, ' '::text)",
        880 => "RETURN rpad($1, $2, ' '::text)",
        1384 => "RETURN date_part($1, ($2)::timestamp without time zone)",
        1708 => "RETURN round($1, 0)",
        1710 => "RETURN trunc($1, 0)",
        1810 | 1811 => "RETURN (octet_length($1) * 8)",
        other => panic!("function {other} is not in SQL"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_are_those_of_the_server() {
    assert_functions_exist(15).await;
    assert_functions_exist(18).await;
}
