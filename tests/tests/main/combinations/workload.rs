//! What the servers are given to decode, beside what `native` has.

/// Beside those of [`TABLES`](super::super::native::TABLES): every type whose values can be turned into binary, and some that can't.
pub(super) const MORE_TABLES: &str = "
    create domain small_numeric as numeric(10, 2);
    create domain words as text[];
    create table every_type (
        id int primary key, t_bool bool, t_int2 int2, t_int8 int8, t_oid oid, t_float4 float4, t_float8 float8,
        t_numeric numeric, t_text text, t_varchar varchar(20), t_char char(5), t_one \"char\", t_name name, t_bytea bytea,
        t_uuid uuid, t_json json, t_jsonb jsonb, t_date date, t_time time, t_timetz timetz, t_timestamp timestamp,
        t_timestamptz timestamptz, t_interval interval, t_lsn pg_lsn, t_domain small_numeric, t_words words,
        t_inet inet, t_point point, t_range int4range, t_bits varbit, t_mood mood, t_pair pair);
    create table arrays (
        id int primary key, a_bool bool[], a_int2 int2[], a_int4 int4[], a_int8 int8[], a_float4 float4[], a_float8 float8[],
        a_numeric numeric[], a_text text[], a_varchar varchar[], a_char char(3)[], a_bytea bytea[], a_uuid uuid[],
        a_json json[], a_jsonb jsonb[], a_date date[], a_time time[], a_timetz timetz[], a_timestamp timestamp[],
        a_timestamptz timestamptz[], a_interval interval[], a_oid oid[], a_mood mood[]);
    create table silent (id int primary key, v text);";

pub(super) const MORE_STEPS: &[&str] = &[
    "insert into every_type values (1, true, -32768, 9223372036854775807, 4294967295, 1.17549435e-38, -1.7976931348623157e308, \
     12345678901234567890.000120003400, E'tab\\t\\u00e9', 'vary', 'ab', 'x', 'a name', '\\x00ff10', \
     'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"a\" :  1}', '{\"b\": [1, null, \"x\"]}', '2024-02-29', '23:59:59.999999', \
     '12:00:00.5+05:30', '1999-12-31 23:59:59.123456', '2024-07-01 12:00:00+02', \
     '1 year -2 mons 3 days -04:05:06.789', '16/B374D848', 12.50, '{a,\"b c\",NULL}', '10.0.0.0/8', '(1,2)', '[1,5)', \
     '101', 'ok', row(1, 'x'))",
    "insert into every_type (id, t_float4, t_float8, t_numeric, t_date, t_time, t_timetz, t_timestamp, t_timestamptz, t_interval) values \
     (2, 'NaN', 'Infinity', 'NaN', 'infinity', '24:00:00', '00:00:00-15:59:59', '-infinity', 'infinity', '0'), \
     (3, '-0', '-Infinity', 'Infinity', '4713-01-01 BC', '00:00:00.000001', '23:00:00+00', '4713-11-24 00:00:00 BC', \
      '0001-06-01 12:00:00.25+00 BC', '-1 year -1 mon +1 day +00:00:00.000001'), \
     (4, 3.4028235e38, 5e-324, '-Infinity', '5874897-12-31', null, null, '294276-12-31 23:59:59.999999', \
      '294276-12-31 23:59:59.999999+00', '-178000000 years'), \
     (5, 0.1, 0.1, 0, null, null, null, null, null, '100000000 hours'), \
     (6, 1e10, 1e15, 0.0000, null, null, null, null, null, '1 mon'), \
     (7, 16777216, 123456789012345678, 1e20, null, null, null, null, null, '-00:00:01'), \
     (8, null, null, 0.00001234, null, null, null, null, null, '1 day -1 hours'), \
     (9, null, null, -99990000.0001, null, null, null, null, null, null), \
     (10, null, null, 10000, null, null, null, null, null, null), \
     (11, null, null, repeat('9', 300)::numeric + 0.5, null, null, null, null, null, null)",
    "insert into arrays values (1, '{t,f,NULL}', '{1,-1}', '{{1,2},{3,4}}', '{}', '{1.5,NaN}', '{0.1,-0}', '{1.10,NaN,NULL}', \
     E'{\"\",\"NULL\",NULL,\"a,b\",\"q\\\\\"\\\\\\\\\",\\u00e9}', '{x}', '{a,bc}', '{\"\\\\\\\\x00\"}', \
     '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}', '{\"{\\\"a\\\": 1}\"}', '{\"[1, 2]\"}', '{2024-01-01,infinity}', '{12:00}', \
     '{12:00+02}', '{2024-01-01 00:00:01}', '{2024-01-01 00:00:01.5+00}', '{1 day,-1 mon}', '{1,2}', '{sad,ok}')",
    "insert into arrays (id, a_int4, a_text) values (2, '[0:2]={1,NULL,3}', '[2:3][-1:0]={{a,b},{\"{\",\"}\"}}'), (3, '{}', '{}'), (4, null, '{{{a}}}')",
    "update every_type set t_bool = not t_bool where id = 1; delete from every_type where id = 2",
    // Streamed: subtransactions at several levels, rolled back and not, DDL, messages.
    "begin; insert into silent select g, repeat('s', 50) from generate_series(1, 3000) g; commit",
    "begin; select pg_logical_emit_message(true, 'in', 'first'); insert into plain (id) select generate_series(50000, 52000); \
     savepoint a; insert into plain (id) select generate_series(52001, 53000); savepoint b; \
     insert into plain (id) select generate_series(53001, 54000); rollback to b; \
     select pg_logical_emit_message(true, 'in', 'sub'); insert into whole select g, 'late', 'x' from generate_series(1, 500) g; \
     alter table whole add extra int; insert into whole select g, 'late', 'x', g from generate_series(1, 1000) g; \
     truncate by_index; select pg_logical_emit_message(false, 'out', 'at once'); commit",
    "begin; insert into plain (id) select generate_series(60000, 63000); rollback",
    "begin; insert into plain (id) select generate_series(60000, 63000); prepare transaction 'large'",
    "insert into plain (id) values (64000)",
    "commit prepared 'large'",
    "begin; insert into plain (id) select generate_series(65000, 68000); savepoint a; insert into plain (id) values (69000); rollback to a; prepare transaction 'large given up'",
    "rollback prepared 'large given up'",
    "begin; select 1; prepare transaction 'nothing'",
    "begin; create table in_prepared (id int primary key); insert into in_prepared values (1); prepare transaction 'ddl'",
    "insert into plain (id) values (64001)",
    "commit prepared 'ddl'",
    "insert into in_prepared values (2)",
    "begin; alter table silent add w int; insert into silent values (5000, 'a', 1); prepare transaction 'no ddl'",
    "rollback prepared 'no ddl'",
    "insert into silent values (5000, 'a')",
    "begin; insert into plain (id) values (64002); prepare transaction 'one'",
    "begin; insert into plain (id) values (64003); prepare transaction 'two'",
    "commit prepared 'two'",
    "commit prepared 'one'",
    "select pg_replication_origin_session_setup('elsewhere')",
    "begin; select pg_replication_origin_xact_setup('0/ABCDF0', '2024-01-01 00:00:00+00'); insert into plain (id) select generate_series(70000, 73000); commit",
    "begin; select pg_replication_origin_xact_setup('0/ABCDF8', '2024-01-01 00:00:00+00'); insert into plain (id) values (74000); prepare transaction 'from elsewhere'",
    "commit prepared 'from elsewhere'",
    "select pg_replication_origin_session_reset()",
];

/// A server that decodes the PREPARE of one of these after its rollback may send it without content: it can't look into the
/// catalog of then, and from 18 on it gives up what is large and aborted (`ReorderBufferCheckAndTruncateAbortedTXN`).
/// Which of the two servers comes that late is chance.
pub(super) const ROLLED_BACK: &[&[u8]] = &[b"given up", b"large given up", b"no ddl"];

/// Only in version 18: stored generated columns.
pub(super) const GENERATED: &str =
    "create table generated (id int primary key, twice int generated always as (id * 2) stored)";

/// Row filters, from version 15 on: evaluated by the fanout, answered by an index, and evaluated by the source, in small and
/// in streamed transactions. Those of UPDATE and DELETE may read the replica identity only.
pub(super) const FILTERED: &str = "; create publication filtered for table plain where (id % 2 = 0), toasted where (id > 1),
    every_type where (id in (1, 3, 5, 7, 9)), silent where (ln(id) > 5), whole where (v is not null),
    by_index where (k2 ~ '^k[12]'), arrays where (id = 1)";
