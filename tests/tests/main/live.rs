//! Subscribers of a native slot and of a fanout's that are there while the work is done, so that large transactions come to
//! them before they have ended.

use pg_proto::Lsn;
use tests::scale::patience;
use tests::subscriber::{PieceClient, Unit};
use tests::{Endpoint, Session};

/// Two subscribers of the same options that are there while the work is done.
pub(super) struct Live {
    pub(super) options: String,
    pub(super) native: LiveClient,
    pub(super) ours: LiveClient,
}

/// One of them.
pub(super) struct LiveClient(PieceClient);

impl Live {
    /// At the source and at a fanout, for each way of streaming that the version has.
    pub(super) async fn start(major: u32, native: &Endpoint, ours: &Endpoint) -> Vec<Self> {
        let all: &[(u32, &str, bool)] = match major {
            14 => &[(2, "on", false)],
            15 => &[(2, "on", false), (3, "on", true)],
            _ => &[(2, "on", false), (4, "parallel", true)],
        };
        let mut live = Vec::new();
        for (proto, streaming, two_phase) in all {
            let slot = format!("live_{proto}");
            let mut options = format!(
                "proto_version '{proto}', publication_names 'everything', streaming '{streaming}', messages 'true'"
            );
            if *two_phase {
                options += ", two_phase 'true'";
            }
            live.push(Self {
                native: LiveClient::start(native, &slot, *two_phase, &options).await,
                ours: LiveClient::start(ours, &slot, *two_phase, &options).await,
                options,
            });
        }
        live
    }
}

impl LiveClient {
    async fn start(to: &Endpoint, slot: &str, two_phase: bool, options: &str) -> Self {
        let mut session = Session::connect_for_replication(to).await.unwrap();
        let two_phase = if two_phase { "TWO_PHASE " } else { "" };
        let sql =
            format!("CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput {two_phase}NOEXPORT_SNAPSHOT");
        session.run(&sql).await;
        let client = PieceClient::start(to, slot, Lsn::INVALID, options).await;
        Self(client.unwrap_or_else(|error| panic!("{options}: {error}")))
    }

    /// All that commits below `end`.
    pub(super) async fn receive(mut self, end: Lsn) -> Vec<Unit> {
        self.0.receive_until(end, patience()).await
    }
}
