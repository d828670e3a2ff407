//! Standard output: tables for people, JSON for programs.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::error::Error;

/// Prints one JSON document, indented.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// Prints one JSON document in a line of its own.
pub(crate) fn json_line(out: &mut impl Write, value: &impl Serialize) -> Result<(), Error> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// Prints a table. `right` names the columns with numbers.
pub(crate) fn table(header: &[&str], right: &[usize], rows: Vec<Vec<String>>) -> Result<(), Error> {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for &index in right {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    write_line(&table.trim_fmt())
}

/// Prints a list of names and values.
pub(crate) fn fields(title: &str, fields: &[(&str, String)]) -> Result<(), Error> {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = format!("{title}\n");
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        text.push_str(&format!("  {name:width$}  {value}\n"));
    }
    write_line(text.trim_end())
}

/// Prints a line.
pub(crate) fn write_line(text: &str) -> Result<(), Error> {
    Ok(writeln!(io::stdout().lock(), "{text}")?)
}

/// A number of bytes for people: `1.5 GiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 {
        format!("{count} {name}")
    } else {
        format!("{value:.1} {name}")
    }
}

/// A time span for people, from microseconds since 1970 until now: `3 h 5 min`.
pub(crate) fn since(unix_micros: i64) -> String {
    let Ok(micros) = u64::try_from(unix_micros) else {
        return String::new();
    };
    let then = UNIX_EPOCH + Duration::from_micros(micros);
    let seconds = then.elapsed().unwrap_or_default().as_secs();
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// Bytes as PostgreSQL prints them with `bytea_output = hex`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("\\x");
    for byte in bytes {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    }
}
