//! What the figures mean for somebody who plans: what a number of subscribers costs, and when another machine is due.

use std::fmt::Write as _;

use super::markdown::number;
use crate::outcome::{Cell, Outcome};
use crate::results::Results;

/// Rows per second at the source, and subscribers, for which the cost is worked out.
const RATES: [f64; 4] = [1_000.0, 10_000.0, 50_000.0, 200_000.0];
const SUBSCRIBERS: [f64; 5] = [1.0, 16.0, 64.0, 256.0, 1_000.0];
/// A machine that is busier than this has no room for catching up after an interruption.
const ROOM: f64 = 0.7;
/// Gigabits per second of an ordinary network card.
const NETWORK: f64 = 10.0;

const HEAD: &str = "
## What a number of subscribers costs

Decoder and fanout cost something per row that the source writes, and a fanout per row that it delivers; the source pays once,
whatever the number of subscribers. All of it grows in proportion: with rows, with subscribers and with their tables, as the charts
show. The length of the log costs disk, and the place of a position in it is found in the time that the chart under *seek* shows.

![Cost of serving the backlog, by number of subscribers](charts/cost_by_subscribers.svg)
![Time for one subscriber, by size of the backlog](charts/time_by_rows.svg)
![Cost with one subscriber for each table](charts/cost_by_tables.svg)
![To the first block of a random position](charts/seek.svg)
";

const TAIL: &str = "
A second fanout, on a machine of its own, is due when the product for the fanout comes near to what the machine has: at
about 70 % of its processors, so that it can catch up after an interruption, or of its network. Fanouts share nothing but the log
directory and the decoder's control service; subscribers may go to any of them. Idle subscribers are bounded by memory before they are
bounded by anything else. The decoder and the source's walsender need a processor each in the worst case and can't be divided: when one of them
is busy all the time, the source writes more than one slot can decode, and no number of fanouts changes that.
";

/// What a native walsender took per row where the targets were set, in microseconds.
const SET_AT: f64 = 2.2;

/// Costs, in microseconds of CPU time.
struct Costs {
    decoder: f64,
    walsender: f64,
    whole: f64,
    native: f64,
    row_bytes: f64,
}

/// What a target in microseconds means on this machine; empty as long as the part that says it has not been run.
pub(super) fn yardstick(results: &Results) -> String {
    let Some(costs) = Costs::of(results) else {
        return String::new();
    };
    format!(
        "\nTargets in microseconds are those of a machine on which a walsender of the source takes {SET_AT} us of CPU time per row. In this run \
         it took {} us (*fan_out*, N = 16).\n",
        number(costs.native)
    )
}

/// The section; empty as long as the parts that it is about have not been run.
pub(super) fn render(results: &Results) -> String {
    let Some(costs) = Costs::of(results) else {
        return String::new();
    };
    let mut text = HEAD.to_owned();
    text += "\n| what | costs |\n|---|---:|\n";
    let mut row = |what: &str, value: Option<f64>, unit: &str| {
        if let Some(value) = value {
            writeln!(text, "| {what} | {} {unit} |", number(value)).expect("text can be written");
        }
    };
    row(
        "source's walsender, per row, once",
        Some(costs.walsender),
        "us",
    );
    row("decoder, per row, once", Some(costs.decoder), "us");
    row(
        "fanout, per row and subscriber that gets every row",
        Some(costs.whole),
        "us",
    );
    row(
        "fanout, per row and subscriber with a row filter or column list",
        cell(results, "distinct", "Decant", "CPU per scanned row"),
        "us",
    );
    for (how, name) in [("gRPC, raw", "raw"), ("gRPC, columns", "columns")] {
        let cost = cell(results, "grpc", how, "server CPU");
        row(
            &format!("fanout, per row and subscriber of gRPC, {name}"),
            cost,
            "us",
        );
    }
    row(
        "fanout, an idle subscriber: CPU per second",
        cell(results, "idle", "each, CPU, us/s", "value"),
        "us",
    );
    row(
        "fanout, an idle subscriber: memory",
        cell(results, "idle", "each, resident, KB", "value"),
        "KB",
    );
    row(
        "a native slot's walsender, per row and subscriber",
        Some(costs.native),
        "us",
    );
    text += &costs.table();
    text += TAIL;
    text
}

impl Costs {
    fn of(results: &Results) -> Option<Self> {
        let fan_out = results.parts.get("fan_out")?;
        let serving = fan_out.tables.iter().find(|table| {
            table
                .columns
                .iter()
                .any(|column| column == "native walsenders")
        })?;
        // In the middle: a few connections, and not yet more than processors can take turns for.
        let row = serving.rows.get(serving.rows.len() / 2)?;
        let at = |name: &str| {
            let index = serving.columns.iter().position(|column| column == name)?;
            as_number(row.get(index)?)
        };
        Some(Self {
            decoder: cell(results, "ingest", "decoder, live", "CPU")?,
            walsender: cell(results, "ingest", "decoder, live", "walsender CPU")?,
            whole: at("fanout")?,
            native: at("native walsenders")?,
            row_bytes: row_bytes(fan_out)?,
        })
    }

    /// Processors that a fanout needs.
    fn table(&self) -> String {
        let mut text = format!(
            "\nProcessors of the fanout, by rows per second that the source writes and subscribers that get all of them; in brackets \
             gigabits per second to them. In bold: more than {} processors' {:.0} %, or than {NETWORK} Gbit/s.\n\n| rows/s |",
            processors(),
            ROOM * 100.0
        );
        for subscribers in SUBSCRIBERS {
            write!(text, " {} |", number(subscribers)).expect("text can be written");
        }
        text += " 16 native slots |\n|---:|";
        text += &"---:|".repeat(SUBSCRIBERS.len() + 1);
        text.push('\n');
        for rate in RATES {
            write!(text, "| {} |", number(rate)).expect("text can be written");
            for subscribers in SUBSCRIBERS {
                let delivered = rate * subscribers;
                let busy = delivered * self.whole / 1e6;
                let gigabits = delivered * self.row_bytes * 8.0 / 1e9;
                let shown = format!("{} ({})", number(busy), number(gigabits));
                if busy > ROOM * processors() || gigabits > NETWORK {
                    write!(text, " **{shown}** |").expect("text can be written");
                } else {
                    write!(text, " {shown} |").expect("text can be written");
                }
            }
            let native = rate * 16.0 * self.native / 1e6;
            writeln!(text, " {} at the source |", number(native)).expect("text can be written");
        }
        text
    }
}

fn processors() -> f64 {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(count).map_or(1.0, f64::from)
}

/// Bytes per row and subscriber, of the table of speeds.
fn row_bytes(fan_out: &Outcome) -> Option<f64> {
    let table = fan_out.tables.first()?;
    let column = |name: &str| table.columns.iter().position(|column| column == name);
    let row = table.rows.first()?;
    let megabytes = as_number(row.get(column("Decant MB/s")?)?)?;
    let rows = as_number(row.get(column("Decant")?)?)?;
    Some(megabytes * 1e6 / rows)
}

/// The last value in a part's tables in a row that has a cell `label` and in a column that begins with `column`.
fn cell(results: &Results, part: &str, label: &str, column: &str) -> Option<f64> {
    let mut found = None;
    for table in &results.parts.get(part)?.tables {
        let index = table
            .columns
            .iter()
            .position(|name| name.starts_with(column));
        for row in &table.rows {
            let named = row
                .iter()
                .any(|cell| matches!(cell, Cell::Text(text) if text == label));
            if let (true, Some(index)) = (named, index) {
                found = row.get(index).and_then(as_number).or(found);
            }
        }
    }
    found
}

fn as_number(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Number(value) => Some(*value),
        Cell::Text(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Table;

    fn part(tables: Vec<Table>) -> Outcome {
        Outcome {
            tables,
            ..Outcome::default()
        }
    }

    #[test]
    fn costs_come_from_the_parts_that_measured_them() {
        let mut results = Results::default();
        assert_eq!(render(&results), "");
        let mut speeds = Table::new("Speed", &["N", "Decant", "Decant MB/s"]);
        speeds.row([1.0, 1e6, 150.0].map(Cell::from));
        let mut costs = Table::new("CPU", &["N", "native walsenders", "fanout"]);
        costs.row([1.0, 2.0, 0.1].map(Cell::from));
        results.put("fan_out", part(vec![speeds, costs]));
        let mut ingest = Table::new("Ingest", &["who", "CPU, us/row", "walsender CPU, us/row"]);
        ingest.row([Cell::from("decoder, live"), 0.3.into(), 2.5.into()]);
        results.put("ingest", part(vec![ingest]));
        let text = render(&results);
        assert!(
            text.contains("| decoder, per row, once | 0.300 us |"),
            "{text}"
        );
        // 1,000 rows/s to 16 subscribers at 0.1 us: 1.6 ms of a processor each second, and 19.2 Mbit/s.
        assert!(
            text.contains("| 1,000 | 0 (0.001) | 0.002 (0.019) |"),
            "{text}"
        );
        assert!(
            text.contains("| **20 (240)** | 6.40 at the source |"),
            "{text}"
        );
    }
}
