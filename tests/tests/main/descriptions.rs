//! RELATION and TYPE stand where a native stream has them, also where they say nothing new: after `ANALYZE`, `GRANT` and
//! whatever else invalidates a relation.
//!
//! The decoder follows each statement before the next one runs. Otherwise its walsender may hear of an invalidation through
//! shared memory before it comes to the rows that lie before it in the WAL, and describe the relation twice: where that
//! happens is a matter of time, with two native slots, too. For the same reason no transaction here has rows before such a
//! statement.

use pg_proto::Lsn;
use pg_proto::pgoutput::{Framing, Message, decode};
use tests::Session;
use tests::scale::patience;
use tests::subscriber::{PieceClient, Unit};

use super::stage::Stage;

const TABLES: &str = "
    create type mood as enum ('sad', 'ok');
    create table a (id int primary key, v text, m mood);
    create table b (id int primary key, v text);
    create table c (id int primary key, v text);
    create role somebody;
    create publication only_inserts for table a, b with (publish = 'insert')";

/// Each is followed by an insert into `a` and one into `b`.
const STATEMENTS: &[&str] = &[
    "select 1",
    "analyze a",
    "vacuum a",
    "grant select on a to somebody",
    "alter table a owner to somebody",
    "alter table a set (fillfactor = 90)",
    "alter table a alter v set statistics 50",
    "alter table a alter v set default 'x'",
    "alter table a add constraint positive check (id > 0)",
    "create index on a (v)",
    "reindex table a",
    "cluster a using a_pkey",
    "truncate a",
    "comment on table a is 'nothing changes'",
    "create publication another for table a",
    "alter publication another set (publish = 'insert')",
    "drop publication another",
    "alter table a rename v to w",
    "begin; alter table a set (fillfactor = 80); insert into a (id) values (1001); commit",
    "update b set v = 'u'; delete from b",
    "alter table b replica identity full",
    "update b set v = 'u'; delete from b",
    "insert into c values (1)",
    "analyze",
];

#[tokio::test(flavor = "multi_thread")]
async fn they_are_repeated_where_version_15_repeats_them() {
    compare(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_repeated_where_version_18_repeats_them() {
    compare(18).await;
}

async fn compare(major: u32) {
    let mut stage = Stage::new(major, 1, TABLES).await;
    let endpoints = [stage.source.endpoint(), stage.decant.fanout(0).endpoint()];
    let subscriptions = [("s_all", "everything"), ("s_inserts", "only_inserts")];
    for endpoint in &endpoints {
        let mut session = Session::connect_for_replication(endpoint).await.unwrap();
        for (slot, _) in subscriptions {
            let sql = format!("CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput NOEXPORT_SNAPSHOT");
            session.run(&sql).await;
        }
    }
    let mut session = stage.source.session().await;
    for (number, statement) in STATEMENTS.iter().enumerate() {
        session.run(statement).await;
        stage.settle().await;
        for table in ["a", "b"] {
            let sql = format!("insert into {table} (id) values ({})", number + 1);
            session.run(&sql).await;
        }
        stage.settle().await;
    }
    let end = stage.settle().await;
    for (slot, publication) in subscriptions {
        let options = format!("proto_version '1', publication_names '{publication}'");
        let mut streams = Vec::new();
        for endpoint in &endpoints {
            let client = PieceClient::start(endpoint, slot, Lsn::INVALID, &options).await;
            let units = client.unwrap().receive_until(end, patience()).await;
            streams.push(units.iter().map(messages).collect::<Vec<_>>());
        }
        let [native, fanout] = streams.as_slice() else {
            unreachable!("two streams");
        };
        for (number, (native, fanout)) in native.iter().zip(fanout).enumerate() {
            assert_eq!(native, fanout, "{publication}: transaction {number}");
        }
        assert_eq!(native.len(), fanout.len(), "{publication}");
    }
}

/// What a unit consists of: rows by their table, descriptions whole.
fn messages(unit: &Unit) -> Vec<String> {
    let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    unit.iter()
        .map(
            |piece| match decode(&piece.payload, Framing::Plain).unwrap() {
                Message::Relation(relation) => {
                    let columns = relation.columns.iter().map(|column| name(column.name));
                    let columns: Vec<String> = columns.collect();
                    format!("RELATION {} {:?}", name(relation.name), columns)
                }
                Message::Type(one) => format!("TYPE {}", name(one.name)),
                Message::Change(change) => format!("row of {}", change.relation()),
                Message::Begin(begin) => format!("BEGIN {}", begin.final_lsn),
                other => format!("{other:?}"),
            },
        )
        .collect()
}
