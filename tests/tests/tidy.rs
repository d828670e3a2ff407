//! Rules of style that no compiler checks, on the files of this repository.

use std::path::{Path, PathBuf};

/// A file is read as a whole; beyond this it is several.
const LINES_MAX: usize = 500;

/// What is not to be left behind.
const BANNED: [&str; 4] = ["TO\x44O", "FIX\x4dE", "X\x58X", "unimple\x6dented!("];

fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package is in the workspace")
}

/// All files with an extension, without what is built or hidden.
fn files(extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)
            .expect("a folder can be read")
            .flatten()
        {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if path.extension().is_some_and(|other| other == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty());
    found
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn files_are_small() {
    let mut long = Vec::new();
    for path in files("rs") {
        let lines = read(&path).lines().count();
        if lines > LINES_MAX {
            long.push(format!("{}: {lines} lines", path.display()));
        }
    }
    assert_none("longer than a file should be", &long);
}

#[test]
fn nothing_is_left_for_later() {
    let mut left = Vec::new();
    for path in files("rs")
        .into_iter()
        .chain(files("proto"))
        .chain(files("sql"))
    {
        for (number, line) in read(&path).lines().enumerate() {
            if BANNED.iter().any(|word| line.contains(word)) {
                left.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert_none("left for later", &left);
}

#[test]
fn a_text_has_one_title() {
    let mut wrong = Vec::new();
    for path in files("md") {
        let text = read(&path);
        let mut in_code = false;
        let titles = text.lines().filter(|line| {
            in_code ^= line.starts_with("```");
            !in_code && line.starts_with("# ")
        });
        let titles = titles.count();
        if titles != 1 {
            wrong.push(format!("{}: {titles} titles", path.display()));
        }
    }
    assert_none("not exactly one title", &wrong);
}
