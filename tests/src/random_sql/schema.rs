//! The tables.

/// The tables that are compared.
pub const TABLES: &[&str] = &[
    "r_plain", "r_full", "r_index", "r_toast", "r_typed", "r_root", "r_cols", "r_rows",
];

/// Those of the publication `r_pub`, which publishes them whole.
pub(super) const WHOLE: usize = 5;

/// Where `r_root` has a partition that comes and goes.
pub(super) const SPARE: &str = "r_spare";

/// What there is at the beginning, at the source.
pub fn schema() -> String {
    format!(
        "{COMMON};
         create table r_root (id int, k int, n int, v text) partition by list (k);
         alter table r_root replica identity full;
         create table r_root_0 partition of r_root for values in (0);
         create table r_root_1 (v text, n int, k int, id int);
         alter table r_root attach partition r_root_1 for values in (1);
         create table r_root_2 partition of r_root for values in (2) partition by list (n);
         alter table r_root_2 replica identity full;
         create table r_root_2_rest partition of r_root_2 default;
         create table {SPARE} (k int, id int, n int, v text);
         alter table r_root_0 replica identity full;
         alter table r_root_1 replica identity full;
         alter table r_root_2_rest replica identity full;
         alter table {SPARE} replica identity full;
         create publication r_pub for table {};
         create publication r_sel for table {} with (publish_via_partition_root)",
        TABLES[..WHOLE].join(", "),
        selected(0)
    )
}

/// What there is at every subscriber: one table in the place of the partitions.
pub fn subscriber_schema() -> String {
    format!("{COMMON}; create table r_root (id int, k int, n int, v text)")
}

/// Nothing has a key whose rows a publication may come to leave out: what stays at a subscriber would be in the way later.
const COMMON: &str = "
     create type r_mood as enum ('sad', 'ok', 'happy');
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
     create table r_typed (id int primary key, m r_mood, p r_pair, q r_positive, i int[], t text[], j jsonb, u uuid,
         dt date, iv interval, ok bool);
     create table r_cols (id int primary key, a text, b int, c text);
     create table r_rows (id int, n int, v text);
     alter table r_rows replica identity full";

/// Filters of `r_rows`; the last one is for the source to evaluate.
const FILTERS: &[&str] = &[
    "n % 3 <> 0",
    "n is null or n > 200",
    "v like '%7%' and id % 2 = 0",
    "n % 4 = 1 or v is null",
    "v ~ '[13579]$'",
];

/// How many there are.
pub(super) const FILTERS_COUNT: u64 = FILTERS.len() as u64;

/// The tables of the publication `r_sel`, with one of the filters.
pub(super) fn selected(filter: usize) -> String {
    format!(
        "r_root where (n % 5 <> 0), r_cols (a, id) where (id % 6 <> 0), r_rows where ({})",
        FILTERS[filter]
    )
}
