//! Decant's own publications.

use std::sync::Arc;

use pg_proto::Lsn;
use proto::v1::{DropPublicationRequest, OwnPublication as View, PutPublicationRequest};
use tonic::Status;

use super::convert::registry_error;
use super::service::ControlService;
use super::slots::Position;
use super::versions::{self, Change};
use crate::catalog::OwnPublication;

impl ControlService {
    /// All of them, by name.
    pub(super) async fn own_publications(&self) -> Result<Vec<View>, Status> {
        self.blocking(|service| {
            versions::views(&service.about.log_directory, &service.recogniser.own())
        })
        .await
    }

    /// Stores one and puts it in force; from where on.
    pub(super) async fn store_publication(
        &self,
        request: PutPublicationRequest,
    ) -> Result<Lsn, Status> {
        let PutPublicationRequest {
            name,
            definition,
            state,
            replace,
            from_lsn,
            from_time,
        } = request;
        let position = Position::of_request(from_lsn, from_time)?;
        let publication = OwnPublication::new(&name, definition, &state)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let _changing = self.publications.lock().await;
        self.check_name(&name, replace)?;
        if publication.has_roots() {
            self.check_describes(&name).await?;
        }
        let publication = Arc::new(publication);
        let from = self.start(position, Some(&publication)).await?;
        let before = self.state.head().durable_lsn;
        let stored = Arc::clone(&publication);
        self.blocking(move |service| {
            let stored = service.registry.put_publication(&stored);
            stored.map_err(registry_error)?;
            service.reload_publications()
        })
        .await?;
        tracing::info!(publication = name, replaced = replace, "publication stored");
        self.put_in_force(name, Some(publication), from, before)
            .await
    }

    /// Removes one; from where on.
    pub(super) async fn remove_publication(
        &self,
        request: DropPublicationRequest,
    ) -> Result<Lsn, Status> {
        let DropPublicationRequest {
            name,
            from_lsn,
            from_time,
        } = request;
        let position = Position::of_request(from_lsn, from_time)?;
        let _changing = self.publications.lock().await;
        self.check_name(&name, true)?;
        let from = self.start(position, None).await?;
        let before = self.state.head().durable_lsn;
        let dropped = name.clone();
        self.blocking(move |service| {
            let removed = service.registry.remove_publication(&dropped);
            removed.map_err(registry_error)?;
            service.reload_publications()
        })
        .await?;
        tracing::info!(publication = name, "publication dropped");
        self.put_in_force(name, None, from, before).await
    }

    /// Where a definition is to begin to count, if that was said and it can.
    async fn start(
        &self,
        position: Option<Position>,
        publication: Option<&Arc<OwnPublication>>,
    ) -> Result<Option<Lsn>, Status> {
        let Some(position) = position else {
            return Ok(None);
        };
        let publication = publication.map(Arc::clone);
        self.blocking(move |service| {
            let log = &service.about.log_directory;
            versions::start(log, position, publication.as_deref()).map(Some)
        })
        .await
    }

    /// Partitions come and go: the source must say so.
    async fn check_describes(&self, name: &str) -> Result<(), Status> {
        if !self.recogniser.describes() {
            // It may not have been asked yet.
            self.refresh().await?;
        }
        if self.recogniser.describes() {
            return Ok(());
        }
        Err(Status::failed_precondition(format!(
            "publication \"{name}\" has partitioned tables, and the event triggers at the source do not report their partitions: \
             run decctl init again there, on the primary, with --decoder-role if the decoder has a role of its own"
        )))
    }

    /// Publications of the source and of Decant have one name space.
    fn check_name(&self, name: &str, exists: bool) -> Result<(), Status> {
        let is_own = self.recogniser.own().iter().any(|one| one.name() == name);
        match (is_own, exists) {
            (true, true) => Ok(()),
            (true, false) => Err(Status::already_exists(format!(
                "publication \"{name}\" already exists"
            ))),
            (false, _) if self.recogniser.source_has(name) => Err(Status::already_exists(format!(
                "publication \"{name}\" belongs to the source: publications of Decant's own need other names"
            ))),
            (false, true) => Err(Status::not_found(format!(
                "Decant has no publication \"{name}\" of its own"
            ))),
            (false, false) => Ok(()),
        }
    }

    fn reload_publications(&self) -> Result<(), Status> {
        let own = self.registry.own_publications().map_err(registry_error)?;
        self.recogniser.set_own(own);
        Ok(())
    }

    /// Has the log state a change that is stored, and notes from where on it counts.
    async fn put_in_force(
        &self,
        name: String,
        publication: Option<Arc<OwnPublication>>,
        from: Option<Lsn>,
        before: Lsn,
    ) -> Result<Lsn, Status> {
        let stated = self.refresh().await.map_err(|status| {
            tracing::warn!(publication = name, %status, "the change is stored and not in force yet");
            let older = from.map_or_else(String::new, |from| {
                format!(" (and not from {from}, unless the same is asked again then)")
            });
            Status::unavailable(format!(
                "the change is stored, and comes into force when the source can be asked again{older}: {}",
                status.message()
            ))
        })?;
        let noted = self
            .blocking(move |service| {
                let change = Change {
                    name: &name,
                    publication: publication.as_deref(),
                    from,
                    before,
                };
                versions::note(&service.about.log_directory, &change)
            })
            .await;
        match (noted, from) {
            (Ok(lsn), _) => Ok(lsn),
            (Err(status), Some(from)) => Err(Status::new(
                status.code(),
                format!(
                    "the change is in force from {stated} on, and could not be made to count from {from}: {}",
                    status.message()
                ),
            )),
            (Err(status), None) => {
                tracing::warn!(%status, "the change is in force, and lists do not say from where on");
                Ok(stated)
            }
        }
    }
}
