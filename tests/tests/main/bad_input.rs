//! Whatever is wrong, the message says what and what to do.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use pg_proto::Lsn;
use tests::expect::assert_mentions;
use tests::scale::patience;
use tests::subscriber::{GrpcSubscriber, Keep, StreamClient, from_lsn};
use tests::{Cluster, Decant, wait_until};

use super::stage::Stage;

const TABLE: &str = "create table t (id int primary key, v text)";

#[tokio::test(flavor = "multi_thread")]
async fn wal_level_is_not_logical() {
    let source = Cluster::start_with(15, &[("wal_level", "replica")]).await;
    let mut decant = Decant::new(&source);
    let init = decant.decctl_unsuccessfully(&["init"]);
    assert_mentions(&init, &["wal_level", "replica", "logical", "restart"]);
    let decoder = decant.decoder_error().await;
    assert_mentions(&decoder, &["wal_level", "logical"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_missing() {
    let source = Cluster::start_new(15).await;
    source.sql("create role plain login").await;
    let mut decant = Decant::new(&source);
    decant.decctl_successfully(&["init"]);
    decant.set("source.user", "plain");
    let init = decant.decctl_unsuccessfully(&["init"]);
    assert_mentions(&init, &["plain", "replication"]);
    let decoder = decant.decoder_error().await;
    assert_mentions(&decoder, &["plain", "replication"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_have_no_replica_identity() {
    let source = Cluster::start_new(15).await;
    source.sql("create table bare (id int)").await;
    source.sql(TABLE).await;
    let decant = Decant::new(&source);
    let refusal = decant.decctl_unsuccessfully(&["init"]);
    assert_mentions(
        &refusal,
        &["bare", "replica identity", "--allow-missing-identity"],
    );
    assert_eq!(source.slot_count().await, 0, "nothing was made");
    assert_eq!(
        source.value("select count(*) from pg_publication").await,
        "0"
    );
    // DML on it works until somebody decides otherwise.
    source
        .sql("insert into bare values (1); update bare set id = 2")
        .await;
    decant.decctl_successfully(&["init", "--allow-missing-identity"]);
    assert_eq!(source.slot_count().await, 1);
    // A second time it finds everything made.
    decant.decctl_successfully(&["init", "--allow-missing-identity"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_was_initialised() {
    let source = Cluster::start_new(15).await;
    let mut decant = Decant::new(&source);
    let error = decant.decoder_error().await;
    assert_mentions(&error, &["decant", "decctl init"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slot_is_taken_by_another_process() {
    let source = Cluster::start_new(15).await;
    source.sql(TABLE).await;
    let mut decant = Decant::new(&source);
    decant.decctl_successfully(&["init"]);
    let options = "proto_version '1', publication_names 'decant'";
    let other = StreamClient::start(&source.endpoint(), "decant", Lsn::INVALID, options)
        .await
        .unwrap();
    decant.spawn_decoder();
    wait_until(
        "the decoder says who has the slot",
        patience(),
        async || {
            let log = decant.decoder().log_text();
            let named = log.contains("is active for PID") && log.contains("decant_tests");
            if named { Ok(()) } else { Err(log) }
        },
    )
    .await;
    // It takes over when the slot is free.
    drop(other);
    decant.wait_until_streaming().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_is_another() {
    let mut stage = Stage::new(15, 0, TABLE).await;
    stage.decant.stop_decoder().await;
    stage.source.sql("create database other").await;
    stage.decant.set("source.database", "other");
    let error = stage.decant.decoder_error().await;
    assert_mentions(&error, &["other", "postgres"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_another() {
    let mut stage = Stage::new(15, 0, TABLE).await;
    stage.settle().await;
    stage.decant.stop_decoder().await;
    let other = Cluster::start_new(15).await;
    let identifier = "select system_identifier from pg_control_system()";
    let identifiers = [
        stage.source.value(identifier).await,
        other.value(identifier).await,
    ];
    stage.decant.set("source.port", other.port());
    let error = stage.decant.decoder_error().await;
    assert_mentions(&error, &[&identifiers[0], &identifiers[1]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slot_was_dropped_and_made_again() {
    let mut stage = Stage::new(15, 0, TABLE).await;
    stage.source.sql("insert into t values (1)").await;
    stage.settle().await;
    stage.decant.stop_decoder().await;
    stage
        .source
        .sql("select pg_drop_replication_slot('decant')")
        .await;
    stage.source.sql("insert into t values (2)").await;
    let gone = stage.decant.decoder_error().await;
    assert_mentions(&gone, &["\"decant\" does not exist", "the log ends at"]);
    // A new slot begins later: what lies between would be missing without anybody knowing.
    stage
        .source
        .sql("select pg_create_logical_replication_slot('decant', 'pgoutput')")
        .await;
    let gap = stage.decant.decoder_error().await;
    assert_mentions(&gap, &["0/"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_decoders_publication_is_gone() {
    let mut stage = Stage::new(15, 0, TABLE).await;
    stage.decant.stop_decoder().await;
    stage.source.sql("drop publication decant").await;
    let error = stage.decant.decoder_error().await;
    assert_mentions(&error, &["publication", "decant"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_decoders_on_one_log() {
    let stage = Stage::new(15, 0, TABLE).await;
    let mut rival = stage.decant.rival();
    let error = rival.decoder_error().await;
    let directory = stage.decant.log_directory().display().to_string();
    assert_mentions(&error, &[&directory, "another"]);
    // The first one goes on.
    stage.source.sql("insert into t values (1)").await;
    stage.settle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_has_an_unknown_key() {
    let source = Cluster::start_new(15).await;
    let mut decant = Decant::new(&source);
    decant.set("source.prot", 5432);
    let error = decant.decoder_error().await;
    assert_mentions(&error, &["prot", "unknown"]);
    let error = decant.decctl(&["init"]);
    assert_mentions(&tests::decant::text_of(&error), &["prot", "unknown"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_segment_is_damaged() {
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
    let end = stage.settle().await;
    let damaged = wait_until("a segment is sealed", patience(), async || {
        let names = stage.decant.segment_files();
        let sealed: Vec<_> = names
            .into_iter()
            .filter(|name| name.ends_with(".seg"))
            .collect();
        if sealed.len() > 2 {
            Ok(sealed[1].clone())
        } else {
            Err(format!("{sealed:?}"))
        }
    })
    .await;
    let path = stage.decant.log_directory().join("segments").join(&damaged);
    damage(&path);

    // Readers say which file and where; they neither skip it nor stop serving what is whole.
    stage.decant.start_fanout().await;
    let url = stage.decant.fanout(0).grpc_url();
    let subscriber = GrpcSubscriber::start(url.clone(), from_lsn(Lsn::INVALID), Keep::Counts);
    let error = subscriber.wait_for_error(patience()).await;
    assert_mentions(&error, &[&damaged, "DataLoss"]);
    let live = GrpcSubscriber::start(url, from_lsn(end), Keep::Counts);
    stage.source.sql("insert into t values (-1)").await;
    let end = stage.settle().await;
    live.wait_for(end, patience()).await;
    live.look(|received| assert_eq!(received.changes, 1));

    let dump = stage.decant.decctl_unsuccessfully(&["dump"]);
    assert_mentions(&dump, &[&damaged]);
}

/// Changes one byte in the middle.
fn damage(path: &PathBuf) {
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.seek(SeekFrom::Start(middle)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(middle)).unwrap();
    file.write_all(&[byte[0] ^ 0x55]).unwrap();
}
