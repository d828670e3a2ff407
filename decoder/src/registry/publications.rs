//! Decant's own publications, kept beside the slots.
//!
//! The value is JSON: `{"definition": SQL behind the name, "state": what the source said it means}`.

use serde::{Deserialize, Serialize};

use super::error::RegistryError;
use super::operations::Registry;
use crate::catalog::OwnPublication;

const PREFIX: &str = "publication/";

#[derive(Serialize, Deserialize)]
struct Stored {
    definition: String,
    state: String,
}

impl Registry {
    /// All of them, by name.
    pub fn own_publications(&self) -> Result<Vec<OwnPublication>, RegistryError> {
        let pairs = self.store.scan(PREFIX.as_bytes())?;
        pairs
            .into_iter()
            .map(|(key, value)| {
                let key = String::from_utf8_lossy(&key).into_owned();
                let name = key.strip_prefix(PREFIX).unwrap_or_default();
                let damaged = |reason: String| RegistryError::Publication {
                    name: name.to_owned(),
                    reason,
                };
                let stored: Stored =
                    serde_json::from_slice(&value).map_err(|error| damaged(error.to_string()))?;
                OwnPublication::new(name, stored.definition, &stored.state)
                    .map_err(|error| damaged(error.to_string()))
            })
            .collect()
    }

    /// Stores one in place of what had its name; durable when this returns.
    pub fn put_publication(&self, publication: &OwnPublication) -> Result<(), RegistryError> {
        let failed = |error: serde_json::Error| RegistryError::Publication {
            name: publication.name().to_owned(),
            reason: error.to_string(),
        };
        let stored = Stored {
            definition: publication.definition.clone(),
            state: publication.state_json().map_err(failed)?,
        };
        let value = serde_json::to_vec(&stored).map_err(failed)?;
        let key = format!("{PREFIX}{}", publication.name());
        self.store.put(key.as_bytes(), &value)?;
        self.store.flush()?;
        Ok(())
    }

    /// Removes one; durable when this returns.
    pub fn remove_publication(&self, name: &str) -> Result<(), RegistryError> {
        self.store.remove(format!("{PREFIX}{name}").as_bytes())?;
        self.store.flush()?;
        Ok(())
    }
}
