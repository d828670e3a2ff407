//! Random interleavings of rows and definitions, and what follows from them: by the rule, and at a native walsender.

use std::collections::{BTreeMap, HashMap};

use super::super::selection_random::Random;

pub(super) const TABLES: &[&str] = &["a", "b", "c"];
pub(super) const PUBLICATIONS: usize = 3;

/// What a publication publishes of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Whole,
    /// Rows with an even id.
    Even,
    /// Two of three columns.
    Listed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    tables: BTreeMap<usize, How>,
    inserts: bool,
}

/// A row as a subscriber gets it: its table, its id, how many columns it has.
pub(super) type Row = (String, u32, usize);

#[derive(Clone, Debug)]
enum What {
    Row(usize, u32),
    Alter(Alter),
    /// Rows that no publication here has.
    Filler,
}

#[derive(Clone, Debug)]
struct Alter {
    publication: usize,
    next: Definition,
    /// It changes what counts for all its tables.
    options: bool,
}

#[derive(Clone, Debug)]
struct Event {
    /// Its place in WAL among all events and commits.
    place: u64,
    what: What,
}

#[derive(Clone, Debug, Default)]
struct Transaction {
    events: Vec<Event>,
    commit: Option<u64>,
}

/// Which session runs a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Writer(usize),
    /// A session for transactions of one statement.
    Other,
}

/// What ALTER PUBLICATION locks until its transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lock {
    Publication(usize),
    Table(usize),
}

/// What was done so far.
pub(super) struct History {
    transactions: Vec<Transaction>,
    place: u64,
    /// The last definition that any transaction made.
    latest: Vec<Definition>,
    /// Publications and tables that a transaction has locked by altering: for others they would wait.
    locked: HashMap<Lock, usize>,
    writers: Vec<Option<usize>>,
    prepared: Vec<usize>,
    /// Whether definitions are altered in transactions of their own only.
    alters_alone: bool,
}

pub(super) const WRITERS: usize = 4;

impl History {
    pub(super) fn new() -> Self {
        Self {
            transactions: Vec::new(),
            place: 0,
            latest: vec![Definition::initial(); PUBLICATIONS],
            locked: HashMap::new(),
            writers: vec![None; WRITERS],
            prepared: Vec::new(),
            alters_alone: false,
        }
    }

    /// One in which each definition has a position from which on it counts.
    pub(super) fn of_lone_alterations() -> Self {
        Self {
            alters_alone: true,
            ..Self::new()
        }
    }

    /// If the last statement altered a publication: which one, and what it publishes now, as `decctl publication` takes it.
    pub(super) fn altered_last(&self) -> Option<(usize, Vec<String>)> {
        let events = &self.transactions.last()?.events;
        match &events
            .last()
            .filter(|one| one.place + 1 == self.place)?
            .what
        {
            What::Alter(alter) => Some((alter.publication, alter.next.arguments())),
            What::Row(..) | What::Filler => None,
        }
    }

    /// The next statement.
    pub(super) fn step(&mut self, random: &mut Random) -> (By, String) {
        match random.below(8) {
            0 if !self.prepared.is_empty() => {
                let number = self.prepared.swap_remove(random.below(self.prepared.len()));
                self.commit(number);
                (By::Other, format!("commit prepared 'g{number}'"))
            }
            1 | 2 => {
                let number = self.begin();
                let sql = match random.below(2) {
                    0 => self.alter(number, random),
                    _ => None,
                };
                let sql = sql.unwrap_or_else(|| self.row(number, random));
                self.commit(number);
                (By::Other, sql)
            }
            _ => {
                let writer = random.below(WRITERS);
                (By::Writer(writer), self.write(writer, random))
            }
        }
    }

    fn write(&mut self, writer: usize, random: &mut Random) -> String {
        let Some(number) = self.writers[writer] else {
            let number = self.begin();
            self.writers[writer] = Some(number);
            return format!("begin; {}", self.row(number, random));
        };
        match random.below(12) {
            0 => {
                self.writers[writer] = None;
                self.commit(number);
                "commit".to_owned()
            }
            1 if self.prepared.len() < 4 => {
                self.writers[writer] = None;
                self.prepared.push(number);
                format!("prepare transaction 'g{number}'")
            }
            2 if !self.alters_alone => match self.alter(number, random) {
                Some(sql) => sql,
                None => self.row(number, random),
            },
            3 => {
                self.note(number, What::Filler);
                "insert into filler select repeat('x', 300) from generate_series(1, 400)".to_owned()
            }
            _ => self.row(number, random),
        }
    }

    /// Ends all that is open.
    pub(super) fn finish(&mut self) -> Vec<(By, String)> {
        let mut statements = Vec::new();
        for writer in 0..WRITERS {
            if let Some(number) = self.writers[writer].take() {
                self.commit(number);
                statements.push((By::Writer(writer), "commit".to_owned()));
            }
        }
        for number in std::mem::take(&mut self.prepared) {
            self.commit(number);
            statements.push((By::Other, format!("commit prepared 'g{number}'")));
        }
        statements
    }

    fn begin(&mut self) -> usize {
        self.transactions.push(Transaction::default());
        self.transactions.len() - 1
    }

    fn note(&mut self, number: usize, what: What) {
        self.place += 1;
        let place = self.place;
        self.transactions[number].events.push(Event { place, what });
    }

    fn commit(&mut self, number: usize) {
        self.place += 1;
        self.transactions[number].commit = Some(self.place);
        self.locked.retain(|_, by| *by != number);
    }

    fn row(&mut self, number: usize, random: &mut Random) -> String {
        let table = random.below(TABLES.len());
        let id = u32::try_from(self.place).unwrap();
        self.note(number, What::Row(table, id));
        format!("insert into {} values ({id}, {id}, 'v')", TABLES[table])
    }

    fn alter(&mut self, number: usize, random: &mut Random) -> Option<String> {
        let publication = random.below(PUBLICATIONS);
        let before = self.latest[publication].clone();
        let (next, change) = before.altered(random);
        let touched = before.tables.keys().chain(next.tables.keys());
        let locks = touched.map(|table| Lock::Table(*table));
        let locks: Vec<Lock> = locks.chain([Lock::Publication(publication)]).collect();
        let free = |lock| self.locked.get(lock).is_none_or(|by| *by == number);
        if !locks.iter().all(free) {
            return None;
        }
        self.locked
            .extend(locks.into_iter().map(|lock| (lock, number)));
        self.latest[publication] = next.clone();
        let alter = Alter {
            publication,
            options: before.inserts != next.inserts,
            next,
        };
        self.note(number, What::Alter(alter));
        Some(format!("alter publication p{publication} {change}"))
    }

    /// In commit order.
    fn committed(&self) -> Vec<(usize, &Transaction)> {
        let mut all: Vec<_> = self.transactions.iter().enumerate().collect();
        all.sort_by_key(|(_, one)| one.commit);
        all
    }

    /// The rule: what committed last before the change, and what its own transaction did before it.
    fn in_force(&self, publication: usize, number: usize, place: u64) -> Definition {
        let mut found = (0, Definition::initial());
        for (other, transaction) in self.transactions.iter().enumerate() {
            for event in &transaction.events {
                let What::Alter(alter) = &event.what else {
                    continue;
                };
                let own = (other == number).then_some(event.place);
                let since = own.or(transaction.commit).filter(|since| *since < place);
                // Of several alterations in one transaction the last one counts.
                if let Some(since) = since.filter(|since| *since >= found.0)
                    && alter.publication == publication
                {
                    found = (since, alter.next.clone());
                }
            }
        }
        found.1
    }

    /// The rows of each transaction that has some, in commit order.
    pub(super) fn by_the_rule(&self, publication: usize) -> Vec<Vec<Row>> {
        let rows = self.committed().into_iter().map(|(number, transaction)| {
            let events = transaction.events.iter();
            let rows = events.filter_map(|event| match event.what {
                What::Row(table, id) => self
                    .in_force(publication, number, event.place)
                    .row(table, id),
                _ => None,
            });
            rows.collect::<Vec<Row>>()
        });
        rows.filter(|rows| !rows.is_empty()).collect()
    }

    /// Whether a walsender may judge a row by another definition than the rule: it keeps what it found out about a relation
    /// until it hears of a change. So a row that is older than an alteration can be judged by it, if a transaction
    /// that committed between the alteration and the row's own wrote to the same table behind the alteration. What counts
    /// for all tables of a publication is kept apart from that: there a write to any table is enough.
    pub(super) fn cache_may_decide(&self, publication: usize, id: u32) -> bool {
        let table_of = |what: &What| match what {
            What::Row(table, _) => Some(*table),
            What::Alter(_) | What::Filler => None,
        };
        let is_it = |event: &&Event| matches!(event.what, What::Row(_, one) if one == id);
        let mut all = self.transactions.iter();
        let found = all.find_map(|one| Some((one.commit, one.events.iter().find(is_it)?)));
        let (committed, row) = found.unwrap();
        let between = |from: u64| {
            let all = self.transactions.iter();
            all.filter(move |one| one.commit > Some(from) && one.commit < committed)
        };
        between(row.place).any(|altering| {
            let altered = altering.commit.unwrap();
            let options = altering
                .events
                .iter()
                .filter_map(|event| match &event.what {
                    What::Alter(alter) if alter.publication == publication => Some(alter.options),
                    _ => None,
                });
            options.into_iter().any(|options| {
                let same = |event: &Event| {
                    let same = options || table_of(&event.what) == table_of(&row.what);
                    event.place > altered && same && !matches!(event.what, What::Alter(_))
                };
                between(altered).any(|one| one.events.iter().any(same))
            })
        })
    }
}

impl Definition {
    fn initial() -> Self {
        Self {
            tables: BTreeMap::from([(0, How::Whole)]),
            inserts: true,
        }
    }

    pub(super) const INITIAL: &str = "for table a";

    fn arguments(&self) -> Vec<String> {
        let publish = if self.inserts {
            "insert, update"
        } else {
            "update"
        };
        let tables = self.tables.iter();
        let tables = tables.flat_map(|(table, how)| ["--table".to_owned(), how.sql(*table)]);
        let mut arguments: Vec<String> = tables.collect();
        if arguments.is_empty() {
            arguments = ["--schema", "nothing"].map(str::to_owned).to_vec();
        }
        arguments.extend(["--publish", publish].map(str::to_owned));
        arguments
    }

    fn row(&self, table: usize, id: u32) -> Option<Row> {
        let columns = match self.tables.get(&table).filter(|_| self.inserts)? {
            How::Even if !id.is_multiple_of(2) => return None,
            How::Even | How::Whole => 3,
            How::Listed => 2,
        };
        Some((TABLES[table].to_owned(), id, columns))
    }

    /// Another one, and the command that leads to it.
    fn altered(&self, random: &mut Random) -> (Self, String) {
        let mut next = self.clone();
        let command = match random.below(4) {
            0 => {
                next.inserts = !self.inserts;
                let actions = if next.inserts {
                    "insert, update"
                } else {
                    "update"
                };
                format!("set (publish = '{actions}')")
            }
            1 => {
                let mut tables = BTreeMap::new();
                for _ in 0..=random.below(2) {
                    tables.insert(random.below(TABLES.len()), How::random(random));
                }
                let list: Vec<String> = tables.iter().map(|(table, how)| how.sql(*table)).collect();
                next.tables = tables;
                format!("set table {}", list.join(", "))
            }
            _ => {
                let table = random.below(TABLES.len());
                if next.tables.remove(&table).is_some() {
                    format!("drop table {}", TABLES[table])
                } else {
                    let how = How::random(random);
                    next.tables.insert(table, how);
                    format!("add table {}", how.sql(table))
                }
            }
        };
        (next, command)
    }
}

impl How {
    fn random(random: &mut Random) -> Self {
        [Self::Whole, Self::Even, Self::Listed][random.below(3)]
    }

    fn sql(self, table: usize) -> String {
        let name = TABLES[table];
        match self {
            Self::Whole => name.to_owned(),
            Self::Even => format!("{name} where (id % 2 = 0)"),
            Self::Listed => format!("{name} (id, n)"),
        }
    }
}
