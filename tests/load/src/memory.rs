//! The most memory that processes had while something went on.

use std::time::Duration;

use tokio::task::JoinHandle;

const EVERY: Duration = Duration::from_millis(50);

/// The most that a process had, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Resident, with what is mapped of files.
    pub resident: u64,
    /// Of that, what belongs to the process alone.
    pub anonymous: u64,
}

/// Looks at processes again and again. Dropped, it stops.
#[derive(Debug)]
pub struct Watch {
    task: JoinHandle<()>,
    peaks: std::sync::Arc<parking_lot::Mutex<Vec<Peak>>>,
}

impl Watch {
    /// Begins.
    pub fn start(ids: Vec<u32>) -> Self {
        let peaks = std::sync::Arc::new(parking_lot::Mutex::new(vec![Peak::default(); ids.len()]));
        let seen = std::sync::Arc::clone(&peaks);
        let task = tokio::spawn(async move {
            loop {
                for (peak, id) in seen.lock().iter_mut().zip(&ids) {
                    let now = now(*id);
                    peak.resident = peak.resident.max(now.resident);
                    peak.anonymous = peak.anonymous.max(now.anonymous);
                }
                tokio::time::sleep(EVERY).await;
            }
        });
        Self { task, peaks }
    }

    /// The most of each process so far.
    pub fn peaks(&self) -> Vec<Peak> {
        self.peaks.lock().clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a process has now; nothing if it is gone.
pub fn now(id: u32) -> Peak {
    let text = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.unwrap_or(0) * 1024
    };
    Peak {
        resident: field("VmRSS:"),
        anonymous: field("RssAnon:"),
    }
}
