"""What is recorded: fixed SQL which makes pgoutput send every kind of message it has.

A step is SQL for one session, or WAIT: then all recorders must have received what is in the WAL so far. It is
needed where a transaction must be seen while it is open, since version 18 does not stream aborted ones.
"""

WAIT = object()

TABLES = """
    create table plain (id int primary key, a text, b numeric(12,3), c timestamptz, d bool, e bytea);
    create table full_identity (id int, v text, big text);
    alter table full_identity replica identity full;
    create table index_identity (id int primary key, k1 int not null, k2 text not null, v text);
    create unique index index_identity_key on index_identity (k2, k1);
    alter table index_identity replica identity using index index_identity_key;
    create table toasted (id int primary key, big text, n int);
    alter table toasted alter big set storage external;
    create table narrow (id int primary key, filler text generated always as (repeat('x', 500)) stored);
    create table parent (id int primary key, v text);
    create table child (id int primary key, parent int references parent, v text);
    create schema "Odd Schema";
    create table "Odd Schema"."Tab ""le" ("Col umn" int primary key, "select" text);
    create type mood as enum ('sad', 'ok', 'happy');
    create type pair as (x int, y text);
    create domain positive as int check (value > 0);
    create table typed (id positive primary key, m mood, p pair, ms mood[], js jsonb, ia int[], r int4range, u uuid);
    create table parted (id int, region text, v text, primary key (id, region)) partition by list (region);
    create table parted_east partition of parted for values in ('east');
    create table parted_west (v text, dropped int, region text not null, id int not null);
    alter table parted_west drop column dropped;
    alter table parted attach partition parted_west for values in ('west');
    create table no_columns ();
    alter table no_columns replica identity full;
    create publication everything for all tables;
"""

# Publications with filters, column lists and partition roots exist from version 15 on.
PUBLICATIONS_15 = """
    create publication filtered for table plain (id, a) where (id % 2 = 0), table parted where (id <> 3)
      with (publish_via_partition_root = true);
    create publication odd_schema for tables in schema "Odd Schema";
"""

PUBLICATIONS_18 = """
    create table generated (id int primary key, v int, twice int generated always as (v * 2) stored);
    create publication generated_columns for table generated with (publish_generated_columns = stored);
"""

ORDINARY = [
    "insert into plain select g, 'row ' || g, g * 1.5, '2024-02-29 12:34:56.789+02', g % 2 = 0, decode(md5(g::text), 'hex')"
    " from generate_series(1, 20) g",
    "insert into plain values (100, null, null, null, null, null), (101, '', 'NaN', 'infinity', true, ''),"
    " (102, E'tab\\tquote''\\\\ \\u00e9\\u4e16\\U0001f600', -0.001, '-infinity', false, '\\x00ff')",
    "update plain set a = a || '!' where id <= 5",
    "update plain set id = id + 1000 where id in (6, 7)",
    "delete from plain where id in (1, 100)",
    "insert into plain values (2, 'conflict') on conflict (id) do update set a = excluded.a",
    "insert into full_identity select g, 'v' || g, repeat(md5(g::text), 80) from generate_series(1, 3) g",
    "update full_identity set v = null where id = 1",
    "delete from full_identity where id = 2",
    "insert into index_identity select g, g * 10, 'key ' || g, 'v' from generate_series(1, 4) g",
    "update index_identity set v = 'w' where id = 1",
    "update index_identity set k2 = 'moved' where id = 2",
    "update index_identity set id = 50 where id = 3",
    "delete from index_identity where id = 4",
    "insert into toasted select g, string_agg(md5((g * i)::text), ''), g from generate_series(1, 2) g,"
    " generate_series(1, 150) i group by g",
    "update toasted set n = n + 1",
    "update toasted set big = 'short' where id = 2",
    "insert into \"Odd Schema\".\"Tab \"\"le\" values (1, 'x'), (2, null)",
    "insert into typed values (1, 'ok', row(1, 'one, \"two\"'), '{sad,happy}', '{\"a\": [1, null]}', '{{1,2},{3,4}}',"
    " '[1,10)', '00000000-0000-4000-8000-000000000001'), (2, null, null, '{}', 'null', '{}', 'empty', null)",
    "update typed set m = 'happy', p = row(null, null)::pair where id = 1",
    "insert into parted values (1, 'east', 'a'), (2, 'west', 'b'), (3, 'east', 'hidden')",
    "update parted set region = 'west' where id = 1",
    "delete from parted where id = 2",
    "insert into no_columns default values",
    "delete from no_columns",
    "begin; savepoint a; insert into plain values (200); rollback to a; insert into plain values (201); commit",
    "begin; insert into parent values (1, 'p'); insert into child values (1, 1, 'c'); insert into plain values (202); commit",
    "truncate parent, child, typed",
    "insert into parent values (2, 'p'); insert into child values (2, 2, 'c')",
    "truncate parent restart identity cascade",
    "begin; insert into plain values (300); rollback",
    # The shape of a table changes before, between and inside transactions.
    "alter table plain add f int default 7",
    "insert into plain (id, f) values (400, 1)",
    "begin; insert into plain (id) values (401); alter table plain drop column b; insert into plain (id) values (402); commit",
    "alter table plain rename a to renamed",
    "update plain set renamed = 'after' where id = 402",
    "begin; create table made_inside (id int primary key); insert into made_inside values (1); commit",
    "create table made_as as select 1 as id",
    "alter table made_inside rename to made_elsewhere; insert into made_elsewhere values (2)",
]

MESSAGES = [
    "select pg_logical_emit_message(true, 'transactional', 'only a message')",
    "select pg_logical_emit_message(false, 'at once', decode('00ff10', 'hex'))",
    "begin; insert into plain (id) values (500); select pg_logical_emit_message(true, 'inside', '');"
    " select pg_logical_emit_message(false, 'escapes', 'although rolled back'); rollback",
    "begin; insert into plain (id) values (501); select pg_logical_emit_message(true, '', 'between');"
    " insert into plain (id) values (502); commit",
]

ORIGINS = [
    "select pg_replication_origin_create('elsewhere')",
    "select pg_replication_origin_session_setup('elsewhere')",
    "begin; select pg_replication_origin_xact_setup('0/ABCDEF', '2024-01-01 00:00:00+00');"
    " insert into plain (id) values (600), (601); commit",
    "begin; select pg_replication_origin_xact_setup('0/ABCDFF', '2024-01-02 00:00:00+00');"
    " insert into narrow select generate_series(100, 249); commit",
    "select pg_replication_origin_session_reset()",
    "begin; set local session_replication_role = replica; delete from narrow where id < 110; commit",
]

# Each insert of 150 rows fills logical_decoding_work_mem, so it is streamed where streaming is on. What fills it is a
# generated column, which pgoutput does not send: so the recordings stay small.
LARGE = [
    "begin",
    "insert into narrow select generate_series(1000, 1149)",
    "insert into typed (id, m) values (10, 'sad')",
    WAIT,
    "savepoint one",
    "insert into narrow select generate_series(2000, 2149)",
    WAIT,
    "rollback to one",
    "savepoint two",
    "insert into narrow select generate_series(3000, 3029)",
    "update toasted set n = -1 where id = 1",
    "truncate index_identity",
    "select pg_logical_emit_message(true, 'in a stream', 'x')",
    "select pg_logical_emit_message(false, 'out of a stream', 'x')",
    "release two",
    "alter table narrow add more text",
    "insert into narrow (id, more) select g, 'wider' from generate_series(4000, 4019) g",
    WAIT,
    "commit",
    "begin",
    "insert into narrow select generate_series(5000, 5149)",
    WAIT,
    "rollback",
    "delete from narrow where id < 1010",
]

TWO_PHASE = [
    "begin; insert into plain (id) values (700); prepare transaction 'small one'",
    "commit prepared 'small one'",
    "begin; insert into plain (id) values (701); prepare transaction 'given up'",
    WAIT,
    "rollback prepared 'given up'",
    "begin",
    "insert into narrow select generate_series(6000, 6149)",
    WAIT,
    "prepare transaction 'large one'",
    WAIT,
    "commit prepared 'large one'",
    "begin",
    "insert into narrow select generate_series(7000, 7149)",
    "prepare transaction 'large, given up'",
    WAIT,
    "rollback prepared 'large, given up'",
    "begin; create table by_two_phase (id int primary key); insert into by_two_phase values (1); prepare transaction 'ddl'",
    "commit prepared 'ddl'",
]


def setup_sql(major):
    parts = [TABLES]
    if major >= 15:
        parts.append(PUBLICATIONS_15)
    if major >= 18:
        parts.append(PUBLICATIONS_18)
    return "".join(parts)


def steps(major):
    extra = ["insert into generated (id, v) values (1, 21)"] if major >= 18 else []
    return ORDINARY + extra + MESSAGES + ORIGINS + LARGE + TWO_PHASE
