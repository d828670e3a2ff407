//! A workload out of a seed: the same seed, the same statements.
//!
//! Several writers, each a session with its own transaction, take turns in one order. Each has rows of its own, so that
//! none waits for another's; what waits all the same (DDL) gives up after `lock_timeout` and is rolled back.

use std::fmt::Write as _;

/// Sessions that write.
pub const WRITERS: usize = 3;

/// The tables of [`schema`].
pub const TABLES: &[&str] = &["r_plain", "r_full", "r_index", "r_toast", "r_typed"];

/// What there is at the beginning, at the source and at every subscriber.
pub fn schema() -> &'static str {
    "create type r_mood as enum ('sad', 'ok', 'happy');
     create type r_pair as (x int, y text);
     create domain r_positive as int check (value > 0);
     create table r_plain (id int primary key, a text, b numeric, c timestamptz, d float8, e bytea);
     create table r_full (id int, v text, w int);
     alter table r_full replica identity full;
     create table r_index (id int, k int not null, v text);
     create unique index r_index_key on r_index (k);
     alter table r_index replica identity using index r_index_key;
     create table r_toast (id int primary key, big text, n int);
     alter table r_toast alter big set storage external;
     create table r_typed (id int primary key, m r_mood, p r_pair, q r_positive, i int[], t text[], j jsonb, u uuid, \
         dt date, iv interval, ok bool)"
}

/// One statement, and where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// In a writer's session.
    Writer(usize, String),
    /// At every subscriber first, then at the source: what both must have.
    Everywhere(String),
}

/// Numbers out of a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// Makes statements.
#[derive(Debug)]
pub struct Workload {
    random: Random,
    writers: [Writer; WRITERS],
    gids: u64,
    prepared: Vec<String>,
    columns: u64,
    published: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Writer {
    in_transaction: bool,
    savepoints: u64,
    /// A transaction with an origin can't be told from another inside.
    origin: bool,
}

impl Workload {
    /// The workload of a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            writers: [Writer::default(); WRITERS],
            gids: 0,
            prepared: Vec::new(),
            columns: 0,
            published: true,
        }
    }

    /// The next statements.
    pub fn round(&mut self, statements: usize) -> Vec<Step> {
        let mut steps: Vec<Step> = (0..statements).map(|_| self.step()).collect();
        for writer in 0..WRITERS {
            if self.writers[writer].in_transaction {
                steps.push(Step::Writer(writer, self.end(writer)));
            }
        }
        // Some stay prepared over rounds, but not for ever.
        while self.prepared.len() > 2 {
            let gid = self.prepared.remove(0);
            steps.push(Step::Writer(0, format!("commit prepared '{gid}'")));
        }
        if !self.published && self.prepared.is_empty() {
            self.published = true;
            steps.push(Step::Writer(
                0,
                "alter publication r_pub add table r_full".to_owned(),
            ));
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

    fn step(&mut self) -> Step {
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
        Step::Writer(writer, sql)
    }

    fn outside(&mut self, writer: usize) -> Step {
        // What would act in the middle of a transaction that is open: pgoutput itself is not exact there.
        let alone = self.prepared.is_empty() && !self.writers.iter().any(|one| one.in_transaction);
        let sql = match self.random.below(20) {
            0 if alone => {
                self.columns += 1;
                let (table, number) = (self.any_table(), self.columns);
                return Step::Everywhere(format!(
                    "alter table {table} add x{number} int default {number}"
                ));
            }
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
            2 if alone => {
                self.published = !self.published;
                let word = if self.published { "add" } else { "drop" };
                format!("alter publication r_pub {word} table r_full")
            }
            3 => format!("analyze {}", self.any_table()),
            4 => "alter table r_toast alter n set default 7".to_owned(),
            5 => format!("truncate {}", self.any_table()),
            6 => "truncate r_full, r_typed".to_owned(),
            7..=11 => self.dml(writer),
            _ => {
                self.writers[writer].in_transaction = true;
                if self.random.one_in(6) {
                    self.writers[writer].origin = true;
                    return Step::Writer(
                        writer,
                        "begin; select pg_replication_origin_session_setup('r_elsewhere'); \
                         select pg_replication_origin_xact_setup('0/1234', '2024-01-01 00:00:00+00')"
                            .to_owned(),
                    );
                }
                "begin".to_owned()
            }
        };
        Step::Writer(writer, sql)
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

    fn any_table(&mut self) -> &'static str {
        let place = self.random.below(TABLES.len() as u64);
        TABLES[usize::try_from(place).expect("few")]
    }

    /// Rows of writer `w` have ids that are `w` modulo [`WRITERS`].
    fn dml(&mut self, writer: usize) -> String {
        let table = self.any_table();
        let id = self.random.below(60) * WRITERS as u64 + writer as u64;
        // Now and then so much that it is streamed.
        let rows = if self.random.one_in(25) {
            1500
        } else {
            1 + self.random.below(4)
        };
        let last = id + (rows - 1) * WRITERS as u64;
        let ids = format!("generate_series({id}, {last}, {WRITERS}) g");
        match self.random.below(8) {
            0..=3 => self.insert(table, &ids),
            4 | 5 => {
                let set = self.assignment(table);
                format!(
                    "update {table} set {set} where id between {id} and {last} and id % {WRITERS} = {writer}"
                )
            }
            6 => format!(
                "delete from {table} where id between {id} and {last} and id % {WRITERS} = {writer}"
            ),
            _ => format!("delete from {table} where id = {id}"),
        }
    }

    fn insert(&mut self, table: &str, ids: &str) -> String {
        let salt = self.random.below(1_000_000);
        let mut sql = format!("insert into {table} ");
        let values = match table {
            "r_plain" => format!(
                "(id, a, b, c, d, e) select g, 'a' || g * {salt}, {salt} / 7.0 * g, \
                 '2024-01-01 00:00:00+00'::timestamptz + g * interval '1.5 hours', {salt} / 3.0::float8, \
                 decode(md5((g + {salt})::text), 'hex') from {ids} on conflict (id) do update set a = 'again {salt}'"
            ),
            "r_full" => {
                format!("select g, repeat('v{salt}', 1 + g % 3), nullif(g % 5, 0) from {ids}")
            }
            // The key is its writer's, too, so that nobody waits for somebody else's.
            "r_index" => format!("select g, g, 'i{salt}' from {ids} on conflict do nothing"),
            "r_toast" => format!(
                "select g, case when g % 2 = 0 then (select string_agg(md5((i + {salt})::text), '') from generate_series(1, 90) i) end, \
                 {salt} from {ids} on conflict (id) do update set n = excluded.n"
            ),
            _ => format!(
                "select g, (array['sad','ok','happy']::r_mood[])[1 + g % 3], row(g, 'p \"{salt}')::r_pair, g + 1, \
                 array[g, null, {salt}], array['a,b', null, 'q\"{salt}'], jsonb_build_object('k', g), \
                 md5((g + {salt})::text)::uuid, '2000-02-29'::date + g, g * interval '1 day 2 hours', g % 2 = 0 from {ids} \
                 on conflict (id) do update set ok = not r_typed.ok"
            ),
        };
        // Writing to a string does not fail.
        let _ = write!(sql, "{values}");
        sql
    }

    fn assignment(&mut self, table: &str) -> String {
        let salt = self.random.below(1_000_000);
        match (table, self.random.below(3)) {
            ("r_plain", 0) => format!("a = null, d = {salt}"),
            ("r_plain", 1) => format!("b = -{salt}.00, c = 'infinity'"),
            ("r_plain", _) => format!("id = id + {}", 3000 * WRITERS),
            ("r_full", _) => format!("v = 'u{salt}', w = nullif({salt} % 4, 0)"),
            ("r_index", 0) => format!("v = 'u{salt}'"),
            ("r_index", _) => format!("k = k + {}", 100_000 * WRITERS),
            ("r_toast", 0) => format!("big = repeat('u{salt}', 700)"),
            ("r_toast", _) => format!("n = {salt}"),
            (_, 0) => format!("j = '{{\"u\": [{salt}, null]}}', i = '{{{{1,2}},{{3,{salt}}}}}'"),
            (_, 1) => "m = null, p = null, iv = '-1 mon +2 days'".to_owned(),
            _ => format!("q = {salt} + 1, t = '{{}}'"),
        }
    }
}
