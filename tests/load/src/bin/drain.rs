//! The receivers of the benchmark; see `load::drain`.

use std::process::ExitCode;

fn main() -> ExitCode {
    load::drain::run()
}
