//! The calls of `decant.v1.Fanout`.

use std::sync::Arc;

use pg_proto::{Lsn, PgTimestamp};
use proto::v1;
use proto::v1::fanout_server::Fanout;
use proto::v1::subscribe_request::Start;
use storage_format::catalog::{Publication, RelationSchema};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::batch::Batcher;
use super::body;
use super::caller::Caller;
use super::connection::Peer;
use super::convert::identity;
use super::feed::{CHANNEL_BATCHES, Feed};
use super::request::{From, Wanted};
use super::slots::ServedSlots;
use crate::auth::Passwords;
use crate::error::StreamError;
use crate::positions::{Lease, NewSlot, whole_transaction};
use crate::replay::{Ahead, StreamOptions};
use crate::runtime::lanes::Distance;
use crate::selection::{Publications, SelectionSpec, TableName};
use crate::sink::Services;
use crate::subscriber::{Protocol, SubscriberInfo};

/// The service.
#[derive(Debug)]
pub(super) struct FanoutService {
    pub(super) services: Services,
    pub(super) passwords: Passwords,
    slots: ServedSlots,
    started_at: PgTimestamp,
    shutdown: CancellationToken,
}

impl FanoutService {
    /// Fails if the system has no random bytes.
    pub(super) fn new(
        services: Services,
        shutdown: CancellationToken,
    ) -> Result<Self, rustls::Error> {
        Ok(Self {
            services,
            passwords: Passwords::new()?,
            slots: ServedSlots::default(),
            started_at: PgTimestamp::now(),
            shutdown,
        })
    }

    /// Where to begin, and the lease if that is a slot's position.
    async fn start(&self, from: &From) -> Result<(Lsn, Option<Lease>), Status> {
        let replay = &self.services.replay;
        Ok(match from {
            From::Head => (replay.head(), None),
            From::Oldest => (replay.kept()?.oldest, None),
            From::Lsn(lsn) => (*lsn, None),
            From::Time(time) => (replay.position_at(*time)?, None),
            From::Slot(slot) => {
                let lease = self.services.positions.acquire(slot).await?;
                (lease.confirmed(), Some(lease))
            }
        })
    }

    async fn require_publications(&self, publications: &Publications) -> Result<(), Status> {
        let Publications::Named(names) = publications else {
            return Ok(());
        };
        let unknown = self.services.unknown_publications(names).await?;
        unknown.into_iter().next().map_or(Ok(()), |name| {
            Err(StreamError::UnknownPublication { name }.into())
        })
    }

    /// Confirms a position of a slot that no stream of this fanout holds.
    async fn acknowledge_idle(&self, slot: &str, lsn: Lsn) -> Result<Lsn, Status> {
        let lease = self.services.positions.acquire(slot).await?;
        let replay = &self.services.replay;
        let lsn = lsn.min(replay.head());
        if lsn > lease.confirmed() {
            let whole = whole_transaction(replay.log(), lease.confirmed(), lsn).await?;
            lease.confirm(whole, whole);
        }
        let confirmed = lease.confirmed();
        lease.release().await?;
        Ok(confirmed)
    }
}

#[tonic::async_trait]
impl Fanout for FanoutService {
    type SubscribeStream = body::Nothing;

    async fn subscribe(
        &self,
        request: Request<v1::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let slot = match &request.get_ref().start {
            Some(Start::Slot(slot)) => Some(slot.as_str()),
            _ => None,
        };
        let caller = self.admit(&request, slot).await?;
        let mut info = subscriber_info(&request, &caller);
        let mut wanted = Wanted::try_from(request.into_inner())?;
        wanted.selection.grant = self.services.guard.current().grant_of(caller.role());
        self.require_publications(&wanted.selection.publications)
            .await?;
        let grant = wanted.selection.grant.clone();
        let filters = wanted.row_filters.explain(&self.services, grant.as_deref());
        wanted.selection.filters = filters.await?;
        check_filters(&wanted.selection)?;
        let (start, lease) = self.start(&wanted.start).await?;
        let mut emit = wanted.emit;
        emit.start = start;
        let batcher = Batcher::new(wanted.batch_bytes, wanted.raw);
        let stream = self.services.replay.open(StreamOptions {
            selection: wanted.selection.clone(),
            emit,
            ahead: Ahead::Refuse,
            form: batcher.form(),
        })?;
        info.selection = wanted.selection;
        info.slot = lease.as_ref().map(|lease| lease.slot().name.clone());
        let registration = self.services.subscribers.register(info);
        let registration =
            registration.map_err(|full| Status::resource_exhausted(full.to_string()))?;
        registration.set_filter_paths(stream.filter_paths());
        tracing::info!(
            subscriber = registration.id(),
            peer = registration.info().peer,
            %start,
            "stream started"
        );
        let (sender, receiver) = mpsc::channel(CHANNEL_BATCHES);
        let feed = Feed {
            stream,
            distance: Distance::default(),
            batcher,
            replay: self.services.replay.clone(),
            registration,
            slot: lease.map(|lease| self.slots.serve(lease, start)),
            sender,
            shutdown: self.shutdown.clone(),
        };
        tokio::spawn(self.services.lanes.clone().drive(Box::pin(feed.run())));
        Ok(body::answer(receiver))
    }

    async fn acknowledge(
        &self,
        request: Request<v1::AcknowledgeRequest>,
    ) -> Result<Response<v1::AcknowledgeResponse>, Status> {
        self.admit(&request, Some(&request.get_ref().slot)).await?;
        let v1::AcknowledgeRequest { slot, lsn } = request.into_inner();
        let confirmed = match self.slots.get(&slot) {
            Some(served) => served.acknowledge(&self.services.replay, Lsn(lsn)).await?,
            None => self.acknowledge_idle(&slot, Lsn(lsn)).await?,
        };
        Ok(Response::new(v1::AcknowledgeResponse {
            confirmed_lsn: confirmed.0,
        }))
    }

    async fn list_slots(
        &self,
        request: Request<v1::ListSlotsRequest>,
    ) -> Result<Response<v1::ListSlotsResponse>, Status> {
        self.identify(&request).await?;
        let slots = self.services.positions.list_slots().await?;
        Ok(Response::new(v1::ListSlotsResponse { slots }))
    }

    async fn create_slot(
        &self,
        request: Request<v1::CreateSlotRequest>,
    ) -> Result<Response<v1::CreateSlotResponse>, Status> {
        let caller = self.admit(&request, None).await?;
        let request = request.into_inner();
        if request.temporary {
            return Err(Status::invalid_argument(
                "a temporary slot lives as long as a connection: make one through the PostgreSQL endpoint",
            ));
        }
        let slot = NewSlot {
            name: request.name,
            start: request.start_lsn.map(Lsn),
            temporary: false,
            two_phase: request.two_phase,
            failover: request.failover,
            // Who has proven who it is makes its own.
            creator: caller.user().map_or(request.creator, str::to_owned),
            plugin: request.plugin,
        };
        let slot = self.services.positions.create_slot(slot).await?;
        Ok(Response::new(v1::CreateSlotResponse { slot: Some(slot) }))
    }

    async fn drop_slot(
        &self,
        request: Request<v1::DropSlotRequest>,
    ) -> Result<Response<v1::DropSlotResponse>, Status> {
        self.admit(&request, None).await?;
        let request = request.into_inner();
        let positions = &self.services.positions;
        positions.drop_slot(&request.name, request.force).await?;
        Ok(Response::new(v1::DropSlotResponse {}))
    }

    async fn get_fanout_status(
        &self,
        request: Request<v1::GetFanoutStatusRequest>,
    ) -> Result<Response<v1::GetFanoutStatusResponse>, Status> {
        self.identify(&request).await?;
        let services = &self.services;
        let kept = services.replay.kept()?;
        let connected = services.subscribers.connected();
        let statuses = connected.iter().map(|one| one.status(kept.newest));
        Ok(Response::new(v1::GetFanoutStatusResponse {
            name: services.config.fanout.name.clone(),
            version: ::service::VERSION.to_owned(),
            started_at: self.started_at.unix_micros(),
            oldest_lsn: kept.oldest.0,
            head_lsn: kept.newest.0,
            decoder_connected: services.positions.connected(),
            subscribers: statuses.collect(),
        }))
    }

    async fn get_catalog(
        &self,
        request: Request<v1::GetCatalogRequest>,
    ) -> Result<Response<v1::GetCatalogResponse>, Status> {
        self.identify(&request).await?;
        let catalog = match request.into_inner().lsn {
            0 => self.services.replay.catalog()?,
            lsn => self.services.replay.catalog_at(Lsn(lsn))?,
        };
        let relations = catalog.relations().values();
        let publications = catalog.publications().iter();
        Ok(Response::new(v1::GetCatalogResponse {
            relations: relations.map(describe_relation).collect(),
            publications: publications.map(describe_publication).collect(),
        }))
    }
}

/// Without publications rows come as those of their partitions.
fn check_filters(selection: &SelectionSpec) -> Result<(), Status> {
    let mut filters = selection.filters.iter();
    let rooted = filters.find(|filter| filter.partitioned);
    match (&selection.publications, rooted) {
        (Publications::Everything, Some(filter)) => Err(Status::invalid_argument(format!(
            "\"{}\" is a partitioned table: name a publication that publishes it via its root, or filter its partitions",
            filter.table
        ))),
        _ => Ok(()),
    }
}

fn subscriber_info<T>(request: &Request<T>, caller: &Caller) -> SubscriberInfo {
    let peer = request.extensions().get::<Peer>();
    let agent = request.metadata().get("user-agent");
    SubscriberInfo {
        protocol: Protocol::Grpc,
        application_name: agent
            .and_then(|agent| agent.to_str().ok())
            .unwrap_or_default()
            .to_owned(),
        user: caller.user().unwrap_or_default().to_owned(),
        peer: peer
            .map(|peer| peer.address.to_string())
            .unwrap_or_default(),
        slot: None,
        selection: Default::default(),
    }
}

fn describe_relation(schema: &Arc<RelationSchema>) -> v1::Relation {
    let columns = schema.columns.iter().map(|column| v1::Column {
        name: column.name.clone(),
        type_oid: column.type_oid.0,
        type_modifier: column.type_modifier,
        is_key: column.is_key,
    });
    v1::Relation {
        oid: schema.oid.0,
        schema: schema.namespace.clone(),
        name: schema.name.clone(),
        replica_identity: identity(schema.replica_identity).into(),
        columns: columns.collect(),
    }
}

fn describe_publication(publication: &Publication) -> v1::Publication {
    let tables = publication.tables.iter().map(|table| {
        v1::TableName::from(&TableName {
            schema: table.schema.clone(),
            name: table.name.clone(),
        })
    });
    v1::Publication {
        name: publication.name.clone(),
        all_tables: publication.all_tables,
        schemas: publication.schemas.clone(),
        tables: tables.collect(),
        insert: publication.actions.insert,
        update: publication.actions.update,
        delete: publication.actions.delete,
        truncate: publication.actions.truncate,
        via_partition_root: publication.via_root,
    }
}
