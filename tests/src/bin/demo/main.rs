//! `make demo`: one PostgreSQL, decoded once, replicated through two fanouts to a PostgreSQL subscriber and a gRPC
//! subscriber, under pgbench. Ends with a table that compares contents; exit status 1 if anything differs.
//!
//! `KEEP=1` leaves everything running and prints how to connect.

mod report;
mod stage;
mod watch;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use self::stage::Stage;

/// How long pgbench runs.
const LOAD: Duration = Duration::from_secs(15);
/// How long the subscribers may take afterwards.
const CATCH_UP: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("demo: {error}");
            return ExitCode::FAILURE;
        }
    };
    // The harness panics on failure; what it has started ends while the panic unwinds.
    let outcome =
        std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(until_interrupted())));
    match outcome {
        Ok(Some(true)) => ExitCode::SUCCESS,
        Ok(Some(false)) | Err(_) => ExitCode::FAILURE,
        Ok(None) => ExitCode::from(130),
    }
}

/// Whether all is equal; `None` if it was interrupted, everything being ended and removed by then.
async fn until_interrupted() -> Option<bool> {
    let mut interrupt = signal(SignalKind::interrupt()).expect("signals can be waited for");
    let mut terminate = signal(SignalKind::terminate()).expect("signals can be waited for");
    tokio::select! {
        equal = run() => Some(equal),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    }
}

async fn run() -> bool {
    let mut stage = Stage::set_up().await;
    let mut load = stage.start_load(LOAD).await;
    let slots_stayed_one = watch::watch(&mut stage, &mut load, CATCH_UP).await;
    load.finish(CATCH_UP).await;
    let equal = report::print(&mut stage, slots_stayed_one).await;
    if std::env::var_os("KEEP").is_some_and(|keep| keep == "1") {
        stage.leave_running();
    }
    equal
}
