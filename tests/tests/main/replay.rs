//! A start at the position of any earlier commit gives exactly the rest.

use pg_proto::Lsn;
use proto::v1::SubscribeOptions;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, StreamClient, from_lsn, when_free};

use super::stage::{PUBLICATION, Stage};

const OPTIONS: &str = "proto_version '1', publication_names 'everything'";

/// Ordinary, streamed and rolled back transactions, messages and truncates, over several segments.
async fn run_workload(stage: &Stage) {
    let mut session = stage.source.session().await;
    for step in 0..30 {
        let base = step * 10_000;
        session
            .run(&format!(
                "insert into t values ({base}, 'step {step}'), ({base} + 1, null)"
            ))
            .await;
        match step % 5 {
            0 => {
                let sql = format!(
                    "insert into t select g, repeat('x', 200) from generate_series({base} + 10, {base} + 5000) g"
                );
                session.run(&sql).await
            }
            1 => {
                session
                    .run(&format!("update t set v = v || '!' where id >= {base}"))
                    .await
            }
            2 => {
                session
                    .run("select pg_logical_emit_message(true, 'test', 'hello')")
                    .await
            }
            3 => {
                session
                    .run(&format!("begin; delete from t where id = {base}; rollback"))
                    .await
            }
            _ => {
                session
                    .run(&format!("delete from t where id = {base} + 1"))
                    .await
            }
        };
    }
    session.run("truncate t").await;
}

async fn stage() -> Stage {
    let settings = [("logical_decoding_work_mem", "64kB")];
    let table = "create table t (id int primary key, v text)";
    let mut stage = Stage::with_settings(15, &settings, 0, table).await;
    stage.decant.stop_decoder().await;
    stage.decant.set("log.segment_bytes", 1 << 20);
    stage.decant.start_decoder().await;
    stage.decant.start_fanout().await;
    stage
}

#[tokio::test(flavor = "multi_thread")]
async fn over_grpc() {
    let mut stage = stage().await;
    run_workload(&stage).await;
    let end = stage.settle().await;
    let whole = stage.grpc_subscriber(0, Keep::Counts);
    whole.wait_for(end, patience()).await;
    let all = whole.stop().await.transactions;
    assert!(all.len() > 40, "{} transactions", all.len());
    assert!(stage.decant.segment_files().len() > 3);

    let url = stage.decant.fanout(0).grpc_url();
    for (number, (commit_lsn, end_lsn)) in all.iter().enumerate() {
        // The end of one is where the next begins; the start of a commit record still includes it.
        for (start, rest) in [
            (*end_lsn, &all[number + 1..]),
            (*commit_lsn, &all[number..]),
        ] {
            let mut request = from_lsn(start);
            request.options = Some(SubscribeOptions {
                end_lsn: end.0,
                ..SubscribeOptions::default()
            });
            let part = GrpcSubscriber::start(url.clone(), request, Keep::Counts);
            let received = part.finish(patience()).await;
            assert_eq!(received.transactions, rest, "from {start}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_the_replication_protocol() {
    let mut stage = stage().await;
    let endpoint = stage.decant.fanout(0).endpoint();
    let mut session = tests::Session::connect_for_replication(&endpoint)
        .await
        .unwrap();
    session
        .run("CREATE_REPLICATION_SLOT replay LOGICAL pgoutput (SNAPSHOT 'nothing')")
        .await;
    run_workload(&stage).await;
    let end = stage.settle().await;

    let mut client = StreamClient::start(&endpoint, "replay", Lsn::INVALID, OPTIONS)
        .await
        .unwrap();
    let all = client.receive_until(end, patience()).await;
    drop(client);
    assert!(all.len() > 40, "{} transactions", all.len());
    let plain = |transactions: &[tests::subscriber::Transaction]| {
        let plain = transactions.iter().cloned();
        plain
            .map(tests::subscriber::Transaction::without_schema)
            .collect::<Vec<_>>()
    };
    for number in (0..all.len()).step_by(3) {
        let Some(after) = all[number..].first().map(|transaction| transaction.end_lsn) else {
            continue;
        };
        let mut client = when_free(|| StreamClient::start(&endpoint, "replay", after, OPTIONS))
            .await
            .unwrap();
        let part = client.receive_until(end, patience()).await;
        assert!(
            plain(&part) == plain(&all[number + 1..]),
            "from {after} on {PUBLICATION}"
        );
    }
}
