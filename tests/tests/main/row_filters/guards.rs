//! Filters of which PostgreSQL evaluates a part: which rows it need not be asked about.

use row_filter::{Compiled, Scratch};
use tests::Cluster;

use super::bench::{Bench, EVALUATE, RowView, session};

/// Filters, and how many of the rows are left out; none if there is no guard.
const FILTERS: [(&str, Option<usize>); 9] = [
    ("n = 5 AND v ~ '[0-9]'", Some(2)),
    ("n IN (5, 6) AND v ~ '[0-9]'", Some(1)),
    ("(n = 5 AND v ~ '[a]') OR (n = 6 AND v ~ '[b]')", Some(1)),
    // It fails for rows that come as far as the pattern.
    ("n = 5 AND v ~ '['", Some(2)),
    ("(n = 5 AND v ~ '[a]') OR v ~ '[b]'", None),
    // What stands before the equality may fail.
    ("v ~ '[' AND n = 5", None),
    // It fails before there is a row.
    ("n = 5 AND 'a' ~ '['", None),
    ("n = 5 AND v ~ '[a]' AND 'a' ~ '['", None),
    ("n = 5 AND coalesce('a', v) ~ '['", None),
];

#[tokio::test(flavor = "multi_thread")]
async fn only_rows_that_have_a_constant_are_postgresqls_to_judge() {
    let cluster = Cluster::start_with(18, &[("wal_level", "logical")]).await;
    cluster.sql(EVALUATE).await;
    let mut session = session(&cluster).await;
    let sql = "CREATE TABLE t (n int, v text, id int);
        INSERT INTO t VALUES (5, 'a1', 1), (6, 'b2', 2), (7, 'a', 3), (NULL, '1', 4)";
    session.run(sql).await;
    let mut bench = Bench::of_table(session).await;
    for (filter, expected) in FILTERS {
        let tree = bench.tree(filter).await;
        let tree = tree.unwrap_or_else(|| panic!("the server refuses {filter}"));
        let Compiled::Postgres { guard, .. } = bench.compiled(&tree) else {
            panic!("{filter} is not PostgreSQL's");
        };
        let mut scratch = Scratch::new();
        let left_out: Option<Vec<bool>> = guard.map(|guard| {
            let rows = bench.rows.iter();
            rows.map(|row| !guard.admits(&RowView(row), &mut scratch))
                .collect()
        });
        let said = bench.expected(filter).await;
        let count = left_out
            .as_ref()
            .map(|rows| rows.iter().filter(|one| **one).count());
        assert_eq!(count, expected, "{filter}");
        for (left_out, said) in left_out.into_iter().flatten().zip(&said) {
            let quiet = matches!(said.as_str(), "false" | "null");
            assert!(!left_out || quiet, "{filter}: {said}");
        }
    }
}
