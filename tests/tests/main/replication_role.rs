//! Who may replicate: the attribute REPLICATION of the source's roles, also while the source is away.

use pg_proto::Lsn;
use tests::Session;
use tests::cluster::Stop;
use tests::expect::assert_mentions;
use tests::scale::patience;
use tests::sql::{Endpoint, Row, SqlError};
use tests::subscriber::StreamClient;

use super::stage::{PUBLICATION, Stage};

const SETUP: &str = "
    create table t (id int primary key);
    create role \"re'pl\\\" login replication;
    create role other login replication;
    create role root login superuser;
    create role plain login;
    create role locked nologin replication";

const REPLICATOR: &str = "re'pl\\";

fn as_role(endpoint: &Endpoint, user: &str) -> Endpoint {
    Endpoint {
        user: user.to_owned(),
        ..endpoint.clone()
    }
}

async fn identify(endpoint: &Endpoint, mode: &str) -> Result<Row, SqlError> {
    let mut session = Session::connect_with(endpoint, &[("replication", mode)]).await?;
    let mut row = session.try_run("IDENTIFY_SYSTEM").await?.remove(0);
    // The position is one of the moment.
    row[2] = None;
    Ok(row)
}

async fn roles_are_judged_as_by_the_source(major: u32) {
    let mut stage = Stage::new(major, 1, SETUP).await;
    let fanout = stage.decant.fanout(0).endpoint();
    let source = stage.source.endpoint();
    for user in [REPLICATOR, "root", "plain", "locked", "nobody", "PLAIN"] {
        for mode in ["database", "true"] {
            for database in ["postgres", "nowhere"] {
                let of = |endpoint: &Endpoint| {
                    let mut endpoint = as_role(endpoint, user);
                    database.clone_into(&mut endpoint.database);
                    endpoint
                };
                let native = identify(&of(&source), mode).await;
                let mut served = identify(&of(&fanout), mode).await;
                if let Err(error) = &mut served {
                    // A fanout has one database and says which.
                    let own = error.message.find("\nDETAIL: The changes of database");
                    error.message.truncate(own.unwrap_or(error.message.len()));
                }
                assert_eq!(native, served, "{user} {mode} {database}");
            }
        }
    }
    // An attribute counts from the next connection on.
    stage.source.sql("alter role plain replication").await;
    identify(&as_role(&fanout, "plain"), "database")
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_judged_as_by_version_15() {
    roles_are_judged_as_by_the_source(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_judged_as_by_version_18() {
    roles_are_judged_as_by_the_source(18).await;
}

async fn stream(endpoint: &Endpoint, slot: &str) -> Result<StreamClient, SqlError> {
    let options = format!("proto_version '1', publication_names '{PUBLICATION}'");
    StreamClient::start(endpoint, slot, Lsn::INVALID, &options).await
}

/// A fanout that begins while the source is away knows no roles. Who made a slot may go on with it, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_comes_back_to_a_new_fanout_while_the_source_is_away() {
    let mut stage = Stage::new(15, 1, SETUP).await;
    let fanout = stage.decant.fanout(0).endpoint();
    let replicator = as_role(&fanout, REPLICATOR);
    let other = as_role(&fanout, "other");
    for (endpoint, slot) in [(&replicator, "own"), (&other, "others")] {
        let mut session = Session::connect_for_replication(endpoint).await.unwrap();
        let create =
            format!("CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput (SNAPSHOT 'nothing')");
        session.run(&create).await;
    }
    let decctl = |arguments: &[&str]| stage.decant.decctl_successfully(arguments);
    decctl(&["slot", "create", "made_for_it", "--owner", REPLICATOR]);
    decctl(&["slot", "clone", "made_for_it", "as_the_other"]);
    decctl(&[
        "slot",
        "clone",
        "made_for_it",
        "given_away",
        "--owner",
        "other",
    ]);
    decctl(&["slot", "create", "of_nobody"]);
    stage.source.sql("insert into t values (1)").await;
    let end = stage.settle().await;
    // As long as the source can be asked, any role that may replicate may use any slot.
    drop(stream(&replicator, "of_nobody").await.unwrap());
    let refused = identify(&as_role(&fanout, "plain"), "database").await;
    assert_eq!(refused.unwrap_err().code, "42501");

    stage.source.stop(Stop::Fast).await;
    // What was known is known still.
    let refused = identify(&as_role(&fanout, "plain"), "database").await;
    assert_eq!(refused.unwrap_err().code, "42501");
    let mut session = Session::connect_for_replication(&other).await.unwrap();
    session.run("READ_REPLICATION_SLOT nothing").await;

    stage.decant.stop_fanout(0).await;
    stage.decant.restart_fanout(0).await;
    for slot in ["own", "made_for_it", "as_the_other"] {
        let mut own = stream(&replicator, slot).await.unwrap();
        let transactions = own.receive_until(end, patience()).await;
        assert_eq!(transactions.len(), 1, "{slot}");
    }
    for slot in ["others", "given_away", "of_nobody"] {
        let error = stream(&replicator, slot).await.map(drop).unwrap_err();
        assert_eq!(error.code, "08006", "{slot}");
        let words = ["re'pl", "source", "slots that it made", "--owner"];
        assert_mentions(&error.message, &words);
    }
    let mut session = Session::connect_for_replication(&replicator).await.unwrap();
    session.run("IDENTIFY_SYSTEM").await;
    for command in [
        "CREATE_REPLICATION_SLOT new LOGICAL pgoutput (SNAPSHOT 'nothing')",
        "DROP_REPLICATION_SLOT others",
        "DROP_REPLICATION_SLOT own",
        "READ_REPLICATION_SLOT own",
    ] {
        let error = session.try_run(command).await.unwrap_err();
        assert_eq!(error.code, "08006", "{command}");
    }

    stage.source.start().await;
    tests::wait_until("the source is asked again", patience(), async || {
        let dropped = session.try_run("DROP_REPLICATION_SLOT own").await;
        dropped.map(drop).map_err(|error| error.to_string())
    })
    .await;
}
