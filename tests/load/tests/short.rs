//! Every part at its smallest: that it measures, not what.

use std::process::Command;

use load::parts;
use load::results::Results;

#[test]
fn every_part_gives_figures() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results.json");
    let report = folder.path().join("RESULTS.md");
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["--scale", "0.001", "--results"])
        .arg(&results)
        .arg("--report")
        .arg(&report)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let results = Results::read(&results);
    let text = std::fs::read_to_string(&report).unwrap();
    for name in parts::NAMES {
        let part = results.parts.get(name);
        let part = part.unwrap_or_else(|| panic!("nothing of {name}:\n{errors}"));
        assert!(
            !part.tables.is_empty() && !part.targets.is_empty(),
            "{name}"
        );
        assert!(text.contains(&format!("\n## {name}\n")), "{name}");
        for chart in &part.charts {
            let file = folder
                .path()
                .join("charts")
                .join(format!("{}.svg", chart.name));
            assert!(file.is_file(), "{}", file.display());
        }
    }
}
