//! `decctl verify`: damage is found, set aside, and never passed in silence; the log against the source.

use std::path::Path;

use pg_proto::Lsn;
use serde_json::Value;
use tests::expect::assert_mentions;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, StreamClient, from_lsn};
use tests::wait_until;

use super::stage::Stage;

const TABLE: &str = "create table t (id int primary key, v text)";
const OPTIONS: &str = "proto_version '1', publication_names 'everything'";

/// A log with several sealed segments.
async fn stage() -> Stage {
    let mut stage = Stage::new(15, 0, TABLE).await;
    stage.decant.stop_decoder().await;
    stage.decant.set("log.segment_bytes", 1 << 20);
    stage.decant.start_decoder().await;
    for step in 0..8 {
        let sql = format!(
            "insert into t select g, md5(g::text) || md5((g * 3)::text) \
             from generate_series({step} * 10000, {step} * 10000 + 8000) g"
        );
        stage.source.sql(&sql).await;
    }
    stage.settle().await;
    wait_until("segments are sealed", patience(), async || {
        let names = stage.decant.segment_files();
        match names.iter().filter(|name| name.ends_with(".idx")).count() {
            0..4 => Err(format!("{names:?}")),
            _ => Ok(()),
        }
    })
    .await;
    stage
}

fn report(stage: &Stage, arguments: &[&str]) -> Value {
    let arguments: Vec<&str> = [&["verify", "--json"], arguments].concat();
    let output = stage.decant.decctl(&arguments);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", tests::decant::text_of(&output));
    })
}

/// Changes a byte in the middle of a file, under a reader's map too: as a disk would.
fn damage(path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[byte[0] ^ 0x55], middle).unwrap();
}

fn lsn(value: &Value) -> Lsn {
    value.as_str().and_then(|text| text.parse().ok()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_set_aside_and_readers_get_the_gap() {
    let mut stage = stage().await;
    // Beside a decoder at work.
    let sound = report(&stage, &[]);
    assert_eq!(sound["sound"], true, "{sound:#}");
    assert_eq!(sound["beside_a_decoder"], true);
    assert!(sound["transactions"].as_u64() >= Some(8), "{sound:#}");

    let names = stage.decant.segment_files();
    let sealed: Vec<&String> = names.iter().filter(|name| name.ends_with(".seg")).collect();
    let folder = stage.decant.log_directory().join("segments");
    damage(&folder.join(sealed[1]));
    let text = stage.decant.decctl_unsuccessfully(&["verify"]);
    assert_mentions(&text, &[sealed[1], "offset", "expected", "--quarantine"]);
    // Not while somebody writes.
    let busy = stage
        .decant
        .decctl_unsuccessfully(&["verify", "--quarantine"]);
    assert_mentions(&busy, &["locked"]);

    stage.decant.start_fanout().await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let mut session = tests::Session::connect_for_replication(&endpoint)
        .await
        .unwrap();
    let oldest = lsn(&sound["first_lsn"]);
    session
        .run("CREATE_REPLICATION_SLOT slow LOGICAL pgoutput (SNAPSHOT 'nothing')")
        .await;
    stage.decant.stop_decoder().await;
    let after = report(&stage, &["--quarantine"]);
    assert_eq!(after["sound"], true, "{after:#}");
    let (from, to) = (lsn(&after["gaps"][0]["from"]), lsn(&after["gaps"][0]["to"]));
    let kept = after["actions"][0]["file"].as_str().unwrap();
    assert!(Path::new(kept).exists(), "{kept}");
    stage.decant.start_decoder().await;

    // gRPC, with both positions.
    let url = stage.decant.fanout(0).grpc_url();
    let subscriber = GrpcSubscriber::start(url.clone(), from_lsn(oldest), Keep::Counts);
    let error = subscriber.wait_for_error(patience()).await;
    assert_mentions(&error, &["DataLoss", &from.to_string(), &to.to_string()]);
    // PostgreSQL's protocol.
    let create = ["slot", "create", "old", "--at", &oldest.to_string()];
    stage.decant.decctl_successfully(&create);
    let mut client = StreamClient::start(&endpoint, "old", from, OPTIONS)
        .await
        .unwrap();
    let error = client.receive_error(patience()).await;
    assert_eq!(error.code, "XX001", "{error}");
    assert_mentions(&error.to_string(), &[&from.to_string(), &to.to_string()]);
    // Behind the gap all goes on.
    stage.source.sql("insert into t values (-1, 'x')").await;
    let end = stage.settle().await;
    let live = GrpcSubscriber::start(url, from_lsn(to), Keep::Counts);
    live.wait_for(end, patience()).await;
    assert_eq!(report(&stage, &[])["sound"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_what_the_log_says() {
    let stage = stage().await;
    for sql in [
        "update t set v = 'new' where id % 7 = 0",
        "update t set id = -id where id between 10 and 20",
        "delete from t where id % 11 = 0",
        "insert into t values (11, 'again')",
    ] {
        stage.source.sql(sql).await;
    }
    // One that the snapshot does not see, and that commits before the log is read.
    let mut open = stage.source.session().await;
    open.run("begin").await;
    open.run("update t set v = 'later' where id < 100").await;
    let check = [
        "verify",
        "--against-source",
        "--table",
        "public.t",
        "--json",
    ];
    let view: Value = serde_json::from_str(&stage.decant.decctl_successfully(&check)).unwrap();
    assert_eq!(view["differences"], 0, "{view:#}");
    assert!(view["rows_compared"].as_u64() > Some(50_000), "{view:#}");
    assert_eq!(view["rows_compared"], view["rows_in_the_table"]);
    open.run("commit").await;

    // What happened without the log's knowing is found.
    stage
        .source
        .sql(
            "alter publication decant set (publish = 'insert'); delete from t where id = 23; \
             update t set v = 'secret' where id = 24",
        )
        .await;
    stage.settle().await;
    let text = stage.decant.decctl_unsuccessfully(&check);
    assert_mentions(&text, &["row (23)", "row (24)", "2 differences"]);
}
