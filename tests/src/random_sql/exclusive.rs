//! Transactions during which nothing else is open: what changes tables, partitions and publications inside a transaction
//! acts from its own place on, and a publisher is exact about that only for the transaction itself.

use super::schema::{FILTERS_COUNT, SPARE, selected};
use super::{Step, Workload};

/// Where a transaction can go back to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Catalog {
    /// Whether `r_pub` has `r_full`.
    pub(super) full_published: bool,
    /// Whether the partition that comes and goes is there.
    pub(super) attached: bool,
}

impl Workload {
    /// A whole transaction of one writer.
    pub(super) fn exclusive(&mut self, writer: usize) -> Vec<Step> {
        let begin = self.catalog;
        let mut steps = vec![Step::Writer(writer, "begin".to_owned())];
        for _ in 0..3 + self.random.below(4) {
            steps.push(self.change_and_write(writer));
            steps.push(Step::Writer(writer, self.dml(writer)));
            if self.random.one_in(4) {
                steps.extend(self.undone(writer));
            }
        }
        let end = if self.random.one_in(6) {
            self.catalog = begin;
            "rollback"
        } else {
            "commit"
        };
        steps.push(Step::Writer(writer, end.to_owned()));
        steps
    }

    /// A subtransaction that is rolled back, and what comes behind it.
    fn undone(&mut self, writer: usize) -> Vec<Step> {
        let before = self.catalog;
        let mut steps = vec![Step::Writer(writer, "savepoint undone".to_owned())];
        for _ in 0..=self.random.below(2) {
            steps.push(self.change_and_write(writer));
            steps.push(Step::Writer(writer, self.dml(writer)));
        }
        self.catalog = before;
        let sql = "rollback to undone; release undone".to_owned();
        steps.push(Step::Writer(writer, sql));
        steps.push(Step::Writer(writer, self.dml(writer)));
        steps
    }

    fn change_and_write(&mut self, writer: usize) -> Step {
        match self.random.below(8) {
            0 => self.add_column(writer),
            1 | 2 => Step::Writer(writer, self.change_publication()),
            3 | 4 => Step::Writer(writer, self.change_filter()),
            5 | 6 => Step::Writer(writer, self.change_partitions()),
            // Writes the table anew.
            _ => Step::Writer(
                writer,
                "alter table r_full alter v type text using v || ''".to_owned(),
            ),
        }
    }

    pub(super) fn change_publication(&mut self) -> String {
        let published = !self.catalog.full_published;
        self.catalog.full_published = published;
        let word = if published { "add" } else { "drop" };
        format!("alter publication r_pub {word} table r_full")
    }

    pub(super) fn change_filter(&mut self) -> String {
        let filter = usize::try_from(self.random.below(FILTERS_COUNT)).expect("few");
        format!("alter publication r_sel set table {}", selected(filter))
    }

    pub(super) fn change_partitions(&mut self) -> String {
        self.catalog.attached = !self.catalog.attached;
        if self.catalog.attached {
            format!("alter table r_root attach partition {SPARE} for values in (3)")
        } else {
            format!("alter table r_root detach partition {SPARE}")
        }
    }

    /// A column that every subscriber has before it comes.
    pub(super) fn add_column(&mut self, writer: usize) -> Step {
        self.columns += 1;
        let (table, number) = (self.any_table(), self.columns);
        let subscribers = format!("alter table {table} add x{number} int default {number}");
        let mut source = subscribers.clone();
        if table == "r_root" && !self.catalog.attached {
            // Or it could not come back.
            source += &format!("; alter table {SPARE} add x{number} int default {number}");
        }
        Step::Everywhere {
            writer,
            subscribers,
            source,
        }
    }
}
