//! What a part of the benchmark found out.

use serde::{Deserialize, Serialize};

/// All that one part has to say. Kept in the results file, so that parts can be run one at a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What was measured, in a few sentences.
    pub about: String,
    /// Where it was measured and at what scale: parts may come from different runs.
    pub run: String,
    /// Figures.
    pub tables: Vec<Table>,
    /// Pictures.
    pub charts: Vec<Chart>,
    /// What is aimed at, and what was reached.
    pub targets: Vec<Target>,
    /// What a reader of the figures has to know.
    pub notes: Vec<String>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Above it.
    pub title: String,
    /// The first row.
    pub columns: Vec<String>,
    /// The others.
    pub rows: Vec<Vec<Cell>>,
}

/// A value in a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A measured value.
    Number(f64),
    /// A name.
    Text(String),
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        if value.is_finite() {
            Self::Number(value)
        } else {
            // JSON has no other numbers.
            Self::Text("-".to_owned())
        }
    }
}

impl From<usize> for Cell {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts that are shown to people"
    )]
    fn from(value: usize) -> Self {
        Self::Number(value as f64)
    }
}

impl From<u64> for Cell {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts that are shown to people"
    )]
    fn from(value: u64) -> Self {
        Self::Number(value as f64)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl Table {
    /// An empty one.
    pub fn new(title: &str, columns: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Appends a row, which has as many cells as there are columns.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let row: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(row.len(), self.columns.len(), "in the table {}", self.title);
        self.rows.push(row);
    }
}

/// Lines over one axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// The file's name, without its ending.
    pub name: String,
    /// Above it.
    pub title: String,
    /// What is on the horizontal axis; it is logarithmic.
    pub x: String,
    /// What is on the vertical axis; it is logarithmic.
    pub y: String,
    /// The lines.
    pub series: Vec<Series>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// Horizontal and vertical value.
    pub points: Vec<(f64, f64)>,
}

impl Chart {
    /// An empty one.
    pub fn new(name: &str, title: &str, x: &str, y: &str) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            x: x.to_owned(),
            y: y.to_owned(),
            series: Vec::new(),
        }
    }

    /// Adds a line.
    #[must_use]
    pub fn with(mut self, name: &str, mut points: Vec<(f64, f64)>) -> Self {
        let name = name.to_owned();
        points.retain(|(x, y)| x.is_finite() && y.is_finite());
        self.series.push(Series { name, points });
        self
    }
}

/// On which side of the aim a value has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relation {
    /// Not more.
    #[serde(rename = "<=")]
    AtMost,
    /// Not less.
    #[serde(rename = ">=")]
    AtLeast,
}

/// One aim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The part and the value.
    pub name: String,
    /// What was measured.
    pub value: f64,
    /// Of the value and of the target; empty for a ratio.
    pub unit: String,
    /// Which side is good.
    pub relation: Relation,
    /// What is aimed at.
    pub target: f64,
    /// Whether it was reached.
    pub met: bool,
}

impl Target {
    /// A value that is to be small.
    pub fn at_most(name: impl Into<String>, value: f64, target: f64, unit: &str) -> Self {
        Self::new(name.into(), value, Relation::AtMost, target, unit)
    }

    /// A value that is to be large.
    pub fn at_least(name: impl Into<String>, value: f64, target: f64, unit: &str) -> Self {
        Self::new(name.into(), value, Relation::AtLeast, target, unit)
    }

    /// A value that is no number was not measured: it is written as 0 and not met.
    fn new(name: String, value: f64, relation: Relation, target: f64, unit: &str) -> Self {
        let met = match relation {
            Relation::AtMost => value <= target,
            Relation::AtLeast => value >= target,
        };
        Self {
            name,
            value: if value.is_finite() { value } else { 0.0 },
            unit: unit.to_owned(),
            relation,
            target,
            met,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_on_its_good_side_only() {
        assert!(Target::at_most("a", 1.0, 1.0, "").met);
        assert!(!Target::at_most("a", 1.1, 1.0, "").met);
        assert!(Target::at_least("a", 1.1, 1.0, "").met);
        // What could not be measured was not reached.
        assert!(!Target::at_least("a", f64::NAN, 1.0, "").met);
        assert!(!Target::at_most("a", f64::NAN, 1.0, "").met);
    }

    #[test]
    fn a_target_is_written_with_its_relation() {
        let text = serde_json::to_string(&Target::at_most("a", 1.0, 2.0, "us")).unwrap();
        assert!(
            text.contains(r#""relation":"<=","target":2.0,"met":true"#),
            "{text}"
        );
    }
}
