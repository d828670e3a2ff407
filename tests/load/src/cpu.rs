//! CPU time of processes, from `/proc`.

use std::path::{Path, PathBuf};

/// User and system time of a process with all its threads, also those that have ended, in seconds. 0 if it is gone.
///
/// The kernel counts that in ticks of 10 ms; where no thread has ended, the threads' own clocks say it to the nanosecond.
pub fn of_process(id: u32) -> f64 {
    let threads = threads(id).map(|thread| nanoseconds(&thread)).sum::<f64>() / 1e9;
    threads.max(of_stat_file(&format!("/proc/{id}/stat")))
}

/// The same for this process.
pub fn of_this_process() -> f64 {
    of_process(std::process::id())
}

/// The same for those threads of a process that have a name and have not ended.
pub fn of_threads(id: u32, name: &str) -> f64 {
    let named = threads(id).filter(|thread| {
        let comm = std::fs::read_to_string(thread.join("comm"));
        comm.is_ok_and(|comm| comm.trim_end() == name)
    });
    named.map(|thread| nanoseconds(&thread)).sum::<f64>() / 1e9
}

/// The folders of a process's threads.
fn threads(id: u32) -> impl Iterator<Item = PathBuf> {
    let folders = std::fs::read_dir(format!("/proc/{id}/task"));
    folders
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// Time on a processor, from the scheduler.
fn nanoseconds(thread: &Path) -> f64 {
    let text = std::fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|field| field.parse().ok()).unwrap_or(0.0)
}

/// The sum over several processes.
pub fn of_processes(ids: &[u32]) -> f64 {
    ids.iter().map(|id| of_process(*id)).sum()
}

fn of_stat_file(path: &str) -> f64 {
    let stat = std::fs::read_to_string(path).unwrap_or_default();
    #[expect(
        clippy::cast_precision_loss,
        reason = "ticks since the process began are few"
    )]
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    ticks(&stat).unwrap_or(0.0) / per_second
}

/// utime and stime: the 14th and 15th field. The name, which may hold blanks, is in parentheses before them.
fn ticks(stat: &str) -> Option<f64> {
    let rest = stat.rsplit_once(')')?.1;
    let mut fields = rest.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15";
        assert_eq!(ticks(stat), Some(11.0 + 12.0));
    }

    #[test]
    fn work_takes_time() {
        let before = of_this_process();
        let mut sum = 0_u64;
        while of_this_process() < before + 0.02 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
        assert_eq!(of_process(u32::MAX), 0.0);
    }
}
