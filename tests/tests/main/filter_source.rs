//! Row filters that the source evaluates: in many batches, with rows larger than one, with an error in the middle, and with a
//! source that goes away.

use pg_proto::Lsn;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, StreamClient, from_lsn, when_free};
use tests::{Endpoint, Session};

use super::stage::Stage;

const TABLES: &str = "
    create table wide (id int, v text);
    create publication at_source for table wide where (ln(3000 - id) >= 0 and v <> 'b') with (publish = 'insert');
    create procedure fill() language plpgsql as $$
    begin
      for i in 1..3500 loop
        insert into wide values (i, case when i % 500 = 0 then repeat(md5(i::text), 20000) when i % 2 = 0 then 'a' else 'b' end);
        if i % 7 = 0 then commit; end if;
      end loop;
    end $$";

const OPTIONS: &str = "proto_version '1', publication_names 'at_source'";

async fn create_slot(to: &Endpoint) {
    let mut session = Session::connect_for_replication(to).await.unwrap();
    session
        .run("CREATE_REPLICATION_SLOT s LOGICAL pgoutput NOEXPORT_SNAPSHOT")
        .await;
}

/// A walsender evaluates row by row and ends at the first that fails; the fanout has thousands evaluated together.
#[tokio::test(flavor = "multi_thread")]
async fn batches_end_at_the_row_that_fails() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    stage.wait_for_publication("at_source").await;
    let endpoints = [stage.source.endpoint(), stage.decant.fanout(0).endpoint()];
    for endpoint in &endpoints {
        create_slot(endpoint).await;
    }
    let mut session = stage.source.session().await;
    session.run("call fill()").await;
    let end = stage.settle().await;
    let mut streams = Vec::new();
    for endpoint in &endpoints {
        let mut client = StreamClient::start(endpoint, "s", Lsn::INVALID, OPTIONS)
            .await
            .unwrap();
        let (received, error) = client.receive_until_or_error(end, patience()).await;
        let error = error.expect("the logarithm of zero is an error");
        let messages = received.into_iter().flat_map(|one| {
            let messages = one.without_schema().messages;
            messages.into_iter().map(|(_, payload)| payload)
        });
        // Without BEGIN and COMMIT, which have times.
        let rows = messages.filter(|payload| payload[0] == b'I');
        streams.push((rows.collect::<Vec<_>>(), error.code));
    }
    let [native, ours] = streams.try_into().unwrap();
    assert!(native.0.len() > 1_000, "{}", native.0.len());
    assert_eq!(native.0, ours.0);
    assert_eq!((native.1.as_str(), ours.1.as_str()), ("2201E", "2201E"));
    let judged = "decant_fanout_filtered_rows_total{path=\"postgres\"}";
    let judged = stage.decant.fanout(0).metric(judged).await;
    assert!((2_999..3_500).contains(&judged), "{judged}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_waits_for_a_source_that_is_away() {
    let mut stage = Stage::new(15, 1, TABLES).await;
    stage.wait_for_publication("at_source").await;
    let fanout = stage.decant.fanout(0).endpoint();
    create_slot(&fanout).await;
    let start = stage.settle().await;
    let rows = "insert into wide select g, case when g % 2 = 0 then 'a' else 'b' end from generate_series(1, 2500) g";
    stage.source.sql(rows).await;
    let end = stage.settle().await;
    stage.source.kill().await;
    let mut request = from_lsn(start);
    request.publications = vec!["at_source".to_owned()];
    let url = stage.decant.fanout(0).grpc_url();
    // Told after some tries that the source is away, this one comes again.
    let waiting = GrpcSubscriber::start(url, request, Keep::Rows);
    let mut client = StreamClient::start(&fanout, "s", Lsn::INVALID, OPTIONS)
        .await
        .unwrap();
    let error = client.receive_error(patience()).await;
    assert_eq!(error.code, "08006", "{error:?}");
    assert_eq!(waiting.look(|seen| seen.changes), 0);

    stage.source.start().await;
    waiting.wait_for(end, patience()).await;
    assert_eq!(waiting.look(|seen| seen.changes), 1_250);
    let mut client = when_free(|| StreamClient::start(&fanout, "s", Lsn::INVALID, OPTIONS))
        .await
        .unwrap();
    let received = client.receive_until(end, patience()).await;
    let messages = received.iter().flat_map(|one| &one.messages);
    assert_eq!(messages.filter(|(_, one)| one[0] == b'I').count(), 1_250);
}
