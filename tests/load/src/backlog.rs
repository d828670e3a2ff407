//! Rows that wait for subscribers, at the source and in Decant's log.

use pg_proto::Lsn;

use crate::drain::{Plan, Server};
use crate::measure::{Run, drain, say};
use crate::stage::{ROWS_PER_TRANSACTION, Stage, wait_until_durable};

/// Rows of a full backlog.
pub const ROWS: u64 = 1_000_000;

/// Rows, and slots in front of them at both sides. Nothing is confirmed, so that it can be read again and again.
#[derive(Clone, Debug)]
pub struct Backlog {
    /// The slots' names without their numbers.
    pub slots: String,
    /// The rows.
    pub rows: u64,
    /// Position behind them.
    pub end: Lsn,
}

impl Backlog {
    /// Fills table 0 behind new slots, and waits until Decant's log has it.
    pub async fn make(
        stage: &Stage,
        slots: &str,
        next_row: &mut u64,
        rows: u64,
        subscribers: usize,
    ) -> Self {
        say(&format!("a backlog of {rows} rows"));
        stage.create_native_slots(slots, subscribers).await;
        stage.create_decant_slots(slots, subscribers).await;
        let end = stage.fill(0, *next_row, rows, ROWS_PER_TRANSACTION).await;
        *next_row += rows;
        wait_until_durable(&stage.decant, end).await;
        Self {
            slots: slots.to_owned(),
            rows,
            end,
        }
    }

    /// Native subscribers of everything.
    pub async fn native(&self, stage: &Stage, subscribers: usize) -> Run {
        say(&format!("{subscribers} native"));
        let plan = self.plan(stage.native(), subscribers);
        let run = drain(&plan, self.end, async || stage.native_walsenders().await).await;
        self.check(run)
    }

    /// Subscribers of everything at Decant's first fanout.
    pub async fn decant(&self, stage: &mut Stage, subscribers: usize) -> Run {
        say(&format!("{subscribers} through Decant"));
        let plan = self.plan(stage.fanout(0), subscribers);
        let fanout = stage.decant.fanout(0).process().id();
        let run = drain(&plan, self.end, async || vec![fanout]).await;
        self.check(run)
    }

    /// For so many subscribers of everything.
    pub fn plan(&self, server: Server, subscribers: usize) -> Plan {
        Plan::new(server, &self.slots, "everything", subscribers)
    }

    /// A run in which something was lost or doubled measures nothing.
    #[must_use]
    pub fn check(&self, run: Run) -> Run {
        let expected = self.rows * run.connections as u64;
        assert_eq!(
            run.report.rows, expected,
            "every receiver gets every row once"
        );
        run
    }
}
