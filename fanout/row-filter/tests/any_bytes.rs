//! Whatever a tree or a column holds, the answer is one, not a panic.

use proptest::prelude::*;
use row_filter::{
    ColumnView, Compiled, DefaultCollation, Environment, FilterColumn, FilterSource, Scratch,
    TupleView, compile,
};

const RECORDED: &str = include_str!("trees/18.txt");
const COLUMNS: &str = include_str!("trees/columns.txt");

fn trees() -> Vec<&'static str> {
    RECORDED
        .lines()
        .filter(|line| line.starts_with('{'))
        .collect()
}

fn columns() -> Vec<FilterColumn<'static>> {
    let split = COLUMNS.lines().filter_map(|line| {
        let (name, type_oid) = line.split_once(' ')?;
        Some((name, type_oid.parse().ok()?))
    });
    (1..)
        .zip(split)
        .map(|(attribute, (name, type_oid))| FilterColumn {
            attribute,
            name,
            type_oid,
            collation: 0,
        })
        .collect()
}

struct Row(Vec<Option<Vec<u8>>>);

impl TupleView for Row {
    fn column(&self, index: usize) -> ColumnView<'_> {
        match self.0.get(index) {
            Some(Some(bytes)) => ColumnView::Text(bytes),
            Some(None) => ColumnView::Null,
            None => ColumnView::Unchanged,
        }
    }
}

fn ask(tree: &str, row: &Row) {
    let columns = columns();
    let source = FilterSource {
        tree,
        columns: &columns,
        environment: Environment {
            utf8: true,
            default_collation: DefaultCollation::C,
            major: Some(18),
        },
    };
    if let Compiled::Native(program) = compile(&source) {
        let mut scratch = Scratch::new();
        let first = program.eval(row, &mut scratch);
        assert_eq!(program.eval(row, &mut scratch), first);
    }
}

/// Bytes, and what looks like values.
fn value() -> impl Strategy<Value = Option<Vec<u8>>> {
    let plain = prop::collection::vec(any::<u8>(), 0..24);
    let like = "[-0-9{}\\[\\]:.,\" a-fxNBCT+/infty]{0,24}".prop_map(String::into_bytes);
    prop::option::of(prop_oneof![plain, like])
}

proptest! {
    #[test]
    fn any_row(
        tree in prop::sample::select(trees()),
        row in prop::collection::vec(value(), 0..20),
    ) {
        ask(tree, &Row(row));
    }

    /// A recorded tree with a few places changed.
    #[test]
    fn damaged_trees(
        tree in prop::sample::select(trees()),
        damage in prop::collection::vec((any::<prop::sample::Index>(), "[-0-9{}()\\[\\]<>: a-z]{0,3}"), 1..4),
        row in prop::collection::vec(value(), 18),
    ) {
        let mut tree = tree.to_owned();
        for (place, text) in damage {
            let place = place.index(tree.len());
            let end = (place + text.len()).min(tree.len());
            tree.replace_range(place..end, &text);
        }
        ask(&tree, &Row(row));
    }

    #[test]
    fn any_tree(tree in "[-0-9{}()\\[\\]<>: \\\\a-zA-Z]{0,120}") {
        ask(&tree, &Row(Vec::new()));
    }
}

#[test]
fn deep_and_long_trees_are_refused() {
    for tree in [
        "{BOOLEXPR :boolop not :args (".repeat(100_000),
        "(".repeat(100_000),
        "{A :b ".repeat(100_000),
        "x".repeat(2_000_000),
    ] {
        let source = FilterSource {
            tree: &tree,
            columns: &[],
            environment: Environment::default(),
        };
        assert!(matches!(compile(&source), Compiled::Postgres { .. }));
    }
}
