//! Decant's own publications.

use pg_proto::Lsn;
use proto::v1::{OwnPublication as View, PutPublicationRequest};
use tonic::Status;

use super::convert::registry_error;
use super::service::ControlService;
use crate::catalog::OwnPublication;

impl ControlService {
    /// All of them, by name.
    pub(super) fn own_publications(&self) -> Vec<View> {
        let own = self.recogniser.own();
        own.iter()
            .map(|one| View {
                name: one.name().to_owned(),
                definition: one.definition.clone(),
            })
            .collect()
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
        } = request;
        let publication = OwnPublication::new(&name, definition, &state)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let _changing = self.publications.lock().await;
        self.check_name(&name, replace)?;
        if publication.has_roots() {
            self.check_describes(&name).await?;
        }
        self.blocking(move |service| {
            let stored = service.registry.put_publication(&publication);
            stored.map_err(registry_error)?;
            service.reload_publications()
        })
        .await?;
        tracing::info!(publication = name, replaced = replace, "publication stored");
        self.put_in_force(&name).await
    }

    /// Removes one; from where on.
    pub(super) async fn remove_publication(&self, name: String) -> Result<Lsn, Status> {
        let _changing = self.publications.lock().await;
        self.check_name(&name, true)?;
        let dropped = name.clone();
        self.blocking(move |service| {
            let removed = service.registry.remove_publication(&dropped);
            removed.map_err(registry_error)?;
            service.reload_publications()
        })
        .await?;
        tracing::info!(publication = name, "publication dropped");
        self.put_in_force(&name).await
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

    async fn put_in_force(&self, name: &str) -> Result<Lsn, Status> {
        self.refresh().await.map_err(|status| {
            tracing::warn!(publication = name, %status, "the change is stored and not in force yet");
            Status::unavailable(format!(
                "the change is stored, and comes into force when the source can be asked again: {}",
                status.message()
            ))
        })
    }
}
