//! The results file: `results.json`, which keeps what earlier runs of other parts found out.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::outcome::{Outcome, Target};

/// All that is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Of all parts; made anew from them whenever this is written.
    pub targets: Vec<Target>,
    /// By name of the part.
    pub parts: BTreeMap<String, Outcome>,
}

impl Results {
    /// Reads a file; nothing if there is none. A file of another shape is started over, since everything in it can be
    /// measured again.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Replaces what is known of a part.
    pub fn put(&mut self, part: &str, outcome: Outcome) {
        self.parts.insert(part.to_owned(), outcome);
        let targets = self.parts.values().flat_map(|part| part.targets.clone());
        self.targets = targets.collect();
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) {
        let text = serde_json::to_string_pretty(self).expect("results are JSON");
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        }
        std::fs::write(path, text + "\n")
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_replaced_and_the_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/results.json");
        let with = |value| Outcome {
            targets: vec![Target::at_most("x", value, 1.0, "")],
            ..Outcome::default()
        };
        let mut results = Results::read(&path);
        results.put("one", with(0.5));
        results.put("two", with(2.0));
        results.write(&path);
        let mut again = Results::read(&path);
        assert_eq!(again, results);
        again.put("two", with(0.7));
        let met: Vec<bool> = again.targets.iter().map(|target| target.met).collect();
        assert_eq!(met, [true, true]);
        std::fs::write(&path, "[]").unwrap();
        assert_eq!(Results::read(&path), Results::default());
    }
}
