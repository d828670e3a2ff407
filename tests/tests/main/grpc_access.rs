//! TLS and passwords at a fanout's gRPC service.

use proto::v1::fanout_client::FanoutClient;
use proto::v1::subscribe_response::Kind;
use proto::v1::{
    CreateSlotRequest, Event, ListSlotsRequest, SubscribeOptions, SubscribeRequest, event,
};
use tests::Decant;
use tests::decant::text_of;
use tests::expect::assert_mentions;
use tests::subscriber::from_lsn;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};

use super::access::Guarded;

/// `authorization` of users of the tests.
const CAROL: &str = "Basic Y2Fyb2w6c2VjcmV0IG9mIGNhcm9s";
const ERIN: &str = "Basic ZXJpbjpzZWNyZXQgb2YgZXJpbg==";
/// carol with another password, and somebody who does not exist.
const WRONG: &str = "Basic Y2Fyb2w6d3Jvbmc=";
const NOBODY: &str = "Basic bm9ib2R5OnNlY3JldA==";

async fn connect(guarded: &mut Guarded, root: &str) -> Result<FanoutClient<Channel>, String> {
    let root = std::fs::read(guarded.path(root)).unwrap();
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(root));
    let address = guarded.stage.decant.fanout(0).grpc_address();
    let endpoint = Endpoint::from_shared(format!("https://{address}")).unwrap();
    let channel = endpoint.tls_config(tls).unwrap().connect().await;
    Ok(FanoutClient::new(
        channel.map_err(|error| format!("{error:?}"))?,
    ))
}

/// A call of somebody.
fn of<T>(who: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !who.is_empty() {
        let value: MetadataValue<Ascii> = who.parse().unwrap();
        request.metadata_mut().insert("authorization", value);
    }
    request
}

/// Rows of everything that there is.
async fn rows(client: &mut FanoutClient<Channel>, who: &str, end: u64) -> Result<usize, Status> {
    let request = SubscribeRequest {
        options: Some(SubscribeOptions {
            end_lsn: end,
            ..SubscribeOptions::default()
        }),
        ..from_lsn(pg_proto::Lsn::INVALID)
    };
    let mut stream = client.subscribe(of(who, request)).await?.into_inner();
    let mut rows = 0;
    while let Some(response) = stream.message().await? {
        if let Some(Kind::Batch(batch)) = response.kind {
            let events = batch.parts.iter().flat_map(|part| &part.events);
            let is_row = |event: &&Event| matches!(event.kind, Some(event::Kind::Change(_)));
            rows += events.filter(is_row).count();
        }
    }
    Ok(rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_over_tls_prove_whose_they_are() {
    let mut guarded = Guarded::new("require").await;
    guarded
        .stage
        .source
        .sql("insert into t values (1, 'x')")
        .await;
    let end = guarded.stage.settle().await.0;
    let mut client = connect(&mut guarded, "ca.crt").await.unwrap();
    assert_eq!(rows(&mut client, CAROL, end).await.unwrap(), 1);
    for who in ["", WRONG, NOBODY, "Bearer x"] {
        let refused = rows(&mut client, who, end).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{who}: {refused}");
        let listed = client.list_slots(of(who, ListSlotsRequest {})).await;
        assert_eq!(listed.unwrap_err().code(), Code::Unauthenticated, "{who}");
    }
    // Who may not replicate at the source may ask what there is, and no more.
    client
        .list_slots(of(ERIN, ListSlotsRequest {}))
        .await
        .unwrap();
    let refused = rows(&mut client, ERIN, end).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_mentions(refused.message(), &["erin", "REPLICATION"]);
    // A slot is its maker's, whoever that claims to be.
    let create = CreateSlotRequest {
        name: "s".to_owned(),
        creator: "dave".to_owned(),
        ..CreateSlotRequest::default()
    };
    let slot = client.create_slot(of(CAROL, create)).await.unwrap();
    assert_eq!(slot.into_inner().slot.unwrap().creator, "carol");

    // Another authority is not trusted, and nothing is served without TLS.
    let error = connect(&mut guarded, "server.crt").await.unwrap_err();
    assert_mentions(&error, &["UnknownIssuer"]);
    let url = guarded.stage.decant.fanout(0).grpc_url();
    if let Ok(mut plain) = FanoutClient::connect(url).await {
        let refused = plain.list_slots(of(CAROL, ListSlotsRequest {})).await;
        refused.unwrap_err();
    }
    decctl_proves_it_too(&mut guarded).await;
}

async fn decctl_proves_it_too(guarded: &mut Guarded) {
    let end = guarded.stage.settle().await.to_string();
    let url = format!("https://{}", guarded.stage.decant.fanout(0).grpc_address());
    let password = guarded.path("password");
    std::fs::write(&password, "secret of carol\n").unwrap();
    let (password, root) = (password.display().to_string(), guarded.path("ca.crt"));
    let root = root.display().to_string();
    let decant: &Decant = &guarded.stage.decant;
    let from = decant.status().await.log.unwrap().oldest_lsn;
    let from = pg_proto::Lsn(from).to_string();
    let tail = ["tail", "--fanout", &url, "--from", &from, "--until", &end];
    let tail = [&tail[..], &["--root-cert-file", &root]].concat();
    let access = ["--user", "carol", "--password-file", &password];
    let text = decant.decctl_unsuccessfully(&tail);
    assert_mentions(&text, &["authorization"]);
    let output = decant.decctl(&[&tail[..], &access].concat());
    assert!(output.status.success(), "{}", text_of(&output));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_mentions(&printed, &["insert"]);
}

/// With users, and without TLS: passwords are taken on the same host only, which this is.
#[tokio::test(flavor = "multi_thread")]
async fn without_tls_calls_prove_it_on_the_same_host() {
    let mut guarded = Guarded::new("allow").await;
    let end = guarded.stage.settle().await.0;
    let mut client = guarded.stage.decant.fanout(0).client().await;
    rows(&mut client, CAROL, end).await.unwrap();
    let refused = rows(&mut client, WRONG, end).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let mut client = connect(&mut guarded, "ca.crt").await.unwrap();
    rows(&mut client, CAROL, end).await.unwrap();
}
