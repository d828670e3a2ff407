//! The calls of `decant.v1.Control`.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pg_proto::Lsn;
use proto::v1::control_server::Control;
use proto::v1::{
    AcquireSlotRequest, AcquireSlotResponse, AlterSlotRequest, AlterSlotResponse,
    CollectGarbageRequest, CollectGarbageResponse, CreateSlotRequest, CreateSlotResponse,
    DropPublicationRequest, DropPublicationResponse, DropSlotRequest, DropSlotResponse,
    ExplainPublicationRequest, ExplainPublicationResponse, GetStatusRequest, GetStatusResponse,
    Head, ListPublicationsRequest, ListPublicationsResponse, ListSegmentsRequest,
    ListSegmentsResponse, ListSlotsRequest, ListSlotsResponse, LogStatus, PutPublicationRequest,
    PutPublicationResponse, RefreshCatalogRequest, RefreshCatalogResponse, ReleaseSlotRequest,
    ReleaseSlotResponse, ReportSlotsRequest, ReportSlotsResponse, SlotStatus, SourceStatus,
    WatchHeadRequest,
};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::convert::{self, explain_error, internal, refresh_error, registry_error};
use super::heads::heads;
use super::slots::{Position, alter, create_at, create_copy};
use crate::catalog::{Explainer, Recogniser};
use crate::registry::{Holder, LEASE, NewSlot, Registry, Slot, SlotChange};
use crate::retention::{Collected, Retention};
use crate::state::DecoderState;

/// What the status says that no part of the process changes.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The log directory.
    pub log_directory: PathBuf,
    /// The source's database.
    pub database: String,
    /// The source slot.
    pub slot: String,
    /// The publication that it follows.
    pub publication: String,
}

/// Longest time until what is written is durable, for a slot that is to start there.
const DURABLE_TIMEOUT: Duration = Duration::from_secs(4);

/// The control service.
#[derive(Clone, Debug)]
pub struct ControlService {
    pub(super) state: Arc<DecoderState>,
    pub(super) registry: Arc<Registry>,
    retention: Arc<Retention>,
    pub(super) about: Arc<About>,
    pub(super) recogniser: Arc<Recogniser>,
    explainer: Arc<Explainer>,
    /// Held while Decant's own publications are changed.
    pub(super) publications: Arc<tokio::sync::Mutex<()>>,
    shutdown: CancellationToken,
}

type Heads = Pin<Box<dyn Stream<Item = Result<Head, Status>> + Send>>;

impl ControlService {
    /// A service over the decoder's parts. At `shutdown` its streams end.
    #[must_use]
    pub fn new(
        state: Arc<DecoderState>,
        registry: Arc<Registry>,
        retention: Arc<Retention>,
        about: About,
        recogniser: Arc<Recogniser>,
        explainer: Explainer,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            state,
            registry,
            retention,
            about: Arc::new(about),
            recogniser,
            explainer: Arc::new(explainer),
            publications: Arc::default(),
            shutdown,
        }
    }

    /// Does what blocks on the disk.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let service = self.clone();
        spawn_blocking(move || work(&service))
            .await
            .unwrap_or_else(|error| Err(internal(&error)))
    }

    fn status_of(&self, slot: &Slot) -> SlotStatus {
        convert::slot(slot, self.state.head().durable_lsn, Instant::now())
    }

    fn slots(&self) -> Vec<SlotStatus> {
        let slots = self.registry.list();
        slots.iter().map(|slot| self.status_of(slot)).collect()
    }

    fn source_status(&self) -> SourceStatus {
        let (source, counters) = (self.state.source(), self.state.counters());
        SourceStatus {
            state: convert::source_state(source.state).into(),
            system_identifier: source.system_identifier.to_string(),
            timeline: source.timeline,
            database: self.about.database.clone(),
            slot_name: self.about.slot.clone(),
            publication: self.about.publication.clone(),
            server_version: source.server_version,
            last_error: source.last_error,
            received_lsn: counters.received_lsn.get(),
            confirmed_lsn: counters.confirmed_lsn.get(),
            source_lsn: counters.received_lsn.get(),
            catalog_mode: convert::catalog_mode(source.catalog_mode).into(),
            reconnects: counters.reconnects.get(),
            protocol_version: source.protocol_version,
            forged_messages: counters.forged_messages.get(),
        }
    }

    /// What the folder does not tell, for want of a descriptor or because the disk fails, does not hide the rest.
    fn log_status(&self) -> Result<LogStatus, Status> {
        let usage = self.retention.usage();
        let unknown = usage
            .as_ref()
            .err()
            .map(|error| service::cli::causes(error));
        let usage = usage.unwrap_or_default();
        let trouble = self.state.disk().trouble(Instant::now()).or(unknown);
        let (head, counters) = (self.state.head(), self.state.counters());
        Ok(LogStatus {
            directory: self.about.log_directory.display().to_string(),
            oldest_lsn: usage.oldest.unwrap_or_default().0,
            written_lsn: head.written_lsn.0,
            durable_lsn: head.durable_lsn.0,
            segment_count: usage.segments,
            bytes: usage.bytes,
            transactions: counters.transactions.get(),
            changes: counters.changes.get(),
            bytes_received: counters.bytes_received.get(),
            fsyncs: counters.fsyncs.get(),
            staged_transactions: counters.staged_transactions.get(),
            staged_bytes: counters.staged_bytes.get(),
            definitions_kept: counters.definitions_kept.get(),
            definitions_known_from: counters.definitions_known_from.get(),
            trouble: trouble.unwrap_or_default(),
        })
    }

    /// A confirmed position as far as it can be true: nobody can have what is not in the log.
    fn plausible(&self, confirmed: u64) -> Lsn {
        Lsn(confirmed).min(self.state.head().written_lsn)
    }

    fn check_log_exists(&self) -> Result<(), Status> {
        if self.state.head().writer_epoch == 0 {
            return Err(Status::failed_precondition(
                "there is no log yet: the decoder has not reached the source so far",
            ));
        }
        Ok(())
    }

    /// A fanout may serve what is written and not fsynced yet, and ask for a slot there. If it takes longer, the slot is
    /// refused as one ahead of the log.
    async fn wait_durable_if_written(&self, lsn: Lsn) {
        if lsn <= self.state.head().written_lsn {
            // Whether it came to that is seen in the log.
            let _ = timeout(DURABLE_TIMEOUT, self.state.wait_durable(lsn)).await;
        }
    }

    /// Where a slot starts that does not say where: at the head, with every publication made before known.
    async fn head_for_new_slot(&self, name: &str) -> Result<Lsn, Status> {
        if self.registry.get(name).is_ok() {
            // Said before the source is asked for anything.
            return Err(Status::already_exists(format!(
                "replication slot \"{name}\" already exists"
            )));
        }
        self.refresh().await
    }

    pub(super) async fn refresh(&self) -> Result<Lsn, Status> {
        tokio::select! {
            lsn = self.state.refresh_catalog() => lsn.map_err(|error| refresh_error(&error)),
            () = self.shutdown.cancelled() => Err(Status::unavailable("the decoder is shutting down")),
        }
    }
}

#[tonic::async_trait]
impl Control for ControlService {
    async fn get_status(
        &self,
        _: Request<GetStatusRequest>,
    ) -> Result<Response<GetStatusResponse>, Status> {
        let log = self.blocking(Self::log_status).await?;
        Ok(Response::new(GetStatusResponse {
            source: Some(self.source_status()),
            log: Some(log),
            slots: self.slots(),
            version: service::VERSION.to_owned(),
            started_at: self.state.started_at().unix_micros(),
        }))
    }

    type WatchHeadStream = Heads;

    /// A watch channel holds only the newest head, and it is looked at when the client can take one.
    async fn watch_head(
        &self,
        request: Request<WatchHeadRequest>,
    ) -> Result<Response<Heads>, Status> {
        let interval = request.into_inner().min_interval_ms;
        let heads = heads(&self.state, &self.shutdown, interval);
        Ok(Response::new(Box::pin(heads)))
    }

    async fn refresh_catalog(
        &self,
        _: Request<RefreshCatalogRequest>,
    ) -> Result<Response<RefreshCatalogResponse>, Status> {
        let lsn = self.refresh().await?.0;
        Ok(Response::new(RefreshCatalogResponse { lsn }))
    }

    async fn list_publications(
        &self,
        _: Request<ListPublicationsRequest>,
    ) -> Result<Response<ListPublicationsResponse>, Status> {
        let publications = self.own_publications().await?;
        Ok(Response::new(ListPublicationsResponse { publications }))
    }

    async fn put_publication(
        &self,
        request: Request<PutPublicationRequest>,
    ) -> Result<Response<PutPublicationResponse>, Status> {
        let lsn = self.store_publication(request.into_inner()).await?.0;
        Ok(Response::new(PutPublicationResponse { lsn }))
    }

    async fn drop_publication(
        &self,
        request: Request<DropPublicationRequest>,
    ) -> Result<Response<DropPublicationResponse>, Status> {
        let lsn = self.remove_publication(request.into_inner()).await?.0;
        Ok(Response::new(DropPublicationResponse { lsn }))
    }

    async fn explain_publication(
        &self,
        request: Request<ExplainPublicationRequest>,
    ) -> Result<Response<ExplainPublicationResponse>, Status> {
        let definition = request.into_inner().definition;
        let explained = self.explainer.explain(&definition).await;
        let mut state = Vec::new();
        explained.map_err(explain_error)?.encode(&mut state);
        Ok(Response::new(ExplainPublicationResponse { state }))
    }

    async fn list_slots(
        &self,
        _: Request<ListSlotsRequest>,
    ) -> Result<Response<ListSlotsResponse>, Status> {
        let slots = self.slots();
        Ok(Response::new(ListSlotsResponse { slots }))
    }

    async fn create_slot(
        &self,
        request: Request<CreateSlotRequest>,
    ) -> Result<Response<CreateSlotResponse>, Status> {
        let request = request.into_inner();
        let start = Position::of_request(request.start_lsn, request.start_time)?;
        let copy_of = request.copy_of.clone();
        if start.is_some() && !copy_of.is_empty() {
            return Err(Status::invalid_argument(
                "a slot is a copy of another one or starts at a position, not both",
            ));
        }
        let mut new = new_slot(request)?;
        let slot = if let Some(start) = start {
            self.check_log_exists()?;
            if let Position::Lsn(start) = start {
                self.wait_durable_if_written(start).await;
            }
            self.blocking(move |service| {
                let log = &service.about.log_directory;
                create_at(log, &service.registry, &service.retention, new, start)
            })
            .await?
        } else if !copy_of.is_empty() {
            self.blocking(move |service| {
                create_copy(&service.registry, &service.retention, new, &copy_of)
            })
            .await?
        } else {
            new.start_lsn = self.head_for_new_slot(&new.name).await?;
            self.blocking(move |service| {
                let created = service.registry.create(new, Instant::now());
                created.map_err(registry_error)
            })
            .await?
        };
        tracing::info!(slot = slot.name, at = %slot.confirmed_lsn, creator = slot.creator, "slot created");
        let slot = Some(self.status_of(&slot));
        Ok(Response::new(CreateSlotResponse { slot }))
    }

    async fn alter_slot(
        &self,
        request: Request<AlterSlotRequest>,
    ) -> Result<Response<AlterSlotResponse>, Status> {
        let request = request.into_inner();
        let position = Position::of_request(request.confirmed_lsn, request.confirmed_time)?;
        let holder = optional_holder(&request.holder)?;
        let change = SlotChange {
            two_phase: request.two_phase,
            two_phase_at: Lsn(request.two_phase_at),
            failover: request.failover,
            position: None,
        };
        let slot = self
            .blocking(move |service| {
                let (log, registry) = (&service.about.log_directory, &service.registry);
                let slot = (request.name.as_str(), holder.as_ref());
                alter(log, registry, &service.retention, slot, (change, position))
            })
            .await?;
        tracing::info!(slot = slot.name, at = %slot.confirmed_lsn, "slot changed");
        let slot = Some(self.status_of(&slot));
        Ok(Response::new(AlterSlotResponse { slot }))
    }

    async fn drop_slot(
        &self,
        request: Request<DropSlotRequest>,
    ) -> Result<Response<DropSlotResponse>, Status> {
        let DropSlotRequest {
            name,
            holder,
            force,
        } = request.into_inner();
        let holder = optional_holder(&holder)?;
        self.blocking(move |service| {
            let now = Instant::now();
            let dropped = service
                .registry
                .drop_slot(&name, holder.as_ref(), force, now);
            dropped.map_err(registry_error)?;
            tracing::info!(slot = name, "slot dropped");
            Ok(())
        })
        .await?;
        Ok(Response::new(DropSlotResponse {}))
    }

    async fn acquire_slot(
        &self,
        request: Request<AcquireSlotRequest>,
    ) -> Result<Response<AcquireSlotResponse>, Status> {
        let AcquireSlotRequest { name, holder, pid } = request.into_inner();
        let holder = required_holder(&holder)?;
        let slot = self.registry.acquire(&name, &holder, Instant::now());
        let slot = slot.map_err(registry_error)?;
        self.registry.note_pid(&name, &holder, pid);
        Ok(Response::new(AcquireSlotResponse {
            slot: Some(self.status_of(&slot)),
            lease_ms: u32::try_from(LEASE.as_millis()).unwrap_or(u32::MAX),
        }))
    }

    async fn release_slot(
        &self,
        request: Request<ReleaseSlotRequest>,
    ) -> Result<Response<ReleaseSlotResponse>, Status> {
        let ReleaseSlotRequest {
            name,
            holder,
            confirmed_lsn,
        } = request.into_inner();
        let holder = required_holder(&holder)?;
        let confirmed = self.plausible(confirmed_lsn);
        let released = self
            .registry
            .release(&name, &holder, confirmed, Instant::now());
        released.map_err(registry_error)?;
        Ok(Response::new(ReleaseSlotResponse {}))
    }

    async fn report_slots(
        &self,
        request: Request<ReportSlotsRequest>,
    ) -> Result<Response<ReportSlotsResponse>, Status> {
        let ReportSlotsRequest { holder, slots } = request.into_inner();
        let holder = required_holder(&holder)?;
        let reports = slots.iter();
        let positions: Vec<_> = reports
            .map(|report| (report.name.clone(), self.plausible(report.confirmed_lsn)))
            .collect();
        let lost = self.registry.report(&holder, &positions, Instant::now());
        for report in slots {
            self.registry.note_pid(&report.name, &holder, report.pid);
        }
        Ok(Response::new(ReportSlotsResponse { lost }))
    }

    async fn list_segments(
        &self,
        _: Request<ListSegmentsRequest>,
    ) -> Result<Response<ListSegmentsResponse>, Status> {
        let end = self.state.head().written_lsn;
        let facts = self
            .blocking(|service| {
                service
                    .retention
                    .segments()
                    .map_err(|error| internal(&error))
            })
            .await?;
        let segments = facts.iter().map(|facts| convert::segment(facts, end));
        Ok(Response::new(ListSegmentsResponse {
            segments: segments.collect(),
        }))
    }

    async fn collect_garbage(
        &self,
        request: Request<CollectGarbageRequest>,
    ) -> Result<Response<CollectGarbageResponse>, Status> {
        let dry_run = request.into_inner().dry_run;
        let Collected {
            verdicts,
            bytes_freed,
        } = self
            .blocking(move |service| {
                let collected = service.retention.collect(dry_run, true);
                collected.map_err(|error| internal(&error))
            })
            .await?;
        let end = self.state.head().written_lsn;
        let verdicts = verdicts.iter();
        Ok(Response::new(CollectGarbageResponse {
            verdicts: verdicts
                .map(|(facts, verdict)| convert::verdict(facts, verdict, end))
                .collect(),
            bytes_freed,
        }))
    }
}

fn new_slot(request: CreateSlotRequest) -> Result<NewSlot, Status> {
    let holder = optional_holder(&request.holder)?;
    Ok(NewSlot {
        name: request.name,
        start_lsn: Lsn(request.start_lsn.unwrap_or_default()),
        // The lease of a slot that is not temporary is taken by AcquireSlot.
        holder: holder.filter(|_| request.temporary),
        temporary: request.temporary,
        two_phase: request.two_phase,
        failover: request.failover,
        creator: request.creator,
        plugin: request.plugin,
    })
}

fn optional_holder(text: &str) -> Result<Option<Holder>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    required_holder(text).map(Some)
}

fn required_holder(text: &str) -> Result<Holder, Status> {
    text.parse()
        .map_err(|error| registry_error(crate::registry::RegistryError::InvalidHolder(error)))
}
