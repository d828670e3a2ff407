//! What every gRPC tool expects beside the services themselves: health, and reflection in both of its versions.

use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::{v1, v1alpha};

use super::stage::Stage;

async fn assert_serving(channel: Channel, service: &str) {
    let mut health = HealthClient::new(channel);
    for service in ["", service] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
}

/// The services that a server names, by version 1 of the reflection service.
async fn services(channel: Channel) -> Vec<String> {
    use v1::server_reflection_request::MessageRequest;
    use v1::server_reflection_response::MessageResponse;
    let request = v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel);
    let answers = client.server_reflection_info(tokio_stream::once(request));
    let answer = answers.await.unwrap().into_inner().next().await.unwrap();
    match answer.unwrap().message_response {
        Some(MessageResponse::ListServicesResponse(list)) => {
            list.service.into_iter().map(|one| one.name).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// How many files describe a symbol, by the version that older tools ask for.
async fn descriptors(channel: Channel, symbol: &str) -> usize {
    use v1alpha::server_reflection_request::MessageRequest;
    use v1alpha::server_reflection_response::MessageResponse;
    let request = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(symbol.to_owned())),
    };
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
    let answers = client.server_reflection_info(tokio_stream::once(request));
    let answer = answers.await.unwrap().into_inner().next().await.unwrap();
    match answer.unwrap().message_response {
        Some(MessageResponse::FileDescriptorResponse(files)) => files.file_descriptor_proto.len(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_reflection_answer() {
    let mut stage = Stage::new(15, 1, "").await;
    let fanout = stage.decant.fanout(0).grpc_url();
    let servers = [
        (stage.decant.control_url(), "decant.v1.Control"),
        (fanout, "decant.v1.Fanout"),
    ];
    for (url, service) in servers {
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        assert_serving(channel.clone(), service).await;
        let names = services(channel.clone()).await;
        assert!(names.iter().any(|name| name == service), "{names:?}");
        assert!(descriptors(channel, service).await > 0, "{service}");
    }
}
