//! Faults of the machine that the programs meet, and what they say of their health.

use std::path::PathBuf;

use super::Decant;
use super::metrics::get;

impl Decant {
    /// The programs that are started from now on look for [`Self::fault`].
    pub fn let_fail(&mut self) {
        self.may_fail = true;
    }

    /// From now on operations of the programs fail as `storage_format::faults` has it, until [`Self::heal`].
    pub fn fault(&self, faults: &str) {
        assert!(self.may_fail, "nobody looks for faults");
        // At once and whole: the programs read it at any moment.
        let path = self.faults_path();
        let fresh = path.with_extension("new");
        std::fs::write(&fresh, faults).expect("a file can be written");
        std::fs::rename(&fresh, &path).expect("a file can be renamed");
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        // Nothing may have failed.
        let _ = std::fs::remove_file(self.faults_path());
    }

    pub(super) fn faults_path(&self) -> PathBuf {
        self.home.path().join("faults")
    }

    /// What the decoder's `/readyz` answers: status line, headers and reason.
    pub async fn readiness(&self) -> String {
        self.get("/readyz").await
    }

    /// The decoder's metrics.
    pub async fn metrics(&self) -> String {
        self.get("/metrics").await
    }

    async fn get(&self, path: &str) -> String {
        let address = &self.settings["decoder.http"];
        get(address, path).await
    }
}
