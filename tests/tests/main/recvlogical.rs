//! PostgreSQL's own `pg_recvlogical`, unmodified.

use tests::scale::patience;
use tests::subscriber::RecvLogical;

use super::stage::{PUBLICATION, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn receives_up_to_an_end_position_and_goes_on_later() {
    let mut stage = Stage::new(15, 1, "create table t (id int primary key, v text)").await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let client = RecvLogical::create(&endpoint, "recv", PUBLICATION, stage.decant.home());

    stage
        .source
        .sql("insert into t values (1, 'first row')")
        .await;
    let end = stage.settle().await;
    client.receive_until(end, patience()).await;
    let first = client.received();
    assert!(contains(&first, b"first row"));

    stage
        .source
        .sql("insert into t values (2, 'second row')")
        .await;
    let end = stage.settle().await;
    client.receive_until(end, patience()).await;
    let all = client.received();
    assert!(contains(&all, b"second row"));
    assert_eq!(
        count(&all, b"first row"),
        1,
        "what was confirmed does not come again"
    );

    client.drop_slot();
    assert!(stage.decant.status().await.slots.is_empty());
    assert_eq!(stage.source.slot_count().await, 1);
}

fn count(haystack: &[u8], needle: &[u8]) -> usize {
    haystack
        .windows(needle.len())
        .filter(|window| *window == needle)
        .count()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    count(haystack, needle) > 0
}
