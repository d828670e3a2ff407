//! More definitions beside one open transaction than are kept.

use pg_proto::Lsn;
use tests::scale::patience;
use tests::wait_until;

use super::super::stage::Stage;

/// As many as are kept, and some more.
const DEFINITIONS: usize = 1024 + 10;

#[tokio::test(flavor = "multi_thread")]
async fn it_is_told_from_where_on_definitions_are_known() {
    let sql = "create table t (id int primary key); create publication p for table t";
    let mut stage = Stage::new(15, 0, sql).await;
    let mut writer = stage.source.session().await;
    writer.run("begin; insert into t values (1)").await;
    let mut other = stage.source.session().await;
    for number in 0..DEFINITIONS {
        let sql = format!("alter publication p set table t where (id > {number})");
        other.run(&sql).await;
    }
    other.run("insert into t values (1000000)").await;
    stage.settle().await;
    let metric = async |stage: &Stage, name: &str| {
        stage
            .decant
            .metric(&format!("decant_decoder_definitions_{name}"))
            .await
    };
    assert_eq!(metric(&stage, "kept").await, 1024);
    let known_from = metric(&stage, "known_from_lsn").await;
    assert!(known_from > 0);
    let status = stage.decant.decctl_successfully(&["status"]);
    let expected = format!(
        "1024 earlier ones of publications, known from {}",
        Lsn(known_from)
    );
    tests::expect::assert_mentions(&status, &[&expected]);
    let warning = "more definitions of publications came beside an open transaction than are kept";
    wait_until("the decoder warns", patience(), async || {
        let log = stage.decant.decoder().log_text();
        if log.contains(warning) {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    writer.run("commit").await;
}
