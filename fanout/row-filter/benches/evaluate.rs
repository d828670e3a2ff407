//! Row filters on rows, and their compilation. `cargo bench -p row-filter`.

#![allow(missing_docs, reason = "criterion's macros")]

use criterion::{Criterion, criterion_group, criterion_main};
use row_filter::{
    ColumnView, Compiled, DefaultCollation, Environment, FilterColumn, FilterSource, Scratch,
    TupleView, compile,
};

/// What PostgreSQL 18 keeps of some filters, and the columns that they are about.
const RECORDED: &str = include_str!("../tests/trees/18.txt");
const COLUMNS: &str = include_str!("../tests/trees/columns.txt");
const FILTERS: [&str; 3] = ["k = 7", "k <> 7 AND s LIKE 'a%'", "n"];

struct Row(Vec<Vec<u8>>);

impl TupleView for Row {
    fn column(&self, index: usize) -> ColumnView<'_> {
        self.0
            .get(index)
            .map_or(ColumnView::Null, |value| ColumnView::Text(value))
    }
}

/// Filter and tree: the filters named above, and the first one about the numeric column.
fn trees() -> Vec<(&'static str, &'static str)> {
    let lines: Vec<&str> = RECORDED.lines().collect();
    let recorded = lines
        .windows(2)
        .filter(|pair| pair[1].starts_with('{'))
        .map(|pair| (pair[0], pair[1]));
    let mut found = Vec::new();
    for wanted in FILTERS {
        let matches = |text: &str| match wanted {
            "n" => text.starts_with("n >") || text.starts_with("n <") || text.starts_with("n ="),
            _ => text == wanted,
        };
        found.extend(recorded.clone().find(|(text, _)| matches(text)));
    }
    assert!(!found.is_empty(), "the filters are among those recorded");
    found
}

fn evaluate(criterion: &mut Criterion) {
    let split = COLUMNS.lines().filter_map(|line| {
        let (name, type_oid) = line.split_once(' ')?;
        Some((name, type_oid.parse().ok()?))
    });
    let columns: Vec<FilterColumn<'_>> = (1..)
        .zip(split)
        .map(|(attribute, (name, type_oid))| FilterColumn {
            attribute,
            name,
            type_oid,
            collation: 0,
        })
        .collect();
    let row: [&[u8]; 6] = [b"8", b"3", b"7", b"abc", b"t", b"2.5"];
    let row = Row(row.map(<[u8]>::to_vec).to_vec());
    let mut group = criterion.benchmark_group("row_filter");
    for (text, tree) in trees() {
        let source = FilterSource {
            tree,
            columns: &columns,
            environment: Environment {
                utf8: true,
                default_collation: DefaultCollation::C,
                major: Some(18),
            },
        };
        group.bench_function(format!("compile/{text}"), |bencher| {
            bencher.iter(|| compile(std::hint::black_box(&source)));
        });
        let Compiled::Native(program) = compile(&source) else {
            panic!("{text} is not computed here");
        };
        let mut scratch = Scratch::new();
        group.bench_function(format!("evaluate/{text}"), |bencher| {
            bencher.iter(|| program.eval(std::hint::black_box(&row), &mut scratch));
        });
    }
    group.finish();
}

criterion_group!(benches, evaluate);
criterion_main!(benches);
