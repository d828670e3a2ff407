//! Statements that write.

use std::fmt::Write as _;

use super::schema::TABLES;
use super::{WRITERS, Workload};

impl Workload {
    pub(super) fn any_table(&mut self) -> &'static str {
        let place = self.random.below(TABLES.len() as u64);
        TABLES[usize::try_from(place).expect("few")]
    }

    /// Rows of writer `w` have ids that are `w` modulo [`WRITERS`].
    pub(super) fn dml(&mut self, writer: usize) -> String {
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
            "r_root" => {
                let partitions = if self.catalog.attached { 4 } else { 3 };
                format!(
                    "select g, g % {partitions}, nullif({salt} % 50, 0) + g, 'p{salt}' from {ids}"
                )
            }
            "r_cols" => format!(
                "select g, 'a{salt}', g, 'c' from {ids} on conflict (id) do update set a = 'again', b = {salt}"
            ),
            "r_rows" => format!(
                "select g, nullif({salt} % 300, 7) + g % 4, case when g % 3 = 0 then null else 'v' || g * {salt} end from {ids}"
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
            ("r_root", 0) => "k = (k + 1) % 3, n = n + 1".to_owned(),
            ("r_root", _) => format!("n = {salt}, v = 'u{salt}'"),
            ("r_cols", 0) => format!("id = id + {}", 3000 * WRITERS),
            ("r_cols", _) => format!("a = 'u{salt}', b = {salt}"),
            ("r_rows", 0) => format!("n = {salt} % 7"),
            ("r_rows", 1) => "n = null".to_owned(),
            ("r_rows", _) => format!("v = nullif('v{salt}', 'v' || id)"),
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
