//! Filters that real servers of all supported versions have recorded, with what these servers said of four rows.

#![expect(clippy::unwrap_used, reason = "a failing test panics")]

use row_filter::{
    ColumnView, Compiled, Environment, FilterColumn, FilterSource, Scratch, TupleView, compile,
};

const COLUMNS: &str = include_str!("trees/columns.txt");
const ROWS: &str = include_str!("trees/rows.txt");

struct Row<'a>(Vec<&'a str>);

impl TupleView for Row<'_> {
    fn column(&self, index: usize) -> ColumnView<'_> {
        match self.0[index] {
            "\\N" => ColumnView::Null,
            text => ColumnView::Text(text.as_bytes()),
        }
    }
}

fn lines(file: &str) -> impl Iterator<Item = &str> {
    file.lines().filter(|line| !line.starts_with('#'))
}

fn columns() -> Vec<FilterColumn<'static>> {
    let split = lines(COLUMNS).map(|line| line.split_once(' ').unwrap());
    (1..)
        .zip(split)
        .map(|(attribute, (name, type_oid))| FilterColumn {
            attribute,
            name,
            type_oid: type_oid.parse().unwrap(),
            collation: 0,
        })
        .collect()
}

fn assert_recorded(version: &str, file: &'static str) {
    let columns = columns();
    // COPY doubles a backslash.
    let copied = ROWS.replace("\\\\x", "\\x");
    let rows: Vec<Row<'_>> = lines(&copied)
        .map(|line| Row(line.split('\t').collect()))
        .collect();
    let mut scratch = Scratch::new();
    let mut guarded = 0;
    let file: Vec<&str> = lines(file).collect();
    assert!(file.len() > 90, "{version}");
    for recorded in file.chunks(3) {
        let [filter, tree, results] = recorded else {
            panic!("{version}: {recorded:?}");
        };
        let source = FilterSource {
            tree,
            columns: &columns,
            environment: Environment::default(),
        };
        let program = match compile(&source) {
            Compiled::Native(program) => program,
            other => panic!("{version}: {filter}: {other:?}"),
        };
        let ours = rows
            .iter()
            .map(|row| match program.eval(row, &mut scratch) {
                Ok(Some(value)) => value.to_string(),
                Ok(None) => "null".to_owned(),
                Err(error) => error.sqlstate.into_owned(),
            });
        let ours: Vec<String> = ours.collect();
        assert_eq!(ours.join(" "), *results, "{version}: {filter}");
        if let Some(guard) = program.guard() {
            guarded += 1;
            for (row, result) in rows.iter().zip(&ours) {
                let left_out = !guard.admits(row, &mut scratch);
                let quiet = matches!(result.as_str(), "false" | "null");
                assert!(!left_out || quiet, "{version}: {filter}: {result}");
            }
        }
    }
    assert!(guarded > 5, "{version}: {guarded} guards");
}

#[test]
fn recorded_filters_say_what_their_servers_said() {
    assert_recorded("15", include_str!("trees/15.txt"));
    assert_recorded("16", include_str!("trees/16.txt"));
    assert_recorded("17", include_str!("trees/17.txt"));
    assert_recorded("18", include_str!("trees/18.txt"));
}
