//! Row filters: expression trees as the source's catalog has them, and the values that programs run on.

use row_filter::{
    ColumnView, Compiled, DefaultCollation, Environment, FilterColumn, FilterSource, Scratch,
    TupleView, compile,
};

/// Trees, columns and rows of a real server.
const TREES: &str = include_str!("../../../../fanout/row-filter/tests/trees/18.txt");
const COLUMNS: &str = include_str!("../../../../fanout/row-filter/tests/trees/columns.txt");
const ROWS: &str = include_str!("../../../../fanout/row-filter/tests/trees/rows.txt");

fn trees() -> impl Iterator<Item = &'static str> {
    TREES.lines().filter(|line| line.starts_with('{'))
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

/// Every column has the same bytes.
struct Row<'a>(&'a [u8]);

impl TupleView for Row<'_> {
    fn column(&self, _index: usize) -> ColumnView<'_> {
        ColumnView::Text(self.0)
    }
}

/// Whether the tree is computed here, and the row has a verdict.
fn evaluate(tree: &str, row: &Row<'_>) -> bool {
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
    let Compiled::Native(program) = compile(&source) else {
        return false;
    };
    // An error is one of PostgreSQL's answers, too.
    program.eval(row, &mut Scratch::new()).is_ok()
}

pub(super) fn run_tree(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|tree| evaluate(tree, &Row(b"42")))
}

pub(super) fn seeds_of_trees() -> Vec<Vec<u8>> {
    trees().map(|tree| tree.as_bytes().to_vec()).collect()
}

/// The first two bytes are the number of a tree, the rest is the value.
pub(super) fn run_values(bytes: &[u8]) -> bool {
    let Some((number, value)) = bytes.split_first_chunk() else {
        return false;
    };
    let trees: Vec<&str> = trees().collect();
    let place = usize::from(u16::from_le_bytes(*number)) % trees.len().max(1);
    trees
        .get(place)
        .is_some_and(|tree| evaluate(tree, &Row(value)))
}

pub(super) fn seeds_of_values() -> Vec<Vec<u8>> {
    let values = ROWS
        .split(['\t', '\n', '|'])
        .filter(|value| !value.is_empty());
    let numbers = (0..=u16::MAX).step_by(7);
    let numbered = numbers.zip(values.take(600));
    numbered
        .map(|(number, value)| [&number.to_le_bytes()[..], value.as_bytes()].concat())
        .collect()
}
