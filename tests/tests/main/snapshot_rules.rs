//! When a slot with a snapshot may be created, and how long an exported one lives.

use tests::scale::patience;
use tests::sql::Endpoint;
use tests::{Session, wait_until};

use super::stage::Stage;

const TABLE: &str = "create table entries (id int primary key, writer text)";

/// What a client of its version may see when it does not keep the rules; each line on a connection of its own.
const AGAINST_THE_RULES: [&[&str]; 9] = [
    &["CREATE_REPLICATION_SLOT x LOGICAL pgoutput USE_SNAPSHOT"],
    &[
        "BEGIN",
        "CREATE_REPLICATION_SLOT x LOGICAL pgoutput USE_SNAPSHOT",
    ],
    &[
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "select 1",
        "CREATE_REPLICATION_SLOT x LOGICAL pgoutput USE_SNAPSHOT",
    ],
    &[
        "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ",
        "select 1",
        "CREATE_REPLICATION_SLOT x LOGICAL pgoutput USE_SNAPSHOT",
        "select 1",
        "CREATE_REPLICATION_SLOT x LOGICAL pgoutput USE_SNAPSHOT",
    ],
    &[
        "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ",
        "SAVEPOINT a",
        "CREATE_REPLICATION_SLOT x LOGICAL pgoutput USE_SNAPSHOT",
    ],
    &["BEGIN", "CREATE_REPLICATION_SLOT x LOGICAL pgoutput"],
    &[
        "BEGIN",
        "CREATE_REPLICATION_SLOT x LOGICAL pgoutput EXPORT_SNAPSHOT",
    ],
    &[
        "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ",
        "IDENTIFY_SYSTEM",
        "SHOW transaction_isolation",
        "CREATE_REPLICATION_SLOT x TEMPORARY LOGICAL pgoutput USE_SNAPSHOT",
        "select count(*) from entries",
        "SAVEPOINT b",
        "select count(*) from entries",
        "COMMIT",
        "CREATE_REPLICATION_SLOT x LOGICAL pgoutput NOEXPORT_SNAPSHOT",
    ],
    &[
        "BEGIN READ ONLY ISOLATION LEVEL SERIALIZABLE",
        "CREATE_REPLICATION_SLOT x LOGICAL pgoutput USE_SNAPSHOT",
    ],
];

async fn answers(to: &Endpoint, script: &[String]) -> Vec<Result<usize, (String, String)>> {
    let mut session = Session::connect_for_replication(to).await.unwrap();
    let mut answers = Vec::new();
    for statement in script {
        let answer = session.try_run(statement).await;
        answers.push(match answer {
            Ok(rows) => Ok(rows.len()),
            Err(error) => Err((error.code, error.message)),
        });
    }
    answers
}

/// Errors are those of the source itself.
async fn same_rules(major: u32) {
    let mut stage = Stage::new(major, 1, TABLE).await;
    let fanout = stage.decant.fanout(0).endpoint();
    for (number, script) in AGAINST_THE_RULES.iter().enumerate() {
        // A temporary slot of an earlier connection may still be there.
        let name = format!(" x{number} ");
        let script: Vec<String> = script.iter().map(|sql| sql.replace(" x ", &name)).collect();
        let native = answers(&stage.source.endpoint(), &script).await;
        assert_eq!(answers(&fanout, &script).await, native, "{script:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn are_refused_in_the_words_of_version_15() {
    same_rules(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn are_refused_in_the_words_of_version_18() {
    same_rules(18).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn are_refused_in_the_words_of_other_versions() {
    for major in [14, 16, 17] {
        same_rules(major).await;
    }
}

/// What was exported is there until the next command on its connection, and no longer.
#[tokio::test(flavor = "multi_thread")]
async fn that_are_exported_end_with_the_next_command() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let mut replication = Session::connect_for_replication(&endpoint).await.unwrap();
    let create = "CREATE_REPLICATION_SLOT e TEMPORARY LOGICAL pgoutput";
    let created = replication.run(create).await;
    let name = created[0][2].clone().unwrap();
    let import = format!("SET TRANSACTION SNAPSHOT '{name}'");
    let mut plain = Session::connect(&endpoint).await.unwrap();
    for _ in 0..2 {
        plain.run("BEGIN ISOLATION LEVEL REPEATABLE READ").await;
        plain.run(&import).await;
        plain.run("COMMIT").await;
    }
    let held = "select count(*) from pg_stat_activity where backend_xmin is not null \
                and pid <> pg_backend_pid() and backend_type = 'client backend'";
    assert_eq!(stage.source.value(held).await, "1");
    replication.run("IDENTIFY_SYSTEM").await;
    plain.run("BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    let error = plain.try_run(&import).await.unwrap_err();
    assert_eq!(error.code, "22023", "{error}");
    wait_until(
        "nothing holds old rows at the source",
        patience(),
        async || match stage.source.value(held).await.as_str() {
            "0" => Ok(()),
            left => Err(left.to_owned()),
        },
    )
    .await;
}

/// What a client may copy is what its own role may read at the source.
#[tokio::test(flavor = "multi_thread")]
async fn are_taken_with_the_rights_of_the_client() {
    let ddl = "create role reader login replication; create table open (id int); create table closed (id int);
        grant select on open to reader";
    let mut stage = Stage::new(15, 2, ddl).await;
    let mut endpoint = stage.decant.fanout(0).endpoint();
    endpoint.user = "reader".to_owned();
    let mut session = Session::connect_for_replication(&endpoint).await.unwrap();
    let begin = "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ";
    session.run(begin).await;
    session
        .run("CREATE_REPLICATION_SLOT r LOGICAL pgoutput USE_SNAPSHOT")
        .await;
    assert_eq!(session.value("select current_user").await, "reader");
    session.run("select * from open").await;
    let error = session.try_run("select * from closed").await.unwrap_err();
    assert_eq!(error.code, "42501", "{error}");
    // A snapshot that the source makes takes another connection for replication, whatever the session was allowed.
    stage.decant.set("fanout.snapshot_tries", 0);
    stage.decant.kill_fanout(1);
    stage.decant.restart_fanout(1).await;
    let mut endpoint = stage.decant.fanout(1).endpoint();
    endpoint.user = "reader".to_owned();
    let mut session = Session::connect_for_replication(&endpoint).await.unwrap();
    stage.source.sql("alter role reader noreplication").await;
    let error = session
        .try_run("CREATE_REPLICATION_SLOT s LOGICAL pgoutput")
        .await
        .unwrap_err();
    assert_eq!(error.code, "42501", "{error}");
    assert!(error.message.contains("walsender"), "{error}");
    stage.source.sql("alter role reader replication").await;
    session
        .run("CREATE_REPLICATION_SLOT s LOGICAL pgoutput")
        .await;
    assert_eq!(stage.source.slot_count().await, 1);
}
