//! Who waits at the log's head is woken here.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::v1::{Head, WatchHeadRequest};
use storage_format::log::Log;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::staged::StagedFiles;
use super::{HeadTeller, HeadTold};
use crate::positions::Positions;
use crate::versions::VersionsFile;

/// Longest time between two looks at the log, however quiet the decoder is.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Time between two looks at a log that moves, while the decoder can't be heard.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Time before the decoder is called again after it hung up or did not answer.
const CALL_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time for the decoder to answer a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Follows the log's head: at once while the decoder's control service tells it, otherwise by looking at the
/// watermark. What the decoder tells is only a reason to look: the watermark is what counts.
pub(crate) struct HeadWatcher {
    positions: Positions,
    head: HeadTeller,
    staged: StagedFiles,
    versions: VersionsFile,
    versions_seen: Mutex<Seen>,
}

/// The last look at versions of publications.
struct Seen {
    at: Instant,
    failed: bool,
}

impl HeadWatcher {
    /// A watcher, and where it tells the head.
    pub(crate) fn new(
        log: Arc<Log>,
        positions: Positions,
        staged: StagedFiles,
        versions: VersionsFile,
    ) -> (Self, HeadTold) {
        let (head, told) = HeadTeller::new(log);
        let watcher = Self {
            positions,
            head,
            staged,
            versions,
            versions_seen: Mutex::new(Seen {
                at: Instant::now(),
                failed: false,
            }),
        };
        (watcher, told)
    }

    /// Watches until `shutdown` is cancelled. Then everybody who waits at the head is told so.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        tokio::select! {
            () = self.watch() => {}
            () = shutdown.cancelled() => {}
        }
    }

    async fn watch(&self) {
        let mut interval = LOOK_INTERVAL_MIN;
        loop {
            let call_again = Instant::now() + CALL_INTERVAL;
            match self.call().await {
                Ok(heads) => self.listen(heads).await,
                Err(status) => tracing::debug!(%status, "the decoder does not tell the log's head"),
            }
            self.positions.note_connected(false);
            while Instant::now() < call_again {
                interval = if self.look() {
                    LOOK_INTERVAL_MIN
                } else {
                    (interval * 2).min(CALL_INTERVAL)
                };
                tokio::time::sleep(interval).await;
            }
        }
    }

    async fn call(&self) -> Result<Streaming<Head>, Status> {
        let mut control = self.positions.control();
        let request = WatchHeadRequest {};
        // While this waits nobody is woken; an address that does not answer is given up soon.
        let call = tokio::time::timeout(CALL_TIMEOUT, control.watch_head(request));
        let mut call = std::pin::pin!(call);
        loop {
            tokio::select! {
                answer = &mut call => {
                    let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")));
                    return answer.map(tonic::Response::into_inner);
                }
                () = tokio::time::sleep(LOOK_INTERVAL_MIN) => {
                    self.look();
                }
            }
        }
    }

    /// Looks whenever the decoder says that there is more, until it hangs up.
    async fn listen(&self, mut heads: Streaming<Head>) {
        tracing::info!("the decoder tells the log's head");
        self.positions.note_connected(true);
        loop {
            match tokio::time::timeout(LOOK_INTERVAL_MAX, heads.message()).await {
                Ok(Ok(Some(_))) | Err(_) => {
                    self.look();
                }
                Ok(Ok(None)) => {
                    tracing::info!("the decoder ended; looking at the log's head until it is back");
                    return;
                }
                Ok(Err(status)) => {
                    let reason = status.message();
                    tracing::info!(
                        reason,
                        "lost the decoder; looking at the log's head until it is back"
                    );
                    return;
                }
            }
        }
    }

    /// True if the head has moved.
    fn look(&self) -> bool {
        // First: what came on the source's stream before the head's last commit is sent before it.
        self.staged.look();
        self.look_at_versions();
        self.head.look()
    }

    /// For those who are behind: who begins to read looks for itself.
    fn look_at_versions(&self) {
        let mut seen = self.versions_seen.lock();
        if seen.at.elapsed() < LOOK_INTERVAL_MAX {
            return;
        }
        seen.at = Instant::now();
        let looked = self.versions.look();
        let failed = std::mem::replace(&mut seen.failed, looked.is_err());
        if let Err(error) = looked
            && !failed
        {
            tracing::error!(
                error = service::cli::causes(&error),
                "streams that run go on with the versions of publications that were known; none that names publications begins"
            );
        }
    }
}
