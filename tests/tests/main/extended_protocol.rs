//! Ordinary connections through a fanout: the extended query protocol, and what is said about slots.

use futures_util::{SinkExt, StreamExt, pin_mut};
use pg_proto::Lsn;
use tests::scale::patience;
use tests::sql::Endpoint;
use tests::subscriber::StreamClient;
use tests::wait_until;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{PgLsn, Type};
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

use super::stage::{PUBLICATION, Stage};

const TABLE: &str = "create table t (id int primary key, v text)";

async fn connect(endpoint: &Endpoint) -> Client {
    let (client, connection) = tokio_postgres::connect(&endpoint.conninfo(), NoTls)
        .await
        .unwrap();
    // Ends with the client.
    tokio::spawn(connection);
    client
}

fn state(error: &Error) -> String {
    let code = error.code().map(SqlState::code);
    code.unwrap_or_default().to_owned()
}

async fn slots(client: &Client) -> Vec<String> {
    let sql = "select slot_name::text from pg_replication_slots order by 1";
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_run_at_the_source() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let mut client = connect(&stage.decant.fanout(0).endpoint()).await;
    let inserted = client
        .execute(
            "insert into t select i, $1 || i from generate_series(1, $2) i",
            &[&"v", &1000],
        )
        .await
        .unwrap();
    assert_eq!(inserted, 1000);
    let select = client
        .prepare_typed(
            "select id, v from t where id > $1 order by id",
            &[Type::INT4],
        )
        .await
        .unwrap();
    // Many at once on the way, with an error among them.
    let wrong = client.prepare("select 1 / ($1::int4)").await.unwrap();
    let (a, error, b) = tokio::join!(
        client.query(&select, &[&998]),
        client.query(&wrong, &[&0]),
        client.query(&select, &[&0]),
    );
    assert_eq!((a.unwrap().len(), b.unwrap().len()), (2, 1000));
    assert_eq!(state(&error.unwrap_err()), "22012");

    // A portal that is read in parts, in a transaction.
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind(&select, &[&0]).await.unwrap();
    let mut sum = 0;
    loop {
        let rows = transaction.query_portal(&portal, 300).await.unwrap();
        if rows.is_empty() {
            break;
        }
        sum += rows.iter().map(|row| row.get::<_, i32>(0)).sum::<i32>();
    }
    assert_eq!(sum, 500_500);
    transaction.rollback().await.unwrap();

    copy(&client).await;
    let query = "select v from t where id = 5; select 1 where false";
    let answers = client.simple_query(query).await.unwrap();
    let rows = answers
        .iter()
        .filter(|answer| matches!(answer, SimpleQueryMessage::Row(_)));
    assert_eq!(rows.count(), 1);
    cancel(&client).await;
}

async fn copy(client: &Client) {
    let rows: Vec<String> = (2001..2501).map(|id| format!("{id}\tx\n")).collect();
    let sink = client.copy_in("copy t from stdin").await.unwrap();
    pin_mut!(sink);
    for row in &rows {
        sink.send(bytes::Bytes::from(row.clone())).await.unwrap();
    }
    assert_eq!(sink.finish().await.unwrap(), 500);
    let broken = client.copy_in("copy t from stdin").await.unwrap();
    pin_mut!(broken);
    broken.send(bytes::Bytes::from("none\n")).await.unwrap();
    assert_eq!(state(&broken.finish().await.unwrap_err()), "22P02");
    let out = client.copy_out("copy (select id from t where id > 2000 order by 1) to stdout");
    let out: Vec<_> = out.await.unwrap().collect().await;
    assert_eq!(out.len(), 500);
}

async fn cancel(client: &Client) {
    let sleeping = client.query("select pg_sleep(600)", &[]);
    assert_cancelled(client, async { sleeping.await.map(drop) }).await;
}

/// Before a statement about slots the source is asked for the arguments: to the client all of it is one statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_to_cancel_reaches_what_is_asked_before_a_statement() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let client = connect(&stage.decant.fanout(0).endpoint()).await;
    let sql = "select pg_drop_replication_slot('none') from pg_sleep(600)";
    assert_cancelled(&client, async { client.query(sql, &[]).await.map(drop) }).await;
    let simple = async { client.simple_query(sql).await.map(drop) };
    assert_cancelled(&client, simple).await;
}

async fn assert_cancelled(client: &Client, sleeping: impl Future<Output = Result<(), Error>>) {
    let token = client.cancel_token();
    let cancelling = async {
        // It may come before the statement does.
        loop {
            token.cancel_query(NoTls).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        slept = sleeping => assert_eq!(state(&slept.unwrap_err()), "57014"),
        () = cancelling => {}
    }
    let rows = client.query("select 1", &[]).await.unwrap();
    assert_eq!(rows.len(), 1);
}

/// What Debezium and pgjdbc ask.
const OF_DEBEZIUM: &str =
    "select * from pg_replication_slots where slot_name = $1 and database = $2 and plugin = $3";

#[tokio::test(flavor = "multi_thread")]
async fn slots_are_those_of_the_fanout_in_every_version() {
    for major in [15, 18] {
        let mut stage = Stage::new(major, 1, TABLE).await;
        let source = connect(&stage.source.endpoint()).await;
        let client = connect(&stage.decant.fanout(0).endpoint()).await;
        assert_eq!(slots(&client).await, Vec::<String>::new());
        let created = client
            .query_one(
                "select slot_name::text, lsn from pg_create_logical_replication_slot($1, 'pgoutput', false, true)",
                &[&"one"],
            )
            .await
            .unwrap();
        assert_eq!(created.get::<_, String>(0), "one");
        let at: PgLsn = created.get(1);

        let statement = client.prepare(OF_DEBEZIUM).await.unwrap();
        let of_source = source.prepare(OF_DEBEZIUM).await.unwrap();
        let columns = |statement: &tokio_postgres::Statement| {
            let columns = statement.columns().iter();
            columns
                .map(|column| (column.name().to_owned(), column.type_().clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(columns(&statement), columns(&of_source));
        assert_eq!(statement.params(), of_source.params());
        let row = client
            .query_one(&statement, &[&"one", &"postgres", &"pgoutput"])
            .await
            .unwrap();
        assert_eq!(row.get::<_, PgLsn>("confirmed_flush_lsn"), at);
        assert!(!row.get::<_, bool>("active"));
        assert!(row.get::<_, bool>("two_phase"));
        let oid = source
            .query_one(
                "select oid from pg_database where datname = 'postgres'",
                &[],
            )
            .await
            .unwrap();
        assert_eq!(row.get::<_, u32>("datoid"), oid.get::<_, u32>(0));

        // The same statement later sees what is then.
        for name in ["two", "three"] {
            let copy = "select pg_copy_logical_replication_slot('one', $1)::text";
            client.query_one(copy, &[&name]).await.unwrap();
        }
        assert_eq!(slots(&client).await, ["one", "three", "two"]);
        let dropped = client
            .query(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name <> $1",
                &[&"one"],
            )
            .await
            .unwrap();
        assert_eq!(dropped.len(), 2);
        assert_eq!(slots(&client).await, ["one"]);
        // Nothing of this was at the source.
        let of_source = "select slot_name::text from pg_replication_slots";
        let rows = source.query(of_source, &[]).await.unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].get::<_, String>(0), "decant");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_functions_about_slots_refuse_is_as_at_postgresql() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let mut client = connect(&stage.decant.fanout(0).endpoint()).await;
    let create = "select pg_create_logical_replication_slot($1, $2)::text";
    client.query(create, &[&"one", &"pgoutput"]).await.unwrap();
    for (name, plugin, code) in [
        ("one", "pgoutput", "42710"),
        ("One", "pgoutput", "42602"),
        ("two", "nothing", "58P01"),
    ] {
        let error = client.query(create, &[&name, &plugin]).await.unwrap_err();
        assert_eq!(state(&error), code, "{name} {plugin}");
    }
    for (statement, code) in [
        ("select pg_drop_replication_slot('none')", "42704"),
        ("select pg_replication_slot_advance('one', '0/1')", "55000"),
        ("select pg_create_physical_replication_slot('p')", "0A000"),
        ("select count(pg_drop_replication_slot('one'))", "0A000"),
        (
            "do $$ begin perform pg_drop_replication_slot('one'); end $$",
            "0A000",
        ),
        (
            "select * from pg_logical_slot_peek_changes('one', null, null)",
            "0A000",
        ),
    ] {
        // By both protocols, alone and in a transaction, which has failed then.
        let error = client.query(statement, &[]).await.unwrap_err();
        assert_eq!(state(&error), code, "{statement}: {error}");
        let error = client.simple_query(statement).await.unwrap_err();
        assert_eq!(state(&error), code, "{statement}: {error}");
        let transaction = client.transaction().await.unwrap();
        let error = transaction.query(statement, &[]).await.unwrap_err();
        assert_eq!(state(&error), code, "{statement}: {error}");
        let error = transaction.query("select 1", &[]).await.unwrap_err();
        assert_eq!(state(&error), "25P02");
        let error = transaction.query(statement, &[]).await.unwrap_err();
        assert_eq!(state(&error), "25P02");
        transaction.rollback().await.unwrap();
    }
    assert_eq!(slots(&client).await, ["one"]);
    stage.source.sql("create role plain login").await;
    let mut endpoint = stage.decant.fanout(0).endpoint();
    "plain".clone_into(&mut endpoint.user);
    let plain = connect(&endpoint).await;
    let error = plain.query("select pg_drop_replication_slot('one')", &[]);
    assert_eq!(state(&error.await.unwrap_err()), "42501");
    assert_eq!(slots(&plain).await, ["one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_is_moved_on_and_its_walsender_ended_by_functions() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let client = connect(&endpoint).await;
    client
        .query(
            "select pg_create_logical_replication_slot('one', 'pgoutput')",
            &[],
        )
        .await
        .unwrap();
    stage.source.sql("insert into t values (1, 'x')").await;
    let end = stage.settle().await;
    let row = client
        .query_one(
            "select end_lsn from pg_replication_slot_advance('one', $1)",
            &[&PgLsn::from(end.0)],
        )
        .await
        .unwrap();
    let moved: PgLsn = row.get(0);
    assert!(u64::from(moved) > 0 && u64::from(moved) <= end.0);

    let options = format!("proto_version '1', publication_names '{PUBLICATION}'");
    let mut stream = StreamClient::start(&endpoint, "one", Lsn::INVALID, &options)
        .await
        .unwrap();
    let senders = "select pid, state, sent_lsn from pg_stat_replication";
    wait_until("the stream is listed", patience(), async || {
        let rows = client.query(senders, &[]).await.unwrap();
        if rows.len() == 1 {
            Ok(())
        } else {
            Err(format!("{} rows", rows.len()))
        }
    })
    .await;
    let active = "select pg_terminate_backend(active_pid) from pg_replication_slots where active";
    let row = client.query_one(active, &[]).await.unwrap();
    assert!(row.get::<_, bool>(0));
    let error = stream.receive_error(patience()).await;
    assert_eq!(error.code, "57P01");
    let other =
        "select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'no such'";
    assert!(client.query(other, &[]).await.unwrap().is_empty());
}
