//! Questions to the decoder.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pg_proto::Lsn;
use proto::v1::control_client::ControlClient;
use proto::v1::{
    AcquireSlotRequest, AlterSlotRequest, CreateSlotRequest, DropSlotRequest,
    ExplainPublicationRequest, ListSlotsRequest, RefreshCatalogRequest, ReleaseSlotRequest,
    SlotStatus, WatchHeadRequest,
};
use tokio::sync::{Notify, Semaphore};
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use super::lease::Held;
use super::{Lease, PositionsError};

/// Longest time for an answer that the decoder has at hand.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Leases that are taken or given back at a time. When thousands of subscribers come or go at once, as after a restart, they
/// wait for their turn first, and only then for an answer that may be late.
pub(super) const LEASES_AT_A_TIME: usize = 32;
/// A release that got no answer is asked for again as often, since whoever waits for the slot would wait until the lease runs out.
const RELEASE_TRIES: usize = 3;
/// Longest time for an answer that waits until the source's publications are in the log.
const CATALOG_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time until a connection stands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection over which nothing came for this long is asked whether it lives.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// It has this long to answer.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The address of the decoder is none.
#[derive(Debug, thiserror::Error)]
#[error("fanout.decoder is \"{address}\": expected an address such as http://127.0.0.1:7400")]
pub struct InvalidAddress {
    address: String,
    #[source]
    source: tonic::transport::Error,
}

/// A slot to be made.
#[derive(Clone, Debug, Default)]
pub struct NewSlot {
    /// Its name, checked by the decoder (42602 if it is none).
    pub name: String,
    /// Where it starts; `None`: at the head, after the publications were refreshed.
    pub start: Option<Lsn>,
    /// Whether it lives only as long as this fanout keeps its lease: take one with [`Positions::acquire`] at once,
    /// and drop the slot when the connection ends.
    pub temporary: bool,
    /// Whether prepared transactions were asked for.
    pub two_phase: bool,
    /// The failover flag of version 17 and later.
    pub failover: bool,
    /// The role that asked.
    pub creator: String,
    /// The output plugin that was named.
    pub plugin: String,
}

/// Client of the decoder's control service. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Positions {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    address: String,
    holder: String,
    control: ControlClient<Channel>,
    connected: AtomicBool,
    places: Mutex<BTreeMap<String, Place>>,
    /// Notified when a place becomes free.
    freed: Notify,
    /// Turns to take or give back a lease. Never closed.
    turns: Semaphore,
}

/// What this fanout does with a slot.
#[derive(Debug)]
enum Place {
    /// The lease is being asked for.
    Taking,
    /// It is held.
    Held(Arc<Held>),
    /// It is being given back; whoever wants it again waits for that, or the answers could overtake each other.
    GivingBack,
}

impl Positions {
    /// A client of the decoder at `address`, which is connected to when it is first needed. `name` is this fanout's
    /// configured name; every call makes a new incarnation of it.
    ///
    /// Must be called inside a tokio runtime.
    pub fn new(address: &str, name: &str) -> Result<Self, InvalidAddress> {
        let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|source| {
            let address = address.to_owned();
            InvalidAddress { address, source }
        })?;
        let channel = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .connect_lazy();
        // Later incarnations have higher numbers, so that the decoder knows who takes over from whom.
        let incarnation = pg_proto::PgTimestamp::now().unix_micros();
        Ok(Self {
            inner: Arc::new(Inner {
                address: address.to_owned(),
                holder: format!("{name}/{incarnation}"),
                control: ControlClient::new(channel),
                connected: AtomicBool::new(false),
                places: Mutex::default(),
                freed: Notify::new(),
                turns: Semaphore::new(LEASES_AT_A_TIME),
            }),
        })
    }

    /// Takes the lease on a slot. At most one connection of this fanout has it at a time.
    pub async fn acquire(&self, slot: &str) -> Result<Lease, PositionsError> {
        self.acquire_for(slot, 0).await
    }

    /// The same for a session whose number is shown to whoever asks who has the slot, at any fanout.
    pub async fn acquire_for(&self, slot: &str, pid: u32) -> Result<Lease, PositionsError> {
        let taking = self.take_place(slot).await?;
        let turn = self.inner.turns.acquire().await;
        let held = Arc::new(Held::new(self.ask_lease(slot, pid).await?, pid));
        drop(turn);
        taking.keep(Arc::clone(&held));
        Ok(Lease::new(held, self.clone()))
    }

    /// Makes a slot; its `confirmed_lsn` is the consistent point.
    pub async fn create_slot(&self, slot: NewSlot) -> Result<SlotStatus, PositionsError> {
        let request = CreateSlotRequest {
            name: slot.name.clone(),
            start_lsn: slot.start.map(|start| start.0),
            temporary: slot.temporary,
            two_phase: slot.two_phase,
            failover: slot.failover,
            creator: slot.creator,
            plugin: slot.plugin,
            holder: self.inner.holder.clone(),
            ..CreateSlotRequest::default()
        };
        let mut control = self.control();
        let answer = self.ask(
            Some(&slot.name),
            CATALOG_TIMEOUT,
            control.create_slot(request),
        );
        Ok(answer.await?.slot.unwrap_or_default())
    }

    /// Drops a slot. One that another connection serves is refused ([`PositionsError::SlotInUse`]), whether that
    /// connection is here or at another fanout; with `force` it is taken from it. Whoever drops a slot of its own
    /// releases its lease first.
    pub async fn drop_slot(&self, slot: &str, force: bool) -> Result<(), PositionsError> {
        if !force {
            self.wait_given_back(slot).await?;
        }
        let request = DropSlotRequest {
            name: slot.to_owned(),
            holder: self.inner.holder.clone(),
            force,
        };
        let mut control = self.control();
        self.ask(Some(slot), ANSWER_TIMEOUT, control.drop_slot(request))
            .await?;
        if let Some(Place::Held(held)) = self.inner.places.lock().get(slot) {
            held.lost.cancel();
        }
        Ok(())
    }

    /// Makes a slot one of two-phase commit, for what is prepared at or after `since`; or makes it none, without
    /// `since`. What is set stays as it was set first.
    pub async fn set_two_phase(
        &self,
        slot: &str,
        since: Option<Lsn>,
    ) -> Result<SlotStatus, PositionsError> {
        let request = AlterSlotRequest {
            name: slot.to_owned(),
            holder: self.inner.holder.clone(),
            two_phase: Some(since.is_some()),
            two_phase_at: since.unwrap_or_default().0,
            ..AlterSlotRequest::default()
        };
        let mut control = self.control();
        let answer = self.ask(Some(slot), ANSWER_TIMEOUT, control.alter_slot(request));
        Ok(answer.await?.slot.unwrap_or_default())
    }

    /// Changes the flags of a slot that no other connection serves.
    pub async fn alter_slot(
        &self,
        slot: &str,
        two_phase: Option<bool>,
        failover: Option<bool>,
    ) -> Result<SlotStatus, PositionsError> {
        self.wait_given_back(slot).await?;
        let request = AlterSlotRequest {
            name: slot.to_owned(),
            holder: self.inner.holder.clone(),
            two_phase,
            failover,
            ..AlterSlotRequest::default()
        };
        let mut control = self.control();
        let answer = self.ask(Some(slot), ANSWER_TIMEOUT, control.alter_slot(request));
        Ok(answer.await?.slot.unwrap_or_default())
    }

    /// All slots.
    pub async fn list_slots(&self) -> Result<Vec<SlotStatus>, PositionsError> {
        let mut control = self.control();
        let answer = self.ask(
            None,
            ANSWER_TIMEOUT,
            control.list_slots(ListSlotsRequest {}),
        );
        Ok(answer.await?.slots)
    }

    /// One slot, if it exists.
    pub async fn slot(&self, name: &str) -> Result<Option<SlotStatus>, PositionsError> {
        let slots = self.list_slots().await?;
        Ok(slots.into_iter().find(|slot| slot.name == name))
    }

    /// Lets the decoder look at the source's publications; the position from which on the log knows them.
    pub async fn refresh_catalog(&self) -> Result<Lsn, PositionsError> {
        let mut control = self.control();
        let request = RefreshCatalogRequest {};
        let answer = self.ask(None, CATALOG_TIMEOUT, control.refresh_catalog(request));
        answer.await.map(|answer| Lsn(answer.lsn))
    }

    /// Where the log's durable end is, as the decoder knows it now.
    pub async fn durable(&self) -> Result<Lsn, PositionsError> {
        let mut control = self.control();
        let first = async move {
            let heads = control.watch_head(WatchHeadRequest::default()).await?;
            let head = heads.into_inner().message().await?;
            Ok(Response::new(head.unwrap_or_default()))
        };
        let head = self.ask(None, CONNECT_TIMEOUT, first).await?;
        Ok(Lsn(head.durable_lsn))
    }

    /// What a publication means that nobody makes, as a publications record of the log. `definition`: what stands behind
    /// the name in CREATE PUBLICATION.
    pub async fn explain_publication(&self, definition: String) -> Result<Vec<u8>, PositionsError> {
        let mut control = self.control();
        let request = ExplainPublicationRequest { definition };
        let answer = self.ask(None, CATALOG_TIMEOUT, control.explain_publication(request));
        answer.await.map(|answer| answer.state)
    }

    /// Whether the decoder answered when it was last asked or listened to.
    #[must_use]
    pub fn connected(&self) -> bool {
        self.inner.connected.load(Ordering::Relaxed)
    }

    /// How many slots are served here.
    #[must_use]
    pub fn lease_count(&self) -> u64 {
        u64::try_from(self.inner.places.lock().len()).unwrap_or(u64::MAX)
    }

    /// Returns when no slot is served here any more.
    pub async fn all_given_back(&self) {
        loop {
            let mut freed = std::pin::pin!(self.inner.freed.notified());
            // Before looking, so that what happens between looking and waiting is not missed.
            freed.as_mut().enable();
            if self.inner.places.lock().is_empty() {
                return;
            }
            freed.await;
        }
    }

    /// "name/incarnation", as the decoder knows this process.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.inner.holder
    }

    /// From now on whoever wants the slot waits until the guard is dropped.
    pub(super) fn begin_giving_back(&self, held: &Held) -> PlaceGuard {
        let name = &held.slot.name;
        let place = Place::GivingBack;
        self.inner.places.lock().insert(name.clone(), place);
        PlaceGuard::new(self, name)
    }

    /// The lease's end at the decoder, with the last confirmed position.
    pub(super) async fn give_back(
        &self,
        held: &Held,
        _place: PlaceGuard,
    ) -> Result<(), PositionsError> {
        if held.lost.is_cancelled() {
            return Ok(());
        }
        let name = &held.slot.name;
        let request = ReleaseSlotRequest {
            name: name.clone(),
            holder: self.inner.holder.clone(),
            confirmed_lsn: held.claim().whole.0,
        };
        let _turn = self.inner.turns.acquire().await;
        for tried in 1.. {
            let mut control = self.control();
            let call = control.release_slot(request.clone());
            match self.ask(Some(name), ANSWER_TIMEOUT, call).await {
                Err(error) if error.is_late() && tried < RELEASE_TRIES => {}
                // It was a temporary slot, and the answer to an earlier try did not come through.
                Err(PositionsError::UnknownSlot { .. }) if tried > 1 => break,
                answer => return answer.map(|_| ()),
            }
        }
        Ok(())
    }

    /// Everything that is held now.
    pub(super) fn held(&self) -> Vec<Arc<Held>> {
        let places = self.inner.places.lock();
        let held = places.values().filter_map(|place| match place {
            Place::Held(held) => Some(Arc::clone(held)),
            Place::Taking | Place::GivingBack => None,
        });
        held.collect()
    }

    pub(super) async fn ask_lease(
        &self,
        slot: &str,
        pid: u32,
    ) -> Result<SlotStatus, PositionsError> {
        let request = AcquireSlotRequest {
            name: slot.to_owned(),
            holder: self.inner.holder.clone(),
            pid,
        };
        let mut control = self.control();
        let answer = self.ask(Some(slot), ANSWER_TIMEOUT, control.acquire_slot(request));
        Ok(answer.await?.slot.unwrap_or_default())
    }

    pub(crate) fn control(&self) -> ControlClient<Channel> {
        self.inner.control.clone()
    }

    pub(crate) fn note_connected(&self, connected: bool) {
        self.inner.connected.store(connected, Ordering::Relaxed);
    }

    /// Waits for an answer, and notes whether the decoder is there.
    pub(super) async fn ask<T>(
        &self,
        slot: Option<&str>,
        timeout: Duration,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, PositionsError> {
        let answer = tokio::time::timeout(timeout, call).await;
        let answer = answer.unwrap_or_else(|_| {
            let message = format!("no answer within {} s", timeout.as_secs());
            Err(Status::deadline_exceeded(message))
        });
        match answer {
            Ok(response) => {
                self.note_connected(true);
                Ok(response.into_inner())
            }
            Err(status) => {
                let error = PositionsError::from_status(status, &self.inner.address, slot);
                self.note_connected(!matches!(error, PositionsError::Unavailable { .. }));
                Err(error)
            }
        }
    }

    async fn take_place(&self, slot: &str) -> Result<PlaceGuard, PositionsError> {
        loop {
            self.wait_given_back(slot).await?;
            let mut places = self.inner.places.lock();
            if !places.contains_key(slot) {
                places.insert(slot.to_owned(), Place::Taking);
                return Ok(PlaceGuard::new(self, slot));
            }
        }
    }

    /// Waits while the slot is being given back here; fails if it is in use here.
    async fn wait_given_back(&self, slot: &str) -> Result<(), PositionsError> {
        loop {
            let mut freed = std::pin::pin!(self.inner.freed.notified());
            // Before looking, so that what happens between looking and waiting is not missed.
            freed.as_mut().enable();
            let pid = match self.inner.places.lock().get(slot) {
                None => return Ok(()),
                Some(Place::GivingBack) => None,
                Some(Place::Taking) => Some(0),
                Some(Place::Held(held)) => Some(held.pid),
            };
            if let Some(pid) = pid {
                return Err(PositionsError::SlotInUse {
                    slot: slot.to_owned(),
                    holder: "another connection to this fanout has it".to_owned(),
                    pid,
                });
            }
            freed.await;
        }
    }
}

/// Frees a place when it is dropped, unless it is kept.
pub(super) struct PlaceGuard {
    positions: Positions,
    slot: Option<String>,
}

impl PlaceGuard {
    fn new(positions: &Positions, slot: &str) -> Self {
        Self {
            positions: positions.clone(),
            slot: Some(slot.to_owned()),
        }
    }

    fn keep(mut self, held: Arc<Held>) {
        if let Some(slot) = self.slot.take() {
            let mut places = self.positions.inner.places.lock();
            places.insert(slot, Place::Held(held));
        }
    }
}

impl Drop for PlaceGuard {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.positions.inner.places.lock().remove(&slot);
            self.positions.inner.freed.notify_waiters();
        }
    }
}
