//! A workload out of a seed: the same seed, the same statements.
//!
//! Several writers, each a session with its own transaction, take turns in one order. Each has rows of its own, so that
//! none waits for another's; what waits all the same (DDL) gives up after `lock_timeout` and is rolled back.

mod exclusive;
mod random;
mod schema;
mod statements;

use self::exclusive::Catalog;
pub use self::random::Random;
pub use self::schema::{TABLES, schema, subscriber_schema};

/// Sessions that write.
pub const WRITERS: usize = 3;

/// Transactions that change definitions, one after the other.
const EXCLUSIVE: usize = 6;

/// One statement, and where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// In a writer's session.
    Writer(usize, String),
    /// At every subscriber first, then in a writer's session: what both must have.
    Everywhere {
        /// Whose session.
        writer: usize,
        /// At the subscribers.
        subscribers: String,
        /// At the source.
        source: String,
    },
}

/// Makes statements.
#[derive(Debug)]
pub struct Workload {
    random: Random,
    writers: [Writer; WRITERS],
    /// Transactions at the end of every other round during which nothing else is open.
    exclusive: usize,
    gids: u64,
    rounds: u64,
    prepared: Vec<String>,
    columns: u64,
    catalog: Catalog,
}

#[derive(Clone, Copy, Debug, Default)]
struct Writer {
    in_transaction: bool,
    savepoints: u64,
    /// A transaction with an origin can't be told from another inside.
    origin: bool,
}

impl Workload {
    /// The same, but for most of the transactions that change definitions.
    #[must_use]
    pub fn with_fewer_definitions(mut self) -> Self {
        self.exclusive = 0;
        self
    }

    /// The workload of a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            writers: [Writer::default(); WRITERS],
            exclusive: EXCLUSIVE,
            gids: 0,
            rounds: 0,
            prepared: Vec::new(),
            columns: 0,
            catalog: Catalog {
                full_published: true,
                attached: false,
            },
        }
    }

    /// The next statements.
    pub fn round(&mut self, statements: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        while steps.len() < statements {
            steps.extend(self.step());
        }
        for writer in 0..WRITERS {
            if self.writers[writer].in_transaction {
                steps.push(Step::Writer(writer, self.end(writer)));
            }
        }
        self.rounds += 1;
        if self.rounds % 2 == 1 {
            steps.extend(self.finish());
            for writer in (0..WRITERS).cycle().take(self.exclusive) {
                steps.extend(self.exclusive(writer));
            }
            if !self.catalog.full_published {
                steps.push(Step::Writer(0, self.change_publication()));
            }
        }
        // Some stay prepared over rounds, but not for ever.
        while self.prepared.len() > 2 {
            let gid = self.prepared.remove(0);
            steps.push(Step::Writer(0, format!("commit prepared '{gid}'")));
        }
        steps
    }

    /// The prepared transactions that are left, decided.
    pub fn finish(&mut self) -> Vec<Step> {
        let gids = std::mem::take(&mut self.prepared);
        gids.into_iter()
            .map(|gid| Step::Writer(0, format!("commit prepared '{gid}'")))
            .collect()
    }

    fn step(&mut self) -> Vec<Step> {
        let writer = usize::try_from(self.random.below(WRITERS as u64)).expect("few");
        let state = self.writers[writer];
        if !state.in_transaction {
            return self.outside(writer);
        }
        let sql = match self.random.below(14) {
            0 | 1 => self.end(writer),
            2 => {
                self.writers[writer].savepoints += 1;
                format!("savepoint s{}", state.savepoints)
            }
            3 if state.savepoints > 0 => {
                let to = self.random.below(state.savepoints);
                self.writers[writer].savepoints = to;
                format!("rollback to s{to}; release s{to}")
            }
            4 => format!(
                "select pg_logical_emit_message({}, 'r', 'm{}')",
                self.random.one_in(2),
                self.random.below(1000)
            ),
            _ => self.dml(writer),
        };
        vec![Step::Writer(writer, sql)]
    }

    fn outside(&mut self, writer: usize) -> Vec<Step> {
        // What would act in the middle of a transaction that is open: pgoutput itself is not exact there.
        let alone = self.prepared.is_empty() && !self.writers.iter().any(|one| one.in_transaction);
        let sql = match self.random.below(24) {
            0 if alone => return vec![self.add_column(writer)],
            1 if !self.prepared.is_empty() => {
                let place = self.random.below(self.prepared.len() as u64);
                let gid = self.prepared.remove(usize::try_from(place).expect("few"));
                let word = if self.random.one_in(3) {
                    "rollback"
                } else {
                    "commit"
                };
                format!("{word} prepared '{gid}'")
            }
            2 if alone => self.change_publication(),
            20 if alone => self.change_filter(),
            21 if alone => self.change_partitions(),
            22 | 23 if alone => return self.exclusive(writer),
            3 => format!("analyze {}", self.any_table()),
            4 => "alter table r_toast alter n set default 7".to_owned(),
            5 => format!("truncate {}", self.any_table()),
            6 => "truncate r_full, r_typed".to_owned(),
            7..=11 => self.dml(writer),
            _ => {
                self.writers[writer].in_transaction = true;
                if self.random.one_in(6) {
                    self.writers[writer].origin = true;
                    return vec![Step::Writer(
                        writer,
                        "begin; select pg_replication_origin_session_setup('r_elsewhere'); \
                         select pg_replication_origin_xact_setup('0/1234', '2024-01-01 00:00:00+00')"
                            .to_owned(),
                    )];
                }
                "begin".to_owned()
            }
        };
        vec![Step::Writer(writer, sql)]
    }

    fn end(&mut self, writer: usize) -> String {
        let state = std::mem::take(&mut self.writers[writer]);
        let reset = if state.origin {
            "; select pg_replication_origin_session_reset()"
        } else {
            ""
        };
        match self.random.below(6) {
            0 => format!("rollback{reset}"),
            1 if self.prepared.len() < 3 && !state.origin => {
                self.gids += 1;
                let gid = format!("r{}", self.gids);
                self.prepared.push(gid.clone());
                format!("prepare transaction '{gid}'")
            }
            _ => format!("commit{reset}"),
        }
    }
}
