//! What a subscriber must get, worked out transaction by transaction and without blocks, on paths that have nothing in
//! common with the emitter's.

use std::collections::{BTreeMap, HashMap};

use pg_proto::Lsn;
use pg_proto::pgoutput::Message;
use storage_format::catalog::Publication;
use storage_format::record::RecordKind;

use super::messages as pg;
use super::{Action, Item, TestLog, is_third, publication_states};
use crate::emit::EmitOptions;
use crate::selection::{Publications, SelectionSpec};

/// A message that a subscriber must get, with the event's number in its transaction.
pub(crate) type Expected = (Vec<u8>, u64);

/// A log written from actions, and what was written.
pub(crate) struct Model {
    pub(crate) log: TestLog,
    written: Vec<Written>,
    /// Positions between transactions.
    pub(crate) boundaries: Vec<Lsn>,
}

enum Written {
    Transaction {
        commit_lsn: Lsn,
        end_lsn: Lsn,
        origin: bool,
        items: Vec<Done>,
    },
    Lone(Lsn, Vec<u8>),
}

/// An item as it was written.
enum Done {
    Row(RecordKind, u8, u32, Vec<u8>),
    Truncate(Vec<u8>),
    Message(Vec<u8>),
    Relation(u8, u8),
    Type(u8),
    Publications(usize),
    /// What stands before was written at this position, before other commits.
    CaughtUp(Lsn),
}

impl Model {
    /// Writes a log. Every relation is described before its first change, as a source does.
    pub(crate) fn write(actions: &[Action]) -> Self {
        Self::write_step_by_step(TestLog::new(), actions, |_| ())
    }

    /// The same, and calls `after` whenever something was written.
    pub(crate) fn write_step_by_step(
        log: TestLog,
        actions: &[Action],
        mut after: impl FnMut(&mut TestLog),
    ) -> Self {
        let mut model = Self {
            log,
            written: Vec::new(),
            boundaries: Vec::new(),
        };
        let mut described = [false; 4];
        let mut id = 0;
        for action in actions {
            let log = &mut model.log;
            match action {
                Action::Transaction {
                    origin,
                    overtaken,
                    items,
                } => {
                    let begun = (*origin, *overtaken);
                    let done = write_transaction(log, begun, items, &mut described, &mut id);
                    model.written.push(done);
                }
                Action::LoneMessage => {
                    id += 1;
                    let (lsn, payload) = log.lone_message(id);
                    model.written.push(Written::Lone(lsn, payload));
                }
                Action::Progress => log.progress(),
                Action::FinishSegment => log.finish_segment(),
                Action::Cut => log.cut(),
            }
            after(&mut model.log);
        }
        model.log.sync();
        model.boundaries = model
            .written
            .iter()
            .map(|one| match one {
                Written::Transaction { end_lsn, .. } => *end_lsn,
                Written::Lone(lsn, _) => *lsn,
            })
            .collect();
        model
    }

    /// Commit positions of all transactions.
    pub(crate) fn commits(&self) -> Vec<Lsn> {
        let commits = self.written.iter().filter_map(|one| match one {
            Written::Transaction { commit_lsn, .. } => Some(*commit_lsn),
            Written::Lone(..) => None,
        });
        commits.collect()
    }

    /// What a subscriber gets.
    pub(crate) fn expected(&self, spec: &SelectionSpec, options: &EmitOptions) -> Vec<Expected> {
        let mut reader = Reader {
            spec,
            options,
            publications: Vec::new(),
            definitions: Vec::new(),
            versions: BTreeMap::new(),
            type_version: None,
            given: HashMap::new(),
        };
        let mut out = Vec::new();
        for written in &self.written {
            match written {
                Written::Lone(lsn, payload) => {
                    if options.end.is_some_and(|end| *lsn > end) {
                        break;
                    }
                    if options.messages && *lsn > options.start {
                        out.push((payload.clone(), 0));
                    }
                }
                Written::Transaction {
                    commit_lsn,
                    end_lsn,
                    origin,
                    items,
                } => {
                    if options.end.is_some_and(|end| *commit_lsn >= end) {
                        break;
                    }
                    let sends =
                        *commit_lsn >= options.start && !(options.local_origin_only && *origin);
                    let body = reader.transaction(items, sends, *commit_lsn);
                    if body.is_empty() {
                        continue;
                    }
                    let begin = Message::Begin(pg::begin(*commit_lsn));
                    out.push((pg::encode(&begin), 0));
                    if *origin {
                        out.push((pg::origin("elsewhere"), 0));
                    }
                    out.extend(body);
                    let commit = Message::Commit(pg::commit(*commit_lsn, *end_lsn));
                    out.push((pg::encode(&commit), 0));
                }
            }
        }
        out
    }
}

fn write_transaction(
    log: &mut TestLog,
    (origin, overtaken): (bool, usize),
    items: &[Item],
    described: &mut [bool; 4],
    id: &mut u32,
) -> Written {
    let commit_lsn = log.begin_before(overtaken, items.len());
    let mut done = Vec::new();
    if origin {
        log.origin("elsewhere");
    }
    let mut describe = |log: &mut TestLog, done: &mut Vec<Done>, tables: &[u8]| {
        for &table in tables {
            if !std::mem::replace(&mut described[usize::from(table)], true) {
                log.named_type(0);
                log.relation(table, 0);
                done.extend([Done::Type(0), Done::Relation(table, 0)]);
            }
        }
    };
    for item in items {
        *id += 1;
        if !matches!(item, Item::Row(..) | Item::Cut) {
            done.extend(log.catch_up().map(Done::CaughtUp));
        }
        match item {
            Item::Row(kind, table) => {
                describe(log, &mut done, &[*table]);
                let payload = log.row(*kind, *table, *id);
                done.push(Done::Row(*kind, *table, *id, payload));
            }
            Item::Truncate(tables) => {
                describe(log, &mut done, tables);
                log.truncate(tables);
                done.push(Done::Truncate(tables.clone()));
            }
            Item::Message => done.push(Done::Message(log.message(*id))),
            Item::Relation(table, version) => {
                describe(log, &mut done, &[*table]);
                log.relation(*table, *version);
                done.push(Done::Relation(*table, *version));
            }
            Item::Type(version) => {
                log.named_type(*version);
                done.push(Done::Type(*version));
            }
            Item::Publications(state) => {
                log.publications(&publication_states()[*state]);
                done.push(Done::Publications(*state));
            }
            Item::Cut => log.cut(),
        }
    }
    done.extend(log.catch_up().map(Done::CaughtUp));
    Written::Transaction {
        commit_lsn,
        end_lsn: log.commit(),
        origin,
        items: done,
    }
}

/// A subscriber's state.
struct Reader<'a> {
    spec: &'a SelectionSpec,
    options: &'a EmitOptions,
    /// Those that judge the item at hand.
    publications: Vec<Publication>,
    /// With the commits that made them.
    definitions: Vec<(Lsn, Vec<Publication>)>,
    versions: BTreeMap<u8, u8>,
    type_version: Option<u8>,
    /// Versions of relation and type that the subscriber was given last.
    given: HashMap<u8, (u8, Option<u8>, bool)>,
}

impl Reader<'_> {
    /// Puts the publications in force that judge a row at `lsn`; behind all commits, if there is none.
    fn judge_at(&mut self, lsn: Option<Lsn>) {
        let mut newest_first = self.definitions.iter().rev();
        let found = newest_first.find(|(since, _)| lsn.is_none_or(|lsn| *since <= lsn));
        self.publications = found.map_or_else(Vec::new, |(_, state)| state.clone());
    }

    /// A transaction states the publications.
    fn state(&mut self, state: &[Publication], commit_lsn: Lsn) {
        self.publications = state.to_vec();
        let known = self.definitions.last();
        if known.map_or(&[][..], |(_, known)| known) == state {
            return;
        }
        // What is stated first counts from ever.
        let since = known.map_or(Lsn(0), |_| commit_lsn);
        self.definitions.retain(|(one, _)| *one != since);
        self.definitions.push((since, state.to_vec()));
    }

    fn transaction(&mut self, items: &[Done], sends: bool, commit_lsn: Lsn) -> Vec<Expected> {
        let mut out = Vec::new();
        let mut ordinal = 0;
        self.judge_at(items.iter().find_map(|item| match item {
            Done::CaughtUp(lsn) => Some(*lsn),
            _ => None,
        }));
        for item in items {
            let number = ordinal;
            match item {
                Done::Row(kind, table, id, payload) => {
                    ordinal += 1;
                    if sends && self.passes(*table, *kind, Some(*id)) {
                        self.give(*table, &mut out);
                        let payload = if self.is_listed(*table) {
                            pg::listed(payload)
                        } else {
                            payload.clone()
                        };
                        out.push((payload, number));
                    }
                }
                Done::Truncate(tables) => {
                    ordinal += 1;
                    let passing: Vec<u8> = tables
                        .iter()
                        .copied()
                        .filter(|table| sends && self.passes(*table, RecordKind::Truncate, None))
                        .collect();
                    if !passing.is_empty() {
                        for table in &passing {
                            self.give(*table, &mut out);
                        }
                        out.push((pg::truncate(&passing), number));
                    }
                }
                Done::Message(payload) => {
                    ordinal += 1;
                    if sends && self.options.messages {
                        out.push((payload.clone(), number));
                    }
                }
                Done::Relation(table, version) => {
                    self.versions.insert(*table, *version);
                }
                Done::Type(version) => self.type_version = Some(*version),
                Done::Publications(state) => {
                    self.state(&publication_states()[*state], commit_lsn);
                }
                Done::CaughtUp(_) => self.judge_at(None),
            }
        }
        out
    }

    fn give(&mut self, table: u8, out: &mut Vec<Expected>) {
        let version = self.versions[&table];
        if self.is_listed(table) {
            // What is left does not show the second column's name.
            let now = (if version == 2 { 2 } else { 0 }, None, true);
            if self.given.insert(table, now) != Some(now) {
                out.push((pg::relation_listed(table, version), 0));
            }
            return;
        }
        let now = (version, self.type_version, false);
        if self.given.insert(table, now) != Some(now) {
            if let Some(version) = self.type_version {
                out.push((pg::named_type(version), 0));
            }
            out.push((pg::relation(table, version), 0));
        }
    }

    /// Whether the first column alone is published.
    fn is_listed(&self, table: u8) -> bool {
        let Publications::Named(names) = &self.spec.publications else {
            return false;
        };
        let named = self
            .publications
            .iter()
            .filter(|one| names.contains(&one.name));
        let mut tables = named.flat_map(|one| &one.tables);
        tables.any(|one| one.relation == pg::relation_oid(table) && one.columns.is_some())
    }

    /// A TRUNCATE has no `id`.
    fn passes(&self, table: u8, kind: RecordKind, id: Option<u32>) -> bool {
        let name = pg::name_of(table, self.versions[&table]);
        let schema = pg::schema_of(table);
        let mut tables = self.spec.tables.iter();
        if !self.spec.tables.is_empty()
            && !tables.any(|one| one.schema == schema && one.name == name)
        {
            return false;
        }
        let Publications::Named(names) = &self.spec.publications else {
            return true;
        };
        self.publications.iter().any(|publication| {
            let listed = publication.tables.iter();
            let mut listed = listed.filter(|one| one.relation == pg::relation_oid(table));
            let has = publication.all_tables
                || publication.schemas.contains(&schema)
                || listed.any(|one| {
                    let filtered = one.row_filter.is_some();
                    !filtered || id.is_none_or(is_third)
                });
            let actions = publication.actions;
            let action = match kind {
                RecordKind::Insert => actions.insert,
                RecordKind::Update => actions.update,
                RecordKind::Delete => actions.delete,
                _ => actions.truncate,
            };
            names.contains(&publication.name) && has && action
        })
    }
}
