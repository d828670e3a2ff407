//! The operator's command line on a running log.

use serde_json::Value;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, from_slot};
use tests::wait_until;

use super::stage::Stage;

const TABLE: &str = "create table t (id int primary key, v text)";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(json).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn status_segments_and_dump_say_what_there_is() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    stage
        .source
        .sql("insert into t values (1, 'a \"quoted\" value'), (2, null)")
        .await;
    let end = stage.settle().await;

    let status = json(&stage.decant.decctl_successfully(&["status", "--json"]));
    assert_eq!(status["source"]["state"], "streaming");
    assert_eq!(status["source"]["catalog_mode"], "event triggers");
    assert_eq!(status["log"]["segments"], 1);
    let set = format!("fanout.grpc={}", stage.decant.fanout(0).grpc_address());
    let both = ["--set", &set, "status", "--fanout", "--json"];
    wait_until("the fanout has found the decoder", patience(), async || {
        let status = json(&stage.decant.decctl_successfully(&both));
        assert_eq!(status["fanout"]["name"], "fanout-0");
        let connected = status["fanout"]["decoder_connected"] == true;
        connected.then_some(()).ok_or_else(|| status.to_string())
    })
    .await;

    // These read files: they work without the decoder too.
    stage.decant.stop_decoder().await;
    let segments = json(&stage.decant.decctl_successfully(&["segments", "--json"]));
    assert_eq!(segments.as_array().map(Vec::len), Some(1));
    let dump = json_lines(&stage.decant.decctl_successfully(&["dump", "--json"]));
    let inserts = dump.iter().filter(|line| line["kind"] == "insert");
    let values: Vec<&Value> = inserts.map(|line| &line["new"]["v"]).collect();
    assert_eq!(values, [&Value::from("a \"quoted\" value"), &Value::Null]);
    let behind = ["dump", "--json", "--from", &end.to_string()];
    let dump = json_lines(&stage.decant.decctl_successfully(&behind));
    assert!(dump.iter().all(|line| line["kind"] != "insert"), "{dump:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_are_created_listed_served_and_dropped() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    stage.source.sql("insert into t values (1, 'before')").await;
    let first = stage.settle().await;
    stage.source.sql("insert into t values (2, 'after')").await;
    let end = stage.settle().await;

    stage
        .decant
        .decctl_successfully(&["slot", "create", "at_head"]);
    let at = ["slot", "create", "earlier", "--at", &first.to_string()];
    stage.decant.decctl_successfully(&at);
    let slots = json(
        &stage
            .decant
            .decctl_successfully(&["slot", "list", "--json"]),
    );
    let names: Vec<_> = slots
        .as_array()
        .unwrap()
        .iter()
        .map(|slot| &slot["name"])
        .collect();
    assert_eq!(names, ["at_head", "earlier"]);
    let again = stage
        .decant
        .decctl_unsuccessfully(&["slot", "create", "earlier"]);
    tests::expect::assert_mentions(&again, &["earlier", "already exists"]);

    let url = stage.decant.fanout(0).grpc_url();
    let subscriber = GrpcSubscriber::start(url, from_slot("earlier"), Keep::Rows);
    subscriber.wait_for(end, patience()).await;
    subscriber.look(|received| assert_eq!(received.changes, 1));
    let active = stage
        .decant
        .decctl_unsuccessfully(&["slot", "drop", "earlier"]);
    tests::expect::assert_mentions(&active, &["earlier", "fanout-0"]);
    stage
        .decant
        .decctl_successfully(&["slot", "drop", "earlier", "--force"]);
    stage
        .decant
        .decctl_successfully(&["slot", "drop", "at_head"]);
    let missing = stage
        .decant
        .decctl_unsuccessfully(&["slot", "drop", "at_head"]);
    tests::expect::assert_mentions(&missing, &["at_head", "does not exist"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_prints_changes() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    stage
        .source
        .sql("insert into t values (1, 'x'); update t set v = 'y'; delete from t; truncate t")
        .await;
    stage
        .source
        .sql("select pg_logical_emit_message(true, 'note', 'text')")
        .await;
    let end = stage.settle().await;
    let set = format!("fanout.grpc={}", stage.decant.fanout(0).grpc_address());
    let until = end.to_string();
    let tail = [
        "--set",
        &set,
        "tail",
        "--json",
        "--messages",
        "--from",
        "0/0",
        "--until",
        &until,
    ];
    let output = stage.decant.decctl(&tail);
    let text = tests::decant::text_of(&output);
    assert!(output.status.success(), "{text}");
    let kinds: Vec<Value> = json_lines(&String::from_utf8_lossy(&output.stdout))
        .into_iter()
        .map(|line| line["kind"].clone())
        .collect();
    assert_eq!(kinds, ["insert", "update", "delete", "truncate", "message"]);
}
