//! Where it was measured.

/// The processor, its number, memory and the kernel, on one line.
pub fn describe() -> String {
    let cpu =
        field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory: u64 = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{cpu}, {cores} cores, {} GB, Linux {}",
        memory >> 20,
        kernel.trim()
    )
}

/// What else the machine has done in the last minute, in processors.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
