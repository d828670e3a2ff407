//! The drain program.

use std::fs::File;
use std::io::{BufRead, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use parking_lot::Mutex;
use pg_proto::{Lsn, PgTimestamp};
use tests::Session;
use tests::sql::Endpoint;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::connection::{Connection, Failure};
use super::frames::Tally;
use super::{Event, Plan, Quantiles, Report, Server, grpc};

/// As many as there are processors on the machines that are meant.
const WORKERS: usize = 2;
/// Logins at a time.
const LOGINS: usize = 32;

/// Runs the program: reads its plan and its commands from standard input.
pub fn run() -> ExitCode {
    service::limits::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(converse()),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&Event::Failed(failure.to_string()));
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::print_stdout,
    reason = "the conversation is on standard output"
)]
fn say(event: &Event) {
    println!("{}", serde_json::to_string(event).unwrap_or_default());
    // Ignored: who does not listen any more ends this program.
    let _ = std::io::stdout().flush();
}

/// One connection's view of the end that is waited for.
pub(super) struct Watch {
    until: watch::Receiver<Option<Lsn>>,
    finished: mpsc::UnboundedSender<Instant>,
    /// The end that was reached last.
    reached: Option<Lsn>,
}

impl Watch {
    /// Whether an end is waited for and not reached at `position`; says so once when it is.
    pub(super) fn note(&mut self, position: Lsn) -> bool {
        let until = *self.until.borrow();
        match until {
            Some(end) if position < end => return true,
            Some(_) if self.reached != until => {
                self.reached = until;
                // Ignored: nobody waits any more.
                let _ = self.finished.send(Instant::now());
            }
            _ => {}
        }
        false
    }

    /// Returns when the end was told.
    pub(super) async fn changed(&mut self) {
        if self.until.changed().await.is_err() {
            // The program is ending.
            std::future::pending::<()>().await;
        }
    }
}

/// All streams.
struct Streams {
    tallies: Vec<Arc<Mutex<Tally>>>,
    tasks: JoinSet<Failure>,
    until: watch::Sender<Option<Lsn>>,
    finished: mpsc::UnboundedReceiver<Instant>,
    finished_count: usize,
    /// When the last of those that have finished did so.
    last: Instant,
    began: Instant,
    began_at: PgTimestamp,
}

/// What happened to a stream.
enum Next {
    /// It has reached the end that is waited for.
    Finished,
    /// It broke.
    Failed(Failure),
}

async fn converse() -> Result<(), Failure> {
    let mut lines = lines();
    let Some(line) = lines.recv().await else {
        return Ok(());
    };
    let plan: Plan = serde_json::from_str(&line)
        .map_err(|error| Failure::Refused(format!("the plan: {error}")))?;
    let sessions = log_in(&plan).await?;
    say(&Event::Ready);
    if lines.recv().await.as_deref() != Some("go") {
        return Ok(());
    }
    let mut streams = Streams::start(&plan, sessions).await?;
    say(&Event::Started);
    loop {
        tokio::select! {
            line = lines.recv() => match line.as_deref() {
                None => return Ok(()),
                Some("mark") => say(&Event::Latency(streams.take_latencies())),
                Some(line) => streams.set_end(line)?,
            },
            next = streams.next() => match next {
                Next::Finished => {
                    if let Some(report) = streams.report_if_complete() {
                        say(&Event::Report(report));
                    }
                }
                Next::Failed(failure) => return Err(failure),
            },
        }
    }
}

fn lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// One session for each stream; none for gRPC, which has no login.
async fn log_in(plan: &Plan) -> Result<Vec<Session>, Failure> {
    let Server::Postgres { port } = plan.server else {
        return Ok(Vec::new());
    };
    let endpoint = Endpoint::new(port);
    let mut sessions = Vec::with_capacity(plan.subscriptions.len());
    let mut logins: JoinSet<Result<Session, Failure>> = JoinSet::new();
    for _ in &plan.subscriptions {
        if logins.len() >= LOGINS {
            sessions.extend(one_of(&mut logins).await?);
        }
        let endpoint = endpoint.clone();
        logins.spawn(async move { Ok(Session::connect_for_replication(&endpoint).await?) });
    }
    while let Some(session) = one_of(&mut logins).await? {
        sessions.push(session);
    }
    Ok(sessions)
}

async fn one_of<T: 'static>(tasks: &mut JoinSet<Result<T, Failure>>) -> Result<Option<T>, Failure> {
    match tasks.join_next().await {
        None => Ok(None),
        Some(Ok(result)) => result.map(Some),
        Some(Err(error)) => Err(Failure::Refused(error.to_string())),
    }
}

impl Streams {
    /// Begins all streams at the same time.
    async fn start(plan: &Plan, sessions: Vec<Session>) -> Result<Self, Failure> {
        let (until, until_receiver) = watch::channel(None);
        let (finished_sender, finished) = mpsc::unbounded_channel();
        let new_tally = || Tally::new(plan.latencies);
        let count = plan.subscriptions.len();
        let mut streams = Self {
            tallies: (0..count)
                .map(|_| Arc::new(Mutex::new(new_tally())))
                .collect(),
            tasks: JoinSet::new(),
            until,
            finished,
            finished_count: 0,
            last: Instant::now(),
            began: Instant::now(),
            began_at: PgTimestamp::now(),
        };
        let watch = || Watch {
            until: until_receiver.clone(),
            finished: finished_sender.clone(),
            reached: None,
        };
        if let Server::Grpc { url } = &plan.server {
            for (subscription, tally) in plan.subscriptions.iter().zip(&streams.tallies) {
                let stream =
                    grpc::start(url, subscription, plan, Arc::clone(tally), watch()).await?;
                streams.tasks.spawn(stream.run());
            }
            return Ok(streams);
        }
        let mut starting: JoinSet<Result<Connection, Failure>> = JoinSet::new();
        let shared = Arc::new(plan.clone());
        for (number, session) in sessions.into_iter().enumerate() {
            let (plan, watch) = (Arc::clone(&shared), watch());
            let tally = Arc::clone(&streams.tallies[number]);
            let record = record_file(&plan, number)?;
            starting.spawn(async move {
                let subscription = &plan.subscriptions[number];
                Connection::start(session, &plan, subscription, tally, watch, record).await
            });
        }
        while let Some(connection) = one_of(&mut starting).await? {
            streams.tasks.spawn(connection.run());
        }
        Ok(streams)
    }

    fn set_end(&mut self, line: &str) -> Result<(), Failure> {
        let until = line.strip_prefix("until ").and_then(|lsn| lsn.parse().ok());
        let until = until.ok_or_else(|| Failure::Refused(format!("the command {line:?}")))?;
        self.finished_count = 0;
        self.until.send_replace(Some(until));
        Ok(())
    }

    /// What happens next to one of the streams. Cancel safe.
    async fn next(&mut self) -> Next {
        let Self {
            tasks, finished, ..
        } = self;
        tokio::select! {
            Some(at) = finished.recv() => {
                self.last = self.last.max(at);
                self.finished_count += 1;
                Next::Finished
            }
            Some(ended) = tasks.join_next() => {
                Next::Failed(ended.unwrap_or_else(|error| Failure::Refused(error.to_string())))
            }
            // There are no streams.
            else => std::future::pending().await,
        }
    }

    fn report_if_complete(&self) -> Option<Report> {
        (self.finished_count == self.tallies.len()).then(|| self.report(self.last))
    }

    fn take_latencies(&self) -> Quantiles {
        let mut all = Vec::new();
        for tally in &self.tallies {
            if let Some(latencies) = &mut tally.lock().latencies {
                all.append(latencies);
            }
        }
        Quantiles::of(&mut all)
    }

    fn report(&self, last: Instant) -> Report {
        let mut report = Report {
            seconds: last.duration_since(self.began).as_secs_f64(),
            latency: self.take_latencies(),
            ..Report::default()
        };
        for tally in &self.tallies {
            let tally = tally.lock();
            report.rows += tally.rows;
            report.bytes += tally.bytes;
            report.commits += tally.commits;
            if let Some(first) = tally.first_row {
                report.first_row_at =
                    Some(report.first_row_at.map_or(first.0, |at| at.min(first.0)));
                report
                    .first_row_seconds
                    .push(seconds_between(self.began_at, first));
            }
        }
        report
    }
}

#[expect(clippy::cast_precision_loss, reason = "a run takes minutes")]
fn seconds_between(begin: PgTimestamp, end: PgTimestamp) -> f64 {
    (end.0 - begin.0) as f64 / 1e6
}

/// Only the first connection is recorded.
fn record_file(plan: &Plan, number: usize) -> Result<Option<File>, Failure> {
    match &plan.record {
        Some(path) if number == 0 => Ok(Some(File::create(path)?)),
        _ => Ok(None),
    }
}
