//! One target under libFuzzer: `FUZZ_TARGET` names it, the arguments are libFuzzer's own. `SEEDS_TO=folder` writes its
//! seeds there first.

#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use fuzz::Target;
use libfuzzer_sys::fuzz_target;

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fn choose() -> &'static Target {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let target = Target::named(&name).unwrap_or_else(|| panic!("there is no target \"{name}\""));
    if let Ok(folder) = std::env::var("SEEDS_TO") {
        let seeds = (target.seeds)().into_iter().chain(target.regressions());
        for (number, seed) in seeds.enumerate() {
            let path = Path::new(&folder).join(format!("seed-{number}"));
            std::fs::write(path, seed).expect("the folder of seeds can be written to");
        }
    }
    target
}

fuzz_target!(
    init: {
        TARGET.get_or_init(choose);
    },
    |bytes: &[u8]| {
        (TARGET.get_or_init(choose).run)(bytes);
    }
);
