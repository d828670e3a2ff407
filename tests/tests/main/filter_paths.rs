//! Who evaluates a subscriber's row filters, and why: in its status.

use serde_json::Value;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, from_lsn};
use tests::wait_until;

use super::stage::Stage;

const TABLES: &str = "
    create table t (id int, v text, primary key (id, v));
    create publication here for table t where (id > 10);
    create publication by_key for table t where (id = 15);
    create publication by_key_too for table t where (id = 16);
    create publication at_source for table t where (v ~ '^[a]' and id > 0);
    create publication at_source_by_key for table t where (id = 15 and v ~ '^[b]')";

const PUBLICATIONS: [&str; 5] = [
    "here",
    "by_key",
    "by_key_too",
    "at_source",
    "at_source_by_key",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_subscriber_says_who_judged_its_rows() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    stage.wait_for_publication("at_source_by_key").await;
    stage
        .source
        .sql("insert into t values (0, 'described')")
        .await;
    let start = stage.settle().await;
    let url = stage.decant.fanout(0).grpc_url();
    let subscriber = |publication: &str| {
        let mut request = from_lsn(start);
        request.publications = vec![publication.to_owned()];
        GrpcSubscriber::start(url.clone(), request, Keep::Counts)
    };
    let subscribers = PUBLICATIONS.map(subscriber);
    let sql = "insert into t select g, case when g % 2 = 0 then 'a' else 'b' end from generate_series(1, 20) g";
    stage.source.sql(sql).await;
    let end = stage.settle().await;
    for subscriber in &subscribers {
        subscriber.wait_for(end, patience()).await;
    }
    let set = format!("fanout.grpc={}", stage.decant.fanout(0).grpc_address());
    let arguments = ["--set", &set, "status", "--fanout", "--json"];
    let status = wait_until("all subscribers are shown", patience(), async || {
        let text = stage.decant.decctl_successfully(&arguments);
        let status: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let shown = status["fanout"]["subscribers"].as_array().cloned();
        let shown = shown.unwrap_or_default();
        (shown.len() == PUBLICATIONS.len())
            .then_some(shown)
            .ok_or(text)
    })
    .await;
    let of = |name: &str| {
        let mut all = status.iter();
        let one = all.find(|one| one["publications"][0] == name);
        one.unwrap_or_else(|| panic!("no {name}"))["filtered"].clone()
    };
    let here = of("here");
    assert_eq!((&here["native"], &here["source"]), (&20.into(), &0.into()));
    assert_eq!(here["by_source"], Value::Array(Vec::new()));
    // One of two is the first to ask, and has no index.
    for name in ["by_key", "by_key_too"] {
        let rows = |path: &str| of(name)[path].as_u64().unwrap();
        assert_eq!(rows("native") + rows("index"), 20, "{name}");
        assert_eq!(rows("source"), 0, "{name}");
    }
    // The source is asked about the rows that it has to judge.
    let in_part = of("at_source_by_key");
    let rows = |path: &str| in_part[path].as_u64().unwrap();
    assert_eq!((rows("native") + rows("index"), rows("source")), (19, 1));
    let at_source = of("at_source");
    assert_eq!(at_source["source"], 20);
    let by_source = at_source["by_source"][0].as_str().unwrap();
    tests::expect::assert_mentions(
        by_source,
        &[
            "^[a]",
            "textregexeq is evaluated here for certain constants only",
        ],
    );
    let text = stage
        .decant
        .decctl_successfully(&["--set", &set, "status", "--fanout"]);
    tests::expect::assert_mentions(&text, &["0/0/20", "the source evaluates"]);
}
