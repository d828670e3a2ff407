//! The receivers' program as the benchmark sees it.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use pg_proto::Lsn;
use tokio::sync::mpsc;

use crate::cpu;
use crate::drain::{Event, Plan, Quantiles, Report};

/// Longer than any part takes.
const DEADLINE: Duration = Duration::from_secs(900);

/// A running drain program. Dropped, it ends and its connections with it.
#[derive(Debug)]
pub struct Drainer {
    child: Child,
    input: Option<ChildStdin>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Drainer {
    /// Starts it and waits until its connections are there.
    pub async fn connect(plan: &Plan) -> Self {
        let mut child = Command::new(program())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program().display()));
        let input = child.stdin.take();
        let output = child.stdout.take().expect("its output is piped");
        let (sender, events) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line)
                    .unwrap_or_else(|error| Event::Failed(format!("{line}: {error}")));
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        let mut drainer = Self {
            child,
            input,
            events,
        };
        drainer.say(&serde_json::to_string(plan).expect("a plan is JSON"));
        drainer
            .wait("connects", |event| {
                matches!(event, Event::Ready).then_some(())
            })
            .await;
        drainer
    }

    /// Begins all streams.
    pub async fn go(&mut self) {
        self.say("go");
        self.wait_for_start().await;
    }

    /// Begins all streams and waits until all that commits below a position is there. The end is known when the first
    /// bytes come, so that no time is lost between the last ones and the report.
    pub async fn go_and_receive_until(&mut self, end: Lsn) -> Report {
        self.say("go");
        self.say(&format!("until {end}"));
        self.wait_for_start().await;
        self.wait_for_report().await
    }

    /// Latencies since the last time, in microseconds.
    pub async fn latencies(&mut self) -> Quantiles {
        self.say("mark");
        self.wait("tells latencies", |event| match event {
            Event::Latency(found) => Some(found),
            _ => None,
        })
        .await
    }

    /// Waits until all that commits below a position is there.
    pub async fn receive_until(&mut self, end: Lsn) -> Report {
        self.say(&format!("until {end}"));
        self.wait_for_report().await
    }

    /// CPU time that it has used, in seconds.
    pub fn cpu(&self) -> f64 {
        cpu::of_process(self.child.id())
    }

    fn say(&mut self, line: &str) {
        let input = self
            .input
            .as_mut()
            .expect("it is open until this is dropped");
        writeln!(input, "{line}").expect("the receivers' program runs");
    }

    async fn wait_for_start(&mut self) {
        self.wait("starts", |event| {
            matches!(event, Event::Started).then_some(())
        })
        .await;
    }

    async fn wait_for_report(&mut self) -> Report {
        self.wait("receives everything", |event| match event {
            Event::Report(report) => Some(report),
            _ => None,
        })
        .await
    }

    async fn wait<T>(&mut self, what: &str, wanted: impl Fn(Event) -> Option<T>) -> T {
        let event = tokio::time::timeout(DEADLINE, self.events.recv()).await;
        match event {
            Ok(Some(Event::Failed(why))) => panic!("the receivers' program failed: {why}"),
            Ok(Some(event)) => {
                let text = format!("{event:?}");
                wanted(event).unwrap_or_else(|| panic!("until it {what}: unexpected {text}"))
            }
            Ok(None) => panic!("the receivers' program ended before it {what}"),
            Err(_) => panic!("the receivers' program: not within {DEADLINE:?}: {what}"),
        }
    }
}

impl Drop for Drainer {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Beside this program; tests are one folder further down.
fn program() -> PathBuf {
    let this = std::env::current_exe().expect("a program knows its own path");
    let folder = this.parent().expect("a program is in a folder");
    let folder = if folder.ends_with("deps") {
        folder.parent().unwrap_or(folder)
    } else {
        folder
    };
    folder.join("drain")
}
