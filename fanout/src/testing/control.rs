//! A decoder's control service that keeps its slots in memory.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use proto::v1::control_server::{Control, ControlServer};
use proto::v1::{
    AcquireSlotRequest, AcquireSlotResponse, AlterSlotRequest, AlterSlotResponse,
    CollectGarbageRequest, CollectGarbageResponse, CreateSlotRequest, CreateSlotResponse,
    DropPublicationRequest, DropPublicationResponse, DropSlotRequest, DropSlotResponse,
    ExplainPublicationRequest, ExplainPublicationResponse, GetStatusRequest, GetStatusResponse,
    Head, ListPublicationsRequest, ListPublicationsResponse, ListSegmentsRequest,
    ListSegmentsResponse, ListSlotsRequest, ListSlotsResponse, PutPublicationRequest,
    PutPublicationResponse, RefreshCatalogRequest, RefreshCatalogResponse, ReleaseSlotRequest,
    ReleaseSlotResponse, ReportSlotsRequest, ReportSlotsResponse, SlotStatus, WatchHeadRequest,
};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use crate::replay::Replay;

/// The slots, seen and set by tests too.
pub(crate) type Slots = Arc<Mutex<BTreeMap<String, SlotStatus>>>;

/// Keeps those waiting who ask for a lease.
#[derive(Debug)]
pub(crate) struct Gate {
    /// How many have asked.
    pub(crate) asked: AtomicUsize,
    /// So many are answered.
    pub(crate) answers: Semaphore,
}

struct Registry {
    slots: Slots,
    replay: Replay,
    gate: Arc<Gate>,
}

/// Serves until the test's runtime ends.
pub(crate) async fn serve(replay: Replay) -> (SocketAddr, Slots) {
    let gate = Gate {
        asked: AtomicUsize::new(0),
        answers: Semaphore::new(Semaphore::MAX_PERMITS),
    };
    serve_behind(replay, Arc::new(gate)).await
}

/// The same, with leases as the gate lets them through.
pub(crate) async fn serve_behind(replay: Replay, gate: Arc<Gate>) -> (SocketAddr, Slots) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let slots = Slots::default();
    let registry = Registry {
        slots: Arc::clone(&slots),
        replay,
        gate,
    };
    let server = tonic::transport::Server::builder().add_service(ControlServer::new(registry));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (address, slots)
}

type Answer<T> = Result<Response<T>, Status>;

impl Registry {
    fn with<T>(&self, name: &str, act: impl FnOnce(&mut SlotStatus) -> T) -> Result<T, Status> {
        let mut slots = self.slots.lock();
        let slot = slots.get_mut(name);
        slot.map(act)
            .ok_or_else(|| Status::not_found("no such slot"))
    }
}

#[tonic::async_trait]
impl Control for Registry {
    type WatchHeadStream = tokio_stream::Pending<Result<Head, Status>>;

    async fn get_status(&self, _: Request<GetStatusRequest>) -> Answer<GetStatusResponse> {
        Err(Status::unimplemented("get_status"))
    }

    async fn watch_head(&self, _: Request<WatchHeadRequest>) -> Answer<Self::WatchHeadStream> {
        Ok(Response::new(tokio_stream::pending()))
    }

    async fn refresh_catalog(
        &self,
        _: Request<RefreshCatalogRequest>,
    ) -> Answer<RefreshCatalogResponse> {
        let lsn = self.replay.head().0;
        Ok(Response::new(RefreshCatalogResponse { lsn }))
    }

    async fn list_publications(
        &self,
        _: Request<ListPublicationsRequest>,
    ) -> Answer<ListPublicationsResponse> {
        Err(Status::unimplemented("list_publications"))
    }

    async fn put_publication(
        &self,
        _: Request<PutPublicationRequest>,
    ) -> Answer<PutPublicationResponse> {
        Err(Status::unimplemented("put_publication"))
    }

    async fn drop_publication(
        &self,
        _: Request<DropPublicationRequest>,
    ) -> Answer<DropPublicationResponse> {
        Err(Status::unimplemented("drop_publication"))
    }

    async fn explain_publication(
        &self,
        _: Request<ExplainPublicationRequest>,
    ) -> Answer<ExplainPublicationResponse> {
        Err(Status::unimplemented("explain_publication"))
    }

    async fn list_slots(&self, _: Request<ListSlotsRequest>) -> Answer<ListSlotsResponse> {
        let slots = self.slots.lock().values().cloned().collect();
        Ok(Response::new(ListSlotsResponse { slots }))
    }

    async fn create_slot(&self, request: Request<CreateSlotRequest>) -> Answer<CreateSlotResponse> {
        let request = request.into_inner();
        let mut slots = self.slots.lock();
        if slots.contains_key(&request.name) {
            return Err(Status::already_exists("there is one"));
        }
        let start = request.start_lsn.unwrap_or(self.replay.head().0);
        let slot = SlotStatus {
            name: request.name.clone(),
            confirmed_lsn: start,
            restart_lsn: start,
            temporary: request.temporary,
            two_phase: request.two_phase,
            two_phase_at: if request.two_phase { start } else { 0 },
            plugin: request.plugin,
            creator: request.creator,
            ..SlotStatus::default()
        };
        slots.insert(request.name, slot.clone());
        Ok(Response::new(CreateSlotResponse { slot: Some(slot) }))
    }

    async fn drop_slot(&self, request: Request<DropSlotRequest>) -> Answer<DropSlotResponse> {
        let request = request.into_inner();
        let held = self.with(&request.name, |slot| !slot.holder.is_empty())?;
        if held && !request.force {
            return Err(Status::failed_precondition("it is held"));
        }
        self.slots.lock().remove(&request.name);
        Ok(Response::new(DropSlotResponse {}))
    }

    async fn alter_slot(&self, request: Request<AlterSlotRequest>) -> Answer<AlterSlotResponse> {
        let request = request.into_inner();
        let slot = self.with(&request.name, |slot| {
            let two_phase = request.two_phase.unwrap_or(slot.two_phase);
            if slot.two_phase != two_phase {
                slot.two_phase = two_phase;
                slot.two_phase_at = request.two_phase_at;
            }
            slot.failover = request.failover.unwrap_or(slot.failover);
            slot.clone()
        })?;
        Ok(Response::new(AlterSlotResponse { slot: Some(slot) }))
    }

    async fn acquire_slot(
        &self,
        request: Request<AcquireSlotRequest>,
    ) -> Answer<AcquireSlotResponse> {
        let request = request.into_inner();
        self.gate.asked.fetch_add(1, Ordering::SeqCst);
        let passed = self.gate.answers.acquire().await;
        passed.expect("nobody closes the gate").forget();
        let slot = self.with(&request.name, |slot| {
            let held = !slot.holder.is_empty() && slot.holder != request.holder;
            if !held {
                slot.holder = request.holder;
                slot.holder_pid = request.pid;
            }
            (!held).then(|| slot.clone())
        })?;
        let slot = slot.ok_or_else(|| Status::failed_precondition("held by fanout-2/1"))?;
        Ok(Response::new(AcquireSlotResponse {
            slot: Some(slot),
            lease_ms: 10_000,
        }))
    }

    async fn release_slot(
        &self,
        request: Request<ReleaseSlotRequest>,
    ) -> Answer<ReleaseSlotResponse> {
        let request = request.into_inner();
        let temporary = self.with(&request.name, |slot| {
            slot.holder.clear();
            slot.confirmed_lsn = slot.confirmed_lsn.max(request.confirmed_lsn);
            slot.temporary
        })?;
        if temporary {
            self.slots.lock().remove(&request.name);
        }
        Ok(Response::new(ReleaseSlotResponse {}))
    }

    async fn report_slots(
        &self,
        request: Request<ReportSlotsRequest>,
    ) -> Answer<ReportSlotsResponse> {
        let request = request.into_inner();
        let mut lost = Vec::new();
        for report in request.slots {
            let held = self.with(&report.name, |slot| {
                let held = slot.holder == request.holder;
                if held {
                    slot.confirmed_lsn = slot.confirmed_lsn.max(report.confirmed_lsn);
                }
                held
            });
            if !held.unwrap_or(false) {
                lost.push(report.name);
            }
        }
        Ok(Response::new(ReportSlotsResponse { lost }))
    }

    async fn list_segments(&self, _: Request<ListSegmentsRequest>) -> Answer<ListSegmentsResponse> {
        Err(Status::unimplemented("list_segments"))
    }

    async fn collect_garbage(
        &self,
        _: Request<CollectGarbageRequest>,
    ) -> Answer<CollectGarbageResponse> {
        Err(Status::unimplemented("collect_garbage"))
    }
}
