//! Who waits at the log's head is woken here.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::v1::{Head, WatchHeadRequest};
use storage_format::log::Log;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::doorbell::Doorbell;
use super::staged::StagedFiles;
use super::{HeadTeller, HeadTold};
use crate::positions::Positions;
use crate::versions::VersionsFile;

/// Longest time between two looks at the log, however quiet the decoder is.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Time between two looks at a log that moves, while the decoder can't be heard.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// How often the decoder tells the head to who hears the doorbell.
const SELDOM_MS: u32 = 1_000;
/// Time before the decoder is called again after it hung up or did not answer.
const CALL_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time for the decoder to answer a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Follows the log's head: at once while the decoder's control service tells it or the [`Doorbell`] rings, otherwise by
/// looking at the watermark. What is told is only a reason to look: the watermark is what counts.
pub(crate) struct HeadWatcher {
    doorbell: Doorbell,
    look: Look,
}

/// What is looked at.
struct Look {
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
        let doorbell = Doorbell::new(log.directory());
        let (head, told) = HeadTeller::new(log);
        let look = Look {
            positions,
            head,
            staged,
            versions,
            versions_seen: Mutex::new(Seen {
                at: Instant::now(),
                failed: false,
            }),
        };
        (Self { doorbell, look }, told)
    }

    /// Watches until `shutdown` is cancelled. Then everybody who waits at the head is told so.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        tokio::select! {
            () = self.watch() => {}
            () = shutdown.cancelled() => {}
        }
    }

    async fn watch(&mut self) {
        let mut interval = LOOK_INTERVAL_MIN;
        loop {
            let call_again = Instant::now() + CALL_INTERVAL;
            self.doorbell.listen();
            let often = !self.doorbell.is_believed();
            match self.look.call(often).await {
                Ok(heads) => {
                    if self.listen(heads, often).await {
                        continue;
                    }
                }
                Err(status) => tracing::debug!(%status, "the decoder does not tell the log's head"),
            }
            self.look.positions.note_connected(false);
            while Instant::now() < call_again {
                interval = if self.look.now() {
                    LOOK_INTERVAL_MIN
                } else {
                    (interval * 2).min(CALL_INTERVAL)
                };
                tokio::time::sleep(interval).await;
            }
        }
    }

    /// Looks whenever the doorbell rings or the decoder says that there is more, until it hangs up. True if it must be
    /// called again at once, to tell the head more or less often.
    async fn listen(&mut self, mut heads: Streaming<Head>, often: bool) -> bool {
        let Self { doorbell, look } = self;
        if often {
            tracing::info!("the decoder tells the log's head");
        }
        look.positions.note_connected(true);
        while often != doorbell.is_believed() {
            tokio::select! {
                biased;
                () = doorbell.rung() => {
                    look.now();
                }
                told = tokio::time::timeout(LOOK_INTERVAL_MAX, heads.message()) => match told {
                    Ok(Ok(Some(_))) | Err(_) => {
                        if look.now() {
                            doorbell.missed();
                        }
                    }
                    Ok(Ok(None)) => {
                        tracing::info!("the decoder ended; looking at the log's head until it is back");
                        return false;
                    }
                    Ok(Err(status)) => {
                        let reason = status.message();
                        tracing::info!(
                            reason,
                            "lost the decoder; looking at the log's head until it is back"
                        );
                        return false;
                    }
                },
            }
        }
        true
    }
}

impl Look {
    /// Asks the decoder to tell the head, often or just so that nothing is missed for long.
    async fn call(&self, often: bool) -> Result<Streaming<Head>, Status> {
        let mut control = self.positions.control();
        let request = WatchHeadRequest {
            min_interval_ms: if often { 0 } else { SELDOM_MS },
        };
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
                    self.now();
                }
            }
        }
    }

    /// True if the head has moved.
    fn now(&self) -> bool {
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
