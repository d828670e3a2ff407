//! One run of receivers, with the CPU time that it took on both sides.

use pg_proto::Lsn;

use crate::cpu;
use crate::drain::{Plan, Report};
use crate::drainer::Drainer;

/// What one run showed.
#[derive(Clone, Debug)]
pub struct Run {
    /// How many receivers there were.
    pub connections: usize,
    /// What they received.
    pub report: Report,
    /// CPU time of the servers' processes, in seconds.
    pub server_cpu: f64,
    /// CPU time of the receivers, in seconds.
    pub receiver_cpu: f64,
}

impl Run {
    /// Rows per second of all receivers together.
    pub fn rows_per_second(&self) -> f64 {
        self.rows() / self.report.seconds
    }

    /// Bytes per second of all receivers together.
    pub fn megabytes_per_second(&self) -> f64 {
        count(self.report.bytes) / self.report.seconds / 1e6
    }

    /// Microseconds of the servers' CPU time per delivered row.
    pub fn server_us(&self) -> f64 {
        self.server_cpu * 1e6 / self.rows()
    }

    /// Microseconds of the receivers' CPU time per delivered row.
    pub fn receiver_us(&self) -> f64 {
        self.receiver_cpu * 1e6 / self.rows()
    }

    /// Delivered rows.
    pub fn rows(&self) -> f64 {
        count(self.report.rows)
    }
}

/// A number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "counts of rows and bytes")]
pub const fn count(value: u64) -> f64 {
    value as f64
}

/// Lets the receivers take everything up to `end`. `servers` finds the processes that serve them, once they are connected.
pub async fn drain(plan: &Plan, end: Lsn, servers: impl AsyncFnOnce() -> Vec<u32>) -> Run {
    let mut drainer = Drainer::connect(plan).await;
    let ids = servers().await;
    let before = (cpu::of_processes(&ids), drainer.cpu());
    let report = drainer.go_and_receive_until(end).await;
    Run {
        connections: plan.subscriptions.len(),
        report,
        server_cpu: cpu::of_processes(&ids) - before.0,
        receiver_cpu: drainer.cpu() - before.1,
    }
}

/// Says on standard error what is being done.
pub fn say(text: &str) {
    eprintln!("    {text}");
}
