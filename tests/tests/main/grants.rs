//! What a role may read: deny by default, publications, tables and columns.

use pg_proto::Lsn;
use rustix::process::Signal;
use tests::expect::assert_mentions;
use tests::scale::patience;
use tests::sql::Endpoint;
use tests::subscriber::{GrpcSubscriber, Keep, StreamClient, from_lsn, tables};
use tests::{Session, wait_until};

use super::stage::Stage;

const TABLES: &str = "
    create role reader login replication;
    create role stranger login replication;
    create table orders (id int primary key, total int, card text);
    create table cards (id int primary key);
    create publication narrow for table orders (id, total);
    create publication wide for table orders, cards;
    create publication other for table cards";

const GRANTS: &str = r#"
    [[role]]
    name = "reader"
    publications = ["narrow", "wide"]
    [[role.table]]
    schema = "public"
    name = "orders"
    columns = ["id", "total"]
    [[role]]
    name = "grpc"
    publications = ["narrow"]"#;

async fn stage() -> (Stage, std::path::PathBuf) {
    let mut stage = Stage::new(15, 0, TABLES).await;
    stage.source.sql("select decant.emit_catalog()").await;
    let file = stage.decant.home().join("grants.toml");
    std::fs::write(&file, GRANTS).unwrap();
    stage.decant.set("fanout.grants_file", file.display());
    stage.decant.start_fanout().await;
    (stage, file)
}

/// As the role that has grants, with a slot `s`.
async fn reader(stage: &mut Stage) -> Endpoint {
    let mut reader = stage.decant.fanout(0).endpoint();
    reader.user = "reader".to_owned();
    let mut session = Session::connect_for_replication(&reader).await.unwrap();
    session
        .run("CREATE_REPLICATION_SLOT s LOGICAL pgoutput NOEXPORT_SNAPSHOT")
        .await;
    reader
}

async fn start(
    endpoint: &Endpoint,
    publications: &str,
    more: &str,
) -> Result<StreamClient, String> {
    let options = format!("proto_version '1', publication_names '{publications}'{more}");
    let client = StreamClient::start(endpoint, "s", Lsn::INVALID, &options).await;
    client.map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_reads_what_it_was_granted_and_nothing_else() {
    let (mut stage, file) = stage().await;
    let reader = reader(&mut stage).await;
    stage
        .source
        .sql("insert into orders values (1, 10, 'secret')")
        .await;
    let end = stage.settle().await;

    let received = start(&reader, "narrow", "").await.unwrap();
    let received = { received }.receive_until(end, patience()).await;
    assert_eq!(received.len(), 1);

    let mut stranger = reader.clone();
    stranger.user = "stranger".to_owned();
    for (endpoint, publications, more, words) in [
        (&reader, "other", "", "publication \"other\""),
        (&reader, "narrow,other", "", "publication \"other\""),
        (&reader, "narrow", ", messages 'true'", "logical messages"),
        (&stranger, "narrow", "", "publication \"narrow\""),
    ] {
        let error = start(endpoint, publications, more).await.unwrap_err();
        assert_mentions(&error, &["42501", "permission denied for", words]);
    }
    // At the start or at the first change: nothing of it is sent.
    let error = match start(&reader, "wide", "").await {
        Ok(mut client) => client.receive_error(patience()).await.to_string(),
        Err(error) => error,
    };
    assert_mentions(&error, &["42501", "permission denied for"]);

    // What is taken away is taken away for who comes from then on.
    std::fs::write(&file, "").unwrap();
    stage.decant.fanout(0).process().signal(Signal::HUP);
    wait_until(
        "the grants are read again",
        patience(),
        async || match start(&reader, "narrow", "").await {
            Ok(_) => Err("still granted".to_owned()),
            Err(error) if error.contains("42501") => Ok(()),
            Err(error) => Err(error),
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_clients_are_a_role_of_their_own() {
    let (mut stage, _) = stage().await;
    let url = stage.decant.fanout(0).grpc_url();
    stage
        .source
        .sql("insert into orders values (1, 10, 'secret')")
        .await;
    let end = stage.settle().await;
    let mut request = from_lsn(Lsn::INVALID);
    request.publications = vec!["narrow".to_owned()];
    let subscriber = GrpcSubscriber::start(url.clone(), request.clone(), Keep::Rows);
    subscriber.wait_for(end, patience()).await;
    assert_eq!(subscriber.stop().await.changes, 1);
    request.publications = vec!["wide".to_owned()];
    let mut everything = from_lsn(Lsn::INVALID);
    everything.tables = tables(&["orders"]);
    for denied in [request, everything] {
        let subscriber = GrpcSubscriber::start(url.clone(), denied, Keep::Rows);
        let error = subscriber.wait_for_error(patience()).await;
        assert_mentions(&error, &["PermissionDenied", "permission denied for"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn publications_of_decants_own_are_granted_like_the_others() {
    let (mut stage, file) = stage().await;
    for (name, table) in [
        ("mine", "orders (id, total) where (total > 5)"),
        ("whole", "orders where (total > 5)"),
        ("hidden", "orders (id, total)"),
    ] {
        stage
            .decant
            .decctl_successfully(&["publication", "create", name, "--table", table]);
    }
    let granted = GRANTS.replace("\"narrow\"", "\"narrow\", \"mine\", \"whole\"");
    std::fs::write(&file, granted).unwrap();
    stage.decant.stop_fanout(0).await;
    stage.decant.restart_fanout(0).await;
    let reader = reader(&mut stage).await;
    stage
        .source
        .sql("insert into orders values (1, 10, 'secret'), (2, 1, 'secret')")
        .await;
    let end = stage.settle().await;
    let received = start(&reader, "mine", "").await.unwrap();
    let received = { received }.receive_until(end, patience()).await;
    assert_eq!(received.len(), 1);
    for (publications, words) in [
        ("whole", "column \"card\""),
        ("mine,hidden", "publication \"hidden\""),
    ] {
        let error = match start(&reader, publications, "").await {
            Ok(mut client) => client.receive_error(patience()).await.to_string(),
            Err(error) => error,
        };
        assert_mentions(&error, &["42501", "permission denied for", words]);
    }
    let url = stage.decant.fanout(0).grpc_url();
    let mut request = from_lsn(Lsn::INVALID);
    request.publications = vec!["hidden".to_owned()];
    let subscriber = GrpcSubscriber::start(url, request, Keep::Rows);
    let error = subscriber.wait_for_error(patience()).await;
    assert_mentions(&error, &["PermissionDenied", "publication \"hidden\""]);
}

/// Also what counts from an older position is no more than what was granted.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_start_of_a_publication_grants_nothing() {
    let (mut stage, file) = stage().await;
    let granted = GRANTS.replace("\"narrow\"", "\"narrow\", \"late\"");
    std::fs::write(&file, granted).unwrap();
    stage.decant.stop_fanout(0).await;
    stage.decant.restart_fanout(0).await;
    let reader = reader(&mut stage).await;
    let first = stage.settle().await.to_string();
    let rows = "insert into orders values (1, 10, 'secret'); insert into cards values (1)";
    stage.source.sql(rows).await;
    let decctl = |what: &str, name: &str, table: &str| {
        let all = [
            "publication",
            what,
            name,
            "--table",
            table,
            "--from",
            &first,
        ];
        stage.decant.decctl_successfully(&all);
    };
    decctl("create", "mine", "orders (id, total)");
    for (what, publication, table, words) in [
        ("alter", "mine", "orders (id)", "publication \"mine\""),
        ("create", "late", "orders", "column \"card\""),
        ("alter", "late", "orders (id), cards", "cards"),
    ] {
        decctl(what, publication, table);
        let error = match start(&reader, publication, "").await {
            Ok(mut client) => {
                let (_, error) = client.receive_until_or_error(Lsn::MAX, patience()).await;
                error.expect("it ends").to_string()
            }
            Err(error) => error,
        };
        assert_mentions(&error, &["42501", "permission denied for", words]);
    }
    decctl("alter", "late", "orders (id, total)");
    let end = stage.settle().await;
    let received = start(&reader, "late", "").await.unwrap();
    let received = { received }.receive_until(end, patience()).await;
    assert_eq!(received.len(), 1);
}
