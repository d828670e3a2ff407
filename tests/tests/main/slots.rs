//! Slots can do here what they can't at PostgreSQL: stand at any kept position or time, be moved back, be cloned.

use pg_proto::Lsn;
use tests::expect::assert_mentions;
use tests::scale::patience;
use tests::sql::Endpoint;
use tests::subscriber::{StreamClient, when_free};
use tests::{Session, wait_until};

use super::stage::{PUBLICATION, Stage};

const TABLE: &str = "create table t (id int primary key, v text)";

/// How many transactions come from a slot up to `end`. With `confirm` they are not to come again.
async fn received(endpoint: &Endpoint, slot: &str, end: Lsn, confirm: bool) -> usize {
    let options = format!("proto_version '1', publication_names '{PUBLICATION}'");
    let mut client = when_free(|| StreamClient::start(endpoint, slot, Lsn::INVALID, &options))
        .await
        .unwrap();
    let count = client.receive_until(end, patience()).await.len();
    if confirm {
        client.confirm(end).await;
    }
    count
}

async fn wait_until_free(stage: &Stage, slot: &str, at: Lsn) {
    wait_until("the slot is free", patience(), async || {
        let status = stage.decant.status().await;
        let slot = status.slots.into_iter().find(|found| found.name == slot);
        match slot {
            Some(slot) if slot.holder.is_empty() && slot.confirmed_lsn >= at.0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_is_moved_back_cloned_and_made_at_a_position_or_time() {
    let mut stage = Stage::new(15, 2, TABLE).await;
    let endpoints = [0, 1].map(|number| stage.decant.fanout(number).endpoint());
    stage.decant.decctl_successfully(&["slot", "create", "one"]);
    let insert = async |id: u32| {
        let sql = format!("insert into t values ({id}, 'x')");
        stage.source.sql(&sql).await;
    };
    insert(1).await;
    let first = stage.settle().await;
    let format = "select to_char(now() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";
    let time = stage.source.sql(format).await[0][0].clone().unwrap();
    insert(2).await;
    insert(3).await;
    let end = stage.settle().await;

    // The position is the slot's, whichever fanout serves it.
    assert_eq!(received(&endpoints[0], "one", end, true).await, 3);
    wait_until_free(&stage, "one", first).await;
    insert(4).await;
    let last = stage.settle().await;
    assert_eq!(received(&endpoints[1], "one", last, true).await, 1);
    wait_until_free(&stage, "one", end).await;

    let decctl = |arguments: &[&str]| stage.decant.decctl_successfully(arguments);
    decctl(&["slot", "rewind", "one", "--at", &first.to_string()]);
    decctl(&["slot", "clone", "one", "two"]);
    decctl(&["slot", "create", "three", "--at", &first.to_string()]);
    decctl(&["slot", "create", "four", "--at-time", &time]);
    for slot in ["one", "two", "three", "four"] {
        let count = received(&endpoints[0], slot, last, false).await;
        assert_eq!(count, 3, "{slot}");
        wait_until_free(&stage, slot, first).await;
    }
    decctl(&["slot", "rewind", "two", "--at-time", &time]);
    assert_eq!(received(&endpoints[1], "two", last, false).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_is_explained() {
    let mut stage = Stage::new(15, 1, TABLE).await;
    let endpoint = stage.decant.fanout(0).endpoint();
    stage.decant.decctl_successfully(&["slot", "create", "one"]);
    let end = stage.settle().await;
    let refused = |arguments: &[&str], words: &[&str]| {
        let text = stage.decant.decctl_unsuccessfully(arguments);
        assert_mentions(&text, words);
    };
    for verb in ["rewind", "create"] {
        let name = if verb == "create" { "new" } else { "one" };
        refused(&["slot", verb, name, "--at", "0/1"], &["0/1", "kept"]);
        let ahead = Lsn(end.0 + (1 << 30)).to_string();
        refused(&["slot", verb, name, "--at", &ahead], &[&ahead]);
    }
    let none = ["slot", "rewind", "none", "--at", &end.to_string()];
    refused(&none, &["\"none\" does not exist"]);
    refused(
        &["slot", "clone", "none", "x"],
        &["\"none\" does not exist"],
    );
    refused(&["slot", "clone", "one", "one"], &["already exists"]);
    let options = format!("proto_version '1', publication_names '{PUBLICATION}'");
    let _streams = StreamClient::start(&endpoint, "one", Lsn::INVALID, &options)
        .await
        .unwrap();
    let back = ["slot", "rewind", "one", "--at", &end.to_string()];
    refused(&back, &["held by fanout-0"]);
    let usage = stage.decant.decctl(&["slot", "rewind", "one"]);
    assert_eq!(usage.status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_streams_is_shown_at_every_fanout() {
    let mut stage = Stage::new(15, 2, TABLE).await;
    let endpoints = [0, 1].map(|number| stage.decant.fanout(number).endpoint());
    stage.decant.decctl_successfully(&["slot", "create", "one"]);
    let options = format!("proto_version '1', publication_names '{PUBLICATION}'");
    let _stream = StreamClient::start(&endpoints[0], "one", Lsn::INVALID, &options)
        .await
        .unwrap();
    let active = "select coalesce(active_pid::text, '') from pg_replication_slots where active";
    let shown = async |number: usize| {
        let mut session = Session::connect(&endpoints[number]).await.unwrap();
        session.value(active).await
    };
    let pid = shown(0).await;
    assert!(pid.parse::<u32>().unwrap() >= 1 << 30, "{pid}");
    assert_eq!(shown(1).await, pid);
    let refused = StreamClient::start(&endpoints[1], "one", Lsn::INVALID, &options).await;
    let refused = refused.map(drop).unwrap_err();
    assert_eq!(refused.code, "55006");
    let expected = format!("replication slot \"one\" is active for PID {pid}");
    assert_mentions(&refused.message, &[&expected, "fanout-0"]);
    // Sessions of the other fanout are not reached from here, and none of this one is taken for them.
    let mut session = Session::connect(&endpoints[1]).await.unwrap();
    let terminate =
        "select pg_terminate_backend(active_pid)::text from pg_replication_slots where active";
    assert_eq!(session.value(terminate).await, "false");
    // A new decoder hears of it with the next report.
    stage.decant.kill_decoder();
    stage.decant.start_decoder().await;
    wait_until("it is shown again", patience(), async || {
        let mut session = Session::connect(&endpoints[1]).await.unwrap();
        match session.try_run(active).await {
            Ok(rows)
                if rows
                    .first()
                    .is_some_and(|row| row[0].as_ref() == Some(&pid)) =>
            {
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}
