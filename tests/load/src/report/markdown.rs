//! The text.

use std::fmt::Write as _;

use crate::outcome::{Cell, Outcome, Relation, Table, Target};

const HEAD: &str = "# Results of the benchmark

`make bench` writes this file; `make bench BENCH=<part>` renews one part. Native walsenders and Decant run on the same data, one
after the other, in the same run on the same machine; the receivers are the same program for both. Figures differ between machines:
what matters are ratios, and CPU time per row. CPU time is that of whole processes, from `/proc`; `us/row` is microseconds of CPU time
per row, of all processors together.
";

/// All parts, in their order; `capacity` comes before them.
pub(super) fn render<'a>(
    parts: impl Iterator<Item = (&'a str, &'a Outcome)> + Clone,
    capacity: &str,
) -> String {
    let mut text = HEAD.to_owned();
    text += "\n## Targets\n\n| part | what | measured | target | met |\n|---|---|---:|---:|---|\n";
    for (name, outcome) in parts.clone() {
        for target in &outcome.targets {
            text += &target_row(name, target);
        }
    }
    text += capacity;
    for (name, outcome) in parts {
        text += &part(name, outcome);
    }
    text
}

fn target_row(part: &str, target: &Target) -> String {
    let relation = match target.relation {
        Relation::AtMost => "<=",
        Relation::AtLeast => ">=",
    };
    let unit = &target.unit;
    format!(
        "| {part} | {} | {} {unit} | {relation} {} {unit} | {} |\n",
        target.name,
        number(target.value),
        number(target.target),
        if target.met { "yes" } else { "**no**" }
    )
}

fn part(name: &str, outcome: &Outcome) -> String {
    let mut text = format!("\n## {name}\n\n{}\n\n*{}*\n", outcome.about, outcome.run);
    for found in &outcome.tables {
        text += &table(found);
    }
    for chart in &outcome.charts {
        write!(text, "\n![{}](charts/{}.svg)\n", chart.title, chart.name)
            .expect("text can be written");
    }
    if !outcome.notes.is_empty() {
        text.push('\n');
    }
    for note in &outcome.notes {
        writeln!(text, "- {note}").expect("text can be written");
    }
    text
}

fn table(table: &Table) -> String {
    let mut text = format!("\n{}:\n\n|", table.title);
    for column in &table.columns {
        write!(text, " {column} |").expect("text can be written");
    }
    text += "\n|";
    for index in 0..table.columns.len() {
        let numbers = table
            .rows
            .iter()
            .all(|row| matches!(row.get(index), Some(Cell::Number(_))));
        text += if numbers { "---:|" } else { "---|" };
    }
    text.push('\n');
    for row in &table.rows {
        text.push('|');
        for cell in row {
            let shown = match cell {
                Cell::Number(value) => number(*value),
                Cell::Text(value) => value.clone(),
            };
            write!(text, " {shown} |").expect("text can be written");
        }
        text.push('\n');
    }
    text
}

/// Three significant digits, large numbers in groups of three.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "-".to_owned();
    }
    if size < 0.000_5 {
        return "0".to_owned();
    }
    if size < 999.5 {
        let digits = [(0.999_5, 3), (9.995, 2), (99.95, 1)];
        let decimals = digits.iter().find(|(below, _)| size < *below);
        let text = format!("{value:.*}", decimals.map_or(0, |(_, decimals)| *decimals));
        // A whole number is one.
        return match text.split_once('.') {
            Some((whole, rest)) if rest.bytes().all(|digit| digit == b'0') => whole.to_owned(),
            _ => text,
        };
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.1234, "0.123"),
            (1.0, "1"),
            (2.25, "2.25"),
            (12.34, "12.3"),
            (640.4, "640"),
            (1_234.0, "1,234"),
            (12_345_678.0, "12,345,678"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_part_has_its_targets_tables_and_notes() {
        let mut figures = Table::new("Figures", &["n", "who"]);
        figures.row([Cell::from(4_usize), Cell::from("native")]);
        let outcome = Outcome {
            about: "About.".to_owned(),
            run: "Here.".to_owned(),
            tables: vec![figures],
            charts: Vec::new(),
            targets: vec![Target::at_most("cost", 2.0, 1.0, "us")],
            notes: vec!["Note.".to_owned()],
        };
        let text = render(std::iter::once(("fan_out", &outcome)), "");
        assert!(
            text.contains("| fan_out | cost | 2 us | <= 1 us | **no** |"),
            "{text}"
        );
        assert!(
            text.contains("| n | who |\n|---:|---|\n| 4 | native |\n"),
            "{text}"
        );
        assert!(text.contains("\n- Note.\n"), "{text}");
    }
}
