//! Another consumer of a replication stream, to compare the decoder with: the crate `pg_walstream`. It receives
//! everything up to a position, counts rows, and prints one line: rows, seconds, CPU seconds, peak memory in KB.
//!
//! ```text
//! walstream <conninfo> <slot> <publication> <end position, decimal>
//! ```

use std::error::Error;
use std::time::{Duration, Instant};

use pg_walstream::{
    CancellationToken, EventType, LogicalReplicationStream, ReplicationError,
    ReplicationStreamConfig, RetryConfig, StreamingMode,
};

/// Clock ticks per second in `/proc`, on every Linux.
const TICKS: f64 = 100.0;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [conninfo, slot, publication, end] = arguments.as_slice() else {
        return Err("walstream <conninfo> <slot> <publication> <end position>".into());
    };
    let config = ReplicationStreamConfig::new(
        slot.clone(),
        publication.clone(),
        2,
        StreamingMode::On,
        Duration::from_secs(10),
        Duration::from_secs(30),
        Duration::from_secs(60),
        RetryConfig::default(),
    )
    .with_messages(true)
    .with_stop_at_lsn(end.parse::<u64>()?);
    let mut stream = LogicalReplicationStream::new(conninfo, config).await?;
    stream.start(None).await?;
    let begin = Instant::now();
    let cancel = CancellationToken::new();
    let mut rows = 0_u64;
    loop {
        match stream.next_event(&cancel).await {
            Ok(event) => {
                if let EventType::Insert { .. } | EventType::Update { .. } | EventType::Delete { .. } =
                    event.event_type
                {
                    rows += 1;
                }
            }
            Err(ReplicationError::StreamStopped(_)) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{rows} {seconds} {} {}", cpu_seconds()?, peak_kilobytes()?);
    Ok(())
}

fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("no name in /proc/self/stat")?.1;
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: f64 = times.map(|field| field.parse().unwrap_or(0.0)).sum();
    Ok(ticks / TICKS)
}

fn peak_kilobytes() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("no VmHWM in /proc/self/status")?.parse()?)
}
