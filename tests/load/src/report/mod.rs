//! `RESULTS.md` and its charts.

mod capacity;
mod markdown;
mod missed;
mod svg;

use std::path::Path;

use crate::parts;
use crate::results::Results;

/// Writes the text to `path` and the charts to a folder `charts` beside it.
pub fn write(results: &Results, path: &Path) {
    let folder = path.parent().unwrap_or(Path::new(".")).join("charts");
    std::fs::create_dir_all(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for part in results.parts.values() {
        for chart in &part.charts {
            let file = folder.join(format!("{}.svg", chart.name));
            std::fs::write(&file, svg::draw(chart))
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
    }
    let known = parts::NAMES.iter().filter_map(|name| {
        let outcome = results.parts.get(*name)?;
        Some((*name, outcome))
    });
    std::fs::write(
        path,
        markdown::render(
            known,
            &(capacity::yardstick(results) + &missed::render(results) + &capacity::render(results)),
        ),
    )
    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
