//! Which rows and columns a publication publishes: the publisher's own walsender is the judge, message for message.

use std::collections::HashMap;

use pg_proto::Lsn;
use tests::Session;
use tests::scale::{patience, pick};
use tests::subscriber::StreamClient;

use super::native::{Essence, assert_same, essence};
use super::selection_random::{Random, publication};
use super::stage::Stage;

const TABLES: &str = "
    create schema s1; create schema s2;
    create table s1.a (id int primary key, gone int, x text, y int, z text);
    alter table s1.a drop column gone;
    alter table s1.a alter z set storage external;
    create table s1.b (id int primary key, v text);
    alter table s1.b replica identity full;
    create table s2.c (id int, k int not null, t text, u text not null);
    create unique index c_key on s2.c (k, u);
    alter table s2.c replica identity using index c_key;
    create table s1.gen (id int primary key, v int, g int generated always as (v * 2) stored, t text);
    create type s1.mood as enum ('sad', 'ok');
    create table s2.root (id int, r int, x s1.mood, y text, primary key (id, r)) partition by list (r);
    create table s2.leaf1 partition of s2.root for values in (1);
    create table s1.leaf2 (y text, gone int, r int not null, id int not null, x s1.mood, primary key (id, r));
    alter table s1.leaf2 drop column gone;
    alter table s2.root attach partition s1.leaf2 for values in (2);
    create table s2.mid partition of s2.root for values in (3, 4) partition by list (r);
    create table s1.leaf3 partition of s2.mid for values in (3);
    create table s2.leaf4 partition of s2.mid for values in (4);
    create table s2.later (r int not null, id int not null, y text, x s1.mood, primary key (id, r))";

const STEPS: &[&str] = &[
    "insert into s1.a select g, 'x' || g, g, repeat(md5(g::text), 80) from generate_series(1, 5) g",
    "update s1.a set y = y + 1 where id < 3; update s1.a set id = 10 where id = 3; delete from s1.a where id = 4",
    "insert into s1.b values (1, 'one'), (2, null); update s1.b set v = 'two' where id = 2; delete from s1.b where id = 1",
    "insert into s2.c select g, g, 't', 'u' || g from generate_series(1, 4) g; update s2.c set t = null where k = 1; \
     update s2.c set u = 'moved' where k = 2; delete from s2.c where k = 3",
    "insert into s1.gen (id, v, t) values (1, 5, 't'), (2, null, null); update s1.gen set v = 7 where id = 2; delete from s1.gen where id = 1",
    "insert into s2.root select g, r, 'ok', 'y' from generate_series(1, 3) g, generate_series(1, 4) r",
    "update s2.root set y = 'changed' where id = 1; update s2.root set r = 2, id = 102 where id = 2 and r = 1; delete from s2.root where id = 3",
    "update s2.root set id = 20 where id = 2",
    "begin; insert into s1.a values (50); insert into s2.root values (50, 1), (50, 2), (50, 3); insert into s1.b values (50); commit",
    "alter table s2.root attach partition s2.later for values in (5); insert into s2.root values (60, 5, 'sad', 'attached')",
    "begin; insert into s2.root values (61, 5); alter table s2.root detach partition s2.later; insert into s2.later values (5, 62); commit",
    "insert into s2.later values (5, 63); alter table s2.root attach partition s2.later for values in (5); update s2.later set y = 'again' where id = 62",
    "alter table s2.root rename y to why; insert into s2.root values (70, 1, 'ok', 'renamed')",
    "alter table s2.root add extra int default 4; insert into s2.root values (71, 2, 'ok', 'added', 5)",
    "alter table s1.a rename x to ex; insert into s1.a (id, ex) values (72, 'renamed')",
    "alter table s1.a add extra int; insert into s1.a (id, extra) values (73, 1)",
    "alter table s1.b rename to bee; insert into s1.bee values (74, 'renamed')",
    "create table s1.made (id int primary key, v text); insert into s1.made values (1, 'v')",
    "truncate s1.a, s1.bee",
    "truncate s2.root",
    "insert into s2.root select 80, r, 'ok', 'y' from generate_series(1, 5) r",
    "truncate s2.mid; truncate s2.leaf1, s1.leaf2",
    "drop table s2.later; insert into s2.root values (81, 1)",
];

/// By rule; each is subscribed to together with those behind it. From 15 on.
const DEFINITIONS: &[&str] = &[
    "create publication list_a for table s1.a (id, z)",
    "create publication list_order for table s1.a (z, id)",
    "create publication list_whole for table s1.a (id, x, y, z)",
    "create publication plain_a for table s1.a",
    "create publication list_other for table s1.a (id, x)",
    "create publication list_index for table s2.c (k, u)",
    "create publication inserts for table s1.b (v), s1.a (x) with (publish = 'insert')",
    "create publication leaves for table s2.root",
    "create publication via for table s2.root with (publish_via_partition_root)",
    "create publication via_list for table s2.root (id, r, y) with (publish_via_partition_root)",
    "create publication via_mid for table s2.mid with (publish_via_partition_root)",
    "create publication via_all for all tables with (publish_via_partition_root)",
    "create publication via_schema for tables in schema s2 with (publish_via_partition_root)",
    "create publication in_schema for tables in schema s1, table s2.c",
    "create publication one_leaf for table s1.leaf2 (id, r) with (publish = 'insert, delete')",
    "create publication rows_a for table s1.a where (id > 1 and id <> 50)",
    "create publication rows_a_inserts for table s1.a where (id = 4 or id > 60) with (publish = 'insert')",
    "create publication rows_a_list for table s1.a (id, z) where (id between 2 and 10)",
    "create publication rows_b for table s1.b where (v like 't%' or v is null)",
    "create publication rows_c for table s2.c where (u = 'u2' or k in (1, 4))",
    "create publication rows_c_postgres for table s2.c where (u ~ '^(u[13]|moved)$')",
    "create publication rows_leaf for table s2.leaf1 where (id % 2 = 1), table s1.leaf2 where (id > 2)",
    "create publication rows_via for table s2.root where (id > 1 and r < 4) with (publish_via_partition_root)",
    "create publication rows_via_postgres for table s2.root (id, r) where (log(id) * 2 > r) with (publish_via_partition_root)",
    "create publication rows_fail for table s1.a where (10 / (id - 4) <> 0)",
    "create publication rows_fail_postgres for table s1.a where (ln(5 - id) < 5)",
    "create publication rows_fail_always for table s1.b where (id = 1 / 0)",
    "create publication truncates for table s2.root, s1.a with (publish = 'truncate', publish_via_partition_root)",
];

const SETS: &[&[&str]] = &[
    &["list_a"],
    &["list_a", "list_order"],
    &["list_whole", "plain_a"],
    &["list_a", "plain_a"],
    &["list_a", "list_other"],
    &["list_index", "inserts"],
    &["leaves"],
    &["via"],
    &["via_list"],
    &["via", "via_mid"],
    &["via_mid", "leaves"],
    &["via_mid"],
    &["via_all"],
    &["via_schema", "plain_a"],
    &["in_schema"],
    &["one_leaf"],
    &["one_leaf", "via"],
    &["truncates"],
    &["truncates", "leaves"],
    &["rows_a"],
    &["rows_a", "rows_a_inserts"],
    &["rows_a_list", "rows_b"],
    &["rows_a", "plain_a"],
    &["rows_a_inserts", "in_schema"],
    &["rows_c"],
    &["rows_c_postgres", "rows_b"],
    &["rows_c", "rows_c_postgres"],
    &["rows_leaf"],
    &["rows_via"],
    &["rows_via_postgres", "rows_a"],
    &["rows_via", "via_mid"],
    &["rows_fail"],
    &["rows_fail_postgres"],
    &["rows_fail_always", "rows_via"],
];

const GENERATED: &[&str] = &[
    "create publication gen_stored for table s1.gen with (publish_generated_columns = stored)",
    "create publication gen_none for table s1.gen",
    "create publication gen_list for table s1.gen (id, g)",
    "create publication gen_whole for table s1.gen (id, v, g, t)",
    "create publication gen_all for all tables with (publish_generated_columns = stored, publish_via_partition_root)",
];

const GENERATED_SETS: &[&[&str]] = &[
    &["gen_stored"],
    &["gen_none"],
    &["gen_list"],
    &["gen_stored", "gen_none"],
    &["gen_stored", "gen_whole"],
    &["gen_none", "gen_whole"],
    &["gen_all"],
    &["gen_all", "via"],
];

#[tokio::test(flavor = "multi_thread")]
async fn every_rule_as_version_15() {
    every_rule(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rule_as_version_18() {
    every_rule(18).await;
}

async fn every_rule(major: u32) {
    let mut definitions: Vec<String> = DEFINITIONS.iter().map(|sql| (*sql).to_owned()).collect();
    let mut sets: Vec<Vec<String>> = SETS.iter().map(|names| owned(names)).collect();
    if major >= 18 {
        definitions.extend(GENERATED.iter().map(|sql| (*sql).to_owned()));
        sets.extend(GENERATED_SETS.iter().map(|names| owned(names)));
    }
    compare(major, &definitions, &[], &sets).await;
}

/// Arguments of `decctl publication create`, of the same meaning as the publication of the source of this name.
const OWN: &[(&str, &[&str])] = &[
    ("list_a", &["--table", "s1.a (id, z)"]),
    ("list_order", &["--table", "s1.a (z, id)"]),
    ("plain_a", &["--table", "s1.a"]),
    ("list_other", &["--table", "s1.a (id, x)"]),
    ("list_index", &["--table", "s2.c (k, u)"]),
    (
        "inserts",
        &[
            "--table",
            "s1.b (v)",
            "--table",
            "s1.a (x)",
            "--publish",
            "insert",
        ],
    ),
    ("in_schema", &["--schema", "s1", "--table", "s2.c"]),
    (
        "one_leaf",
        &["--table", "s1.leaf2 (id, r)", "--publish", "insert, delete"],
    ),
    ("rows_a", &["--table", "s1.a where (id > 1 and id <> 50)"]),
    (
        "rows_a_inserts",
        &[
            "--table",
            "s1.a where (id = 4 or id > 60)",
            "--publish",
            "insert",
        ],
    ),
    (
        "rows_a_list",
        &["--table", "s1.a (id, z) where (id between 2 and 10)"],
    ),
    (
        "rows_b",
        &["--table", "s1.b where (v like 't%' or v is null)"],
    ),
    (
        "rows_c",
        &["--table", "s2.c where (u = 'u2' or k in (1, 4))"],
    ),
    (
        "rows_c_postgres",
        &["--table", "s2.c where (u ~ '^(u[13]|moved)$')"],
    ),
    (
        "rows_leaf",
        &[
            "--table",
            "s2.leaf1 where (id % 2 = 1)",
            "--table",
            "s1.leaf2 where (id > 2)",
        ],
    ),
    ("leaves", &["--table", "s2.root"]),
    ("via", &["--table", "s2.root", "--via-partition-root"]),
    (
        "via_list",
        &["--table", "s2.root (id, r, y)", "--via-partition-root"],
    ),
    ("via_mid", &["--table", "s2.mid", "--via-partition-root"]),
    (
        "rows_via",
        &[
            "--table",
            "s2.root where (id > 1 and r < 4)",
            "--via-partition-root",
        ],
    ),
    (
        "rows_via_postgres",
        &[
            "--table",
            "s2.root (id, r) where (log(id) * 2 > r)",
            "--via-partition-root",
        ],
    ),
    (
        "truncates",
        &[
            "--table",
            "s2.root",
            "--table",
            "s1.a",
            "--publish",
            "truncate",
            "--via-partition-root",
        ],
    ),
    ("rows_fail", &["--table", "s1.a where (10 / (id - 4) <> 0)"]),
    (
        "rows_fail_postgres",
        &["--table", "s1.a where (ln(5 - id) < 5)"],
    ),
    ("rows_fail_always", &["--table", "s1.b where (id = 1 / 0)"]),
];

const OWN_GENERATED: &[(&str, &[&str])] = &[
    ("gen_stored", &["--table", "s1.gen", "--generated-columns"]),
    ("gen_none", &["--table", "s1.gen"]),
    ("gen_list", &["--table", "s1.gen (id, g)"]),
    ("gen_whole", &["--table", "s1.gen (id, v, g, t)"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn publications_of_decants_own_as_version_15() {
    publications_of_decants_own(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn publications_of_decants_own_as_version_18() {
    publications_of_decants_own(18).await;
}

/// A walsender of the source follows its publication, a fanout one of Decant's own of the same definition.
async fn publications_of_decants_own(major: u32) {
    let mut own = OWN.to_vec();
    let mut definitions = DEFINITIONS.to_vec();
    let mut sets = SETS.to_vec();
    if major >= 18 {
        own.extend(OWN_GENERATED);
        definitions.extend(GENERATED);
        sets.extend(GENERATED_SETS);
    }
    let is_own = |name: &str| own.iter().any(|(own, _)| *own == name);
    definitions.retain(|sql| sql.split(' ').nth(2).is_some_and(is_own));
    sets.retain(|names| names.iter().all(|name| is_own(name)));
    let definitions: Vec<String> = definitions.into_iter().map(str::to_owned).collect();
    let sets: Vec<Vec<String>> = sets.into_iter().map(owned).collect();
    compare(major, &definitions, &own, &sets).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_definitions_as_version_15() {
    random_definitions(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_definitions_as_version_18() {
    random_definitions(18).await;
}

async fn random_definitions(major: u32) {
    let seed = std::env::var("DECANT_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seeds = match seed {
        Some(seed) => vec![seed],
        None => (0..pick(1, 20)).map(|number| 7 + number).collect(),
    };
    for seed in seeds {
        eprintln!("random definitions on version {major}: DECANT_SEED={seed}");
        let mut random = Random::new(seed);
        let names: Vec<String> = (0..14).map(|number| format!("p{number}")).collect();
        let definitions: Vec<String> = names
            .iter()
            .map(|name| publication(&mut random, name, major))
            .collect();
        let refs: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut sets: Vec<Vec<String>> = refs.iter().map(|name| owned(&[name])).collect();
        for _ in 0..14 {
            let first = refs[random.below(refs.len())];
            let second = refs[random.below(refs.len())];
            sets.push(owned(&[first, second]));
        }
        compare(major, &definitions, &[], &sets).await;
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Runs the workload under these publications, and compares what each set of them gets. With `own`, a fanout's
/// subscribers name those of Decant's own.
async fn compare(
    major: u32,
    definitions: &[String],
    own: &[(&str, &[&str])],
    sets: &[Vec<String>],
) {
    let settings = [("max_replication_slots", "100"), ("max_wal_senders", "20")];
    let mut stage = Stage::with_settings(major, &settings, 1, TABLES).await;
    let mut session = stage.source.session().await;
    for definition in definitions {
        if let Err(error) = session.try_run(definition).await {
            panic!("{definition}: {error}");
        }
    }
    for (name, arguments) in own {
        let name = format!("own_{name}");
        let all = [&["publication", "create", &name], *arguments].concat();
        stage.decant.decctl_successfully(&all);
    }
    let prefixes = ["", if own.is_empty() { "" } else { "own_" }];
    stage.settle().await;
    let fanout = stage.decant.fanout(0).endpoint();
    let endpoints = [stage.source.endpoint(), fanout];
    for endpoint in &endpoints {
        let mut session = Session::connect_for_replication(endpoint).await.unwrap();
        for number in 0..sets.len() {
            let sql =
                format!("CREATE_REPLICATION_SLOT s{number} LOGICAL pgoutput NOEXPORT_SNAPSHOT");
            session.run(&sql).await;
        }
    }
    for step in STEPS {
        // A publication may forbid it, for want of a replica identity: then nobody gets it.
        if let Err(error) = session.try_run(step).await {
            eprintln!("{step}: {error}");
            session.run("rollback").await;
        }
    }
    let end = stage.settle().await;
    for (number, names) in sets.iter().enumerate() {
        let mut streams = Vec::new();
        for (endpoint, prefix) in endpoints.iter().zip(prefixes) {
            let quoted = names.iter().map(|name| format!("\"{prefix}{name}\""));
            let options = format!(
                "proto_version '1', publication_names '{}'",
                quoted.collect::<Vec<String>>().join(",")
            );
            let slot = format!("s{number}");
            let client = StreamClient::start(endpoint, &slot, Lsn::INVALID, &options).await;
            let mut client = client.unwrap_or_else(|error| panic!("{names:?}: {error}"));
            let (received, error) = client.receive_until_or_error(end, patience()).await;
            let mut known = HashMap::new();
            let essences = received.into_iter();
            let essences = essences.filter_map(|one| essence(one, &mut known));
            let error = error.map(|error| {
                let first = error.message.lines().next().unwrap_or_default();
                format!("{} {first}", error.code)
            });
            streams.push((essences.collect::<Vec<Essence>>(), error));
        }
        let named = definitions
            .iter()
            .filter(|sql| names.iter().any(|name| sql.contains(&format!(" {name} "))));
        let what = format!("{names:?} {:#?}", named.collect::<Vec<_>>());
        let changes: usize = streams[0].0.iter().map(|one| one.1.len()).sum();
        eprintln!(
            "{names:?}: {} transactions, {changes} rows, {:?}",
            streams[0].0.len(),
            streams[0].1
        );
        assert_same(&what, &streams[0].0, &streams[1].0);
        assert_eq!(streams[0].1, streams[1].1, "{what}");
    }
}
