//! The SQL that reports changes of publications, on a server alone.

use std::time::Duration;

use serde_json::Value;
use tests::{Cluster, Session};

const INSTALL: &str = include_str!("../../../decoder/sql/install.sql");
const UNINSTALL: &str = include_str!("../../../decoder/sql/uninstall.sql");
const STATE_14: &str = include_str!("../../../decoder/sql/state_14.sql");
const STATE_15: &str = include_str!("../../../decoder/sql/state_15.sql");

/// A server with the triggers, and a slot that shows what they write.
struct Source {
    cluster: Cluster,
    session: Session,
}

impl Source {
    async fn new(major: u32) -> Self {
        let cluster = Cluster::start_new(major).await;
        let mut session = cluster.session().await;
        let state = if major < 15 { STATE_14 } else { STATE_15 };
        let script = INSTALL.replace("{{publication_state}}", state);
        session.run(&script).await;
        // A second time: it replaces what it made, and keeps the secret.
        let secret = "SELECT secret FROM decant.secret";
        let before = session.value(secret).await;
        session.run(&script).await;
        assert_eq!(session.value(secret).await, before);
        session
            .run("SELECT pg_create_logical_replication_slot('look', 'test_decoding')")
            .await;
        Self { cluster, session }
    }

    /// The states that were written since the last call, each proven by its MAC.
    async fn heard(&mut self) -> Vec<Value> {
        let messages = "
            SELECT encode(sha256(convert_to(s.secret || substr(m.content, 65), 'UTF8')), 'hex')
                     = substr(m.content, 1, 64),
                   substr(m.content, 65)
              FROM decant.secret s,
                   (SELECT substring(data FROM 'content:(.*)$') AS content
                      FROM pg_logical_slot_get_changes('look', NULL, NULL)
                     WHERE data LIKE '%transactional: 1 prefix: decant,%') m";
        let rows = self.session.run(messages).await;
        let parse = |row: Vec<Option<String>>| {
            assert_eq!(row[0].as_deref(), Some("t"), "a wrong MAC");
            serde_json::from_str(row[1].as_deref().unwrap()).unwrap()
        };
        rows.into_iter().map(parse).collect()
    }

    /// Runs each command and compares how often the publications were stated and what they were then.
    async fn check(&mut self, cases: &[(&str, &[&str])]) {
        for (sql, expected) in cases {
            self.session.run(sql).await;
            let heard = self.heard().await;
            let heard: Vec<String> = heard
                .iter()
                .map(|state| brief(&state["publications"]))
                .collect();
            assert_eq!(&heard, expected, "{sql}");
        }
    }
}

/// `name=table(filter)[columns],...; ...`, with `!` behind publications that have a partitioned table.
fn brief(publications: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let table = |table: &Value| {
        let columns = match table["columns"].as_array() {
            Some(columns) => format!(
                "[{}]",
                columns.iter().map(text).collect::<Vec<_>>().join(" ")
            ),
            None => String::new(),
        };
        format!(
            "{}{}{columns}",
            text(&table["name"]),
            text(&table["row_filter"])
        )
    };
    let publication = |publication: &Value| {
        let tables = publication["tables"].as_array().unwrap().iter();
        let rows = tables.filter(|table| table["partitioned"] == false);
        let tables: Vec<String> = rows.map(table).collect();
        let rooted = if publication["has_partitioned_root"] == true {
            "!"
        } else {
            ""
        };
        format!(
            "{}={}{rooted}",
            text(&publication["name"]),
            tables.join(",")
        )
    };
    let all = publications.as_array().unwrap();
    all.iter().map(publication).collect::<Vec<_>>().join("; ")
}

const ALL_VERSIONS: &[(&str, &[&str])] = &[
    ("CREATE TABLE a (id int PRIMARY KEY, v text)", &[]),
    ("CREATE TEMP TABLE t (id int)", &[]),
    ("CREATE PUBLICATION p FOR TABLE a", &["p=a"]),
    (
        "CREATE TABLE b (id int PRIMARY KEY); ALTER TABLE b ADD x int",
        &[],
    ),
    // Both events fire, and it is said once.
    ("ALTER PUBLICATION p SET TABLE b", &["p=b"]),
    ("ALTER PUBLICATION p ADD TABLE a", &["p=a,b"]),
    ("ALTER PUBLICATION p DROP TABLE b", &["p=a"]),
    ("DROP TABLE b", &[]),
    ("BEGIN; ALTER PUBLICATION p RENAME TO q; ROLLBACK", &[]),
    (
        "BEGIN; ALTER PUBLICATION p SET (publish = 'insert'); ALTER PUBLICATION p RENAME TO q; COMMIT",
        &["p=a", "q=a"],
    ),
    ("ALTER TABLE a RENAME TO c", &["q=c"]),
    (
        "CREATE INDEX ON c (v); GRANT SELECT ON c TO PUBLIC; COMMENT ON TABLE c IS 'x'; CREATE VIEW w AS SELECT 1",
        &[],
    ),
    ("CREATE TABLE root (id int) PARTITION BY RANGE (id)", &[]),
    ("CREATE PUBLICATION r FOR TABLE root", &["q=c; r=!"]),
    (
        "CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (10)",
        &["q=c; r=leaf!"],
    ),
    ("CREATE TABLE sub (id int) PARTITION BY RANGE (id)", &[]),
    (
        "CREATE TABLE subleaf PARTITION OF sub FOR VALUES FROM (10) TO (15)",
        &[],
    ),
    (
        "ALTER TABLE root ATTACH PARTITION sub FOR VALUES FROM (10) TO (20)",
        &["q=c; r=leaf,subleaf!"],
    ),
    (
        "ALTER TABLE sub DETACH PARTITION subleaf",
        &["q=c; r=leaf!"],
    ),
    (
        "ALTER TABLE root DETACH PARTITION leaf CONCURRENTLY",
        &["q=c; r=!"],
    ),
    (
        "ALTER TABLE root ATTACH PARTITION leaf FOR VALUES FROM (0) TO (10)",
        &["q=c; r=leaf!"],
    ),
    ("DROP TABLE leaf", &["q=c; r=!"]),
    (
        "CREATE SCHEMA s CREATE TABLE o (i int) CREATE TABLE l PARTITION OF public.root FOR VALUES FROM (30) TO (40)",
        &["q=c; r=l!"],
    ),
    ("ALTER SCHEMA s RENAME TO u", &["q=c; r=l!"]),
    ("DROP SCHEMA u CASCADE", &["q=c; r=!"]),
    ("CREATE PUBLICATION e FOR ALL TABLES", &["q=c; r=!; e=!"]),
    ("CREATE TABLE o (i int)", &[]),
    ("DROP PUBLICATION e", &["q=c; r=!"]),
    ("DROP TABLE c", &["q=; r=!"]),
];

const FROM_15: &[(&str, &[&str])] = &[
    (
        "DROP PUBLICATION q, r; CREATE TABLE f (id int PRIMARY KEY, v text, at timestamptz)",
        &[""],
    ),
    (
        "CREATE PUBLICATION f FOR TABLE f (id, v) WHERE (id > 10 AND v <> 'x')",
        &["f=f((id > 10) AND (v <> 'x'::text))[id v]"],
    ),
    (
        "ALTER TABLE f RENAME COLUMN v TO w",
        &["f=f((id > 10) AND (w <> 'x'::text))[id w]"],
    ),
    // Dropping a listed column takes the table out.
    ("ALTER TABLE f DROP COLUMN w CASCADE", &["f="]),
    // However the session prints times.
    (
        "SET datestyle = 'German'; SET timezone = 'Asia/Tokyo';
         ALTER PUBLICATION f SET TABLE f WHERE (at > '2020-01-01 00:00:00+00')",
        &["f=f(at > '2020-01-01 00:00:00+00'::timestamp with time zone)"],
    ),
    ("DROP PUBLICATION f; CREATE SCHEMA s", &[""]),
    ("CREATE PUBLICATION s FOR TABLES IN SCHEMA s", &["s="]),
    ("CREATE TABLE s.d (id int PRIMARY KEY)", &[]),
];

/// `TABLES IN SCHEMA` is known by the names of the schemas, except where version 15 would not say a new one.
const SCHEMAS_15: &[(&str, &[&str])] = &[
    ("ALTER SCHEMA s RENAME TO z", &["s=d"]),
    ("ALTER TABLE z.d SET SCHEMA public", &["s="]),
    ("ALTER TABLE root SET SCHEMA z", &["s=!"]),
    (
        "CREATE TABLE m PARTITION OF z.root FOR VALUES FROM (0) TO (1)",
        &["s=m!"],
    ),
    ("DROP SCHEMA z CASCADE", &["s="]),
];

const SCHEMAS_FROM_16: &[(&str, &[&str])] = &[
    ("ALTER SCHEMA s RENAME TO z", &["s="]),
    ("ALTER TABLE z.d SET SCHEMA public", &[]),
    ("ALTER TABLE root SET SCHEMA z", &["s=!"]),
    (
        "CREATE TABLE m PARTITION OF z.root FOR VALUES FROM (0) TO (1)",
        &["s=m!"],
    ),
    ("DROP SCHEMA z CASCADE", &["s="]),
];

async fn every_change_is_stated_once(major: u32) {
    let mut source = Source::new(major).await;
    // A statement of several commands is one transaction: those that can't be in one come one by one.
    source.check(ALL_VERSIONS).await;
    if major >= 15 {
        source.check(FROM_15).await;
        source
            .check(if major < 16 {
                SCHEMAS_15
            } else {
                SCHEMAS_FROM_16
            })
            .await;
    }
    source.session.run(UNINSTALL).await;
    source.session.run("CREATE PUBLICATION after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_stated_once_15() {
    every_change_is_stated_once(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_stated_once_18() {
    every_change_is_stated_once(18).await;
}

const ATTACK: &str = "
    CREATE SCHEMA evil;
    CREATE FUNCTION evil.sha256(bytea) RETURNS bytea LANGUAGE plpgsql AS $$ BEGIN RAISE 'caught'; END $$;
    CREATE FUNCTION evil.convert_to(text, name) RETURNS bytea LANGUAGE plpgsql AS $$ BEGIN RAISE 'caught'; END $$;
    CREATE FUNCTION evil.encode(bytea, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'caught'; END $$;
    CREATE TABLE evil.pg_publication_rel (prpubid oid, prrelid oid);
    CREATE TEMP TABLE pg_class (oid oid);
    SET search_path = evil, pg_temp, pg_catalog";

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_rights_changes_publications_and_nothing_else() {
    let mut source = Source::new(15).await;
    source
        .session
        .run("CREATE ROLE joe LOGIN; GRANT CREATE ON DATABASE postgres TO joe; GRANT CREATE ON SCHEMA public TO joe")
        .await;
    let mut endpoint = source.cluster.endpoint();
    endpoint.user = "joe".to_owned();
    let mut joe = Session::connect(&endpoint).await.unwrap();
    for forbidden in [
        "SELECT * FROM decant.secret",
        "SELECT decant.emit_catalog()",
        "SELECT decant.emit(true)",
        "BEGIN; LOCK TABLE decant.emission",
    ] {
        let error = joe.try_run(forbidden).await.unwrap_err();
        assert_eq!(error.code, "42501", "{forbidden}: {error}");
        joe.run("ROLLBACK").await;
    }
    joe.run(ATTACK).await;
    joe.run("CREATE TABLE public.j (id int PRIMARY KEY)").await;
    joe.run("CREATE PUBLICATION j FOR TABLE public.j").await;
    let heard = source.heard().await;
    assert_eq!(heard.len(), 1);
    assert_eq!(brief(&heard[0]["publications"]), "j=j");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decoder_without_rights_of_its_own_is_granted_them() {
    let mut source = Source::new(15).await;
    source
        .session
        .run("CREATE ROLE \"the decoder\" LOGIN; SELECT decant.grant_to_decoder('the decoder')")
        .await;
    let mut endpoint = source.cluster.endpoint();
    endpoint.user = "the decoder".to_owned();
    let mut decoder = Session::connect(&endpoint).await.unwrap();
    decoder.value("SELECT secret FROM decant.secret").await;
    decoder.run("SELECT decant.emit_catalog()").await;
    let heard = source.heard().await;
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0]["complete"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_at_the_same_time_wait_for_each_other_or_say_so() {
    let mut source = Source::new(15).await;
    source
        .session
        .run("CREATE TABLE t (id int); CREATE TABLE u (id int); CREATE PUBLICATION a; CREATE PUBLICATION b")
        .await;
    source.heard().await;
    let mut other = source.cluster.session().await;

    // A short overlap: the second waits, and sees the first.
    other.run("BEGIN; ALTER PUBLICATION a ADD TABLE t").await;
    let first = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        other.run("COMMIT").await;
        other
    });
    source.session.run("ALTER PUBLICATION b ADD TABLE u").await;
    let mut other = first.await.unwrap();
    let heard = source.heard().await;
    assert_eq!(brief(&heard[1]["publications"]), "a=t; b=u");
    assert_eq!(heard[1]["settled"], true);

    // A long one: nobody waits for long, and who could not see all says so.
    other.run("BEGIN; ALTER PUBLICATION a DROP TABLE t").await;
    source.session.run("ALTER PUBLICATION b DROP TABLE u").await;
    source.session.run("SELECT decant.emit_catalog()").await;
    other.run("COMMIT").await;
    let heard = source.heard().await;
    let said: Vec<_> = heard
        .iter()
        .map(|state| {
            (
                brief(&state["publications"]),
                state["settled"] == true,
                state["complete"] == true,
            )
        })
        .collect();
    assert_eq!(
        said,
        [
            ("a=t; b=".to_owned(), false, false),
            ("a=t; b=".to_owned(), false, false),
            // Its own command came first, so it waited for nobody.
            ("a=; b=u".to_owned(), true, false),
        ]
    );
    source.session.run("SELECT decant.emit_catalog()").await;
    let heard = source.heard().await;
    assert_eq!(brief(&heard[0]["publications"]), "a=; b=");
    assert_eq!(heard[0]["complete"], true);

    // One snapshot for the whole transaction: it can't see what came in between.
    source
        .session
        .run("BEGIN ISOLATION LEVEL REPEATABLE READ; ALTER PUBLICATION a ADD TABLE t; COMMIT")
        .await;
    assert_eq!(source.heard().await[0]["settled"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_command_never_fails_because_of_it() {
    let mut source = Source::new(15).await;
    source
        .session
        .run("DROP MATERIALIZED VIEW decant.secret; CREATE PUBLICATION p; DROP PUBLICATION p")
        .await;
}
