//! Commits of one row at a steady pace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tests::Cluster;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::measure::count;

/// So many sessions share the work: one alone would wait for its own commits.
const SESSIONS: u32 = 4;

/// Sessions that insert. Dropped, they stop.
#[derive(Debug)]
pub struct Writer {
    stop: Arc<AtomicBool>,
    commits: Arc<AtomicU64>,
    began: Instant,
    tasks: Vec<JoinHandle<()>>,
}

impl Writer {
    /// Commits `per_second` rows into table `rows_0`, with ids from `first_id` on.
    pub async fn start(source: &Cluster, first_id: u64, per_second: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let commits = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for number in 0..SESSIONS {
            let mut session = source.session().await;
            let (stop, commits) = (Arc::clone(&stop), Arc::clone(&commits));
            let mut id = first_id + u64::from(number);
            let offset = Duration::from_secs(1) * number / per_second;
            tasks.push(tokio::spawn(async move {
                let begin = tokio::time::Instant::now() + offset;
                let pause = Duration::from_secs(1) * SESSIONS / per_second;
                let mut pace = tokio::time::interval_at(begin, pause);
                // What can't keep up writes less; the number of commits says so.
                pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
                while !stop.load(Ordering::Relaxed) {
                    pace.tick().await;
                    let sql = format!(
                        "insert into rows_0 values ({id}, 1, 12.34, clock_timestamp(), \
                         md5('{id}') || md5('{id} '))"
                    );
                    session.run(&sql).await;
                    id += u64::from(SESSIONS);
                    commits.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        Self {
            stop,
            commits,
            began: Instant::now(),
            tasks,
        }
    }

    /// Commits per second since the beginning.
    pub fn rate(&self) -> f64 {
        count(self.commits.load(Ordering::Relaxed)) / self.began.elapsed().as_secs_f64()
    }

    /// Ends it; how many rows were written.
    pub async fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks.drain(..) {
            task.await.expect("a session writes");
        }
        self.commits.load(Ordering::Relaxed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
