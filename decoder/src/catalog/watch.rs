//! The task that asks the source for its publications.

use std::sync::Arc;
use std::time::Duration;

use pg_client::Connection;
use pg_proto::Lsn;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::CatalogError;
use super::recogniser::{Heard, Recogniser};
use super::session::{
    Installed, check_primary, describe, emit, inspect, publications, restart_lsn,
};
use crate::registry::Registry;
use crate::source::Addresses;
use crate::state::{CatalogMode, DecoderState, RefreshCatalog, RefreshError};

/// How often the source is compared with the log although triggers report changes: some ways to change publications
/// pass them by, and a trigger that fails must not fail the user's command.
const COMPARE_INTERVAL: Duration = Duration::from_secs(30);

/// First wait before the source is asked again because a state may have missed a change; it doubles up to
/// [`COMPARE_INTERVAL`].
const SETTLE_DELAY: Duration = Duration::from_millis(200);

/// How long the log may stand still before a statement is durable in it. However late the decoder is, it gets there as
/// long as the log grows; the stream is at most a second late if it is there at all.
const STANDSTILL: Duration = Duration::from_secs(15);

/// What the task needs.
#[derive(Clone, Debug)]
pub struct CatalogWatch {
    /// Gets the catalog mode; says when a stream starts and what is durable.
    pub state: Arc<DecoderState>,
    /// Learns the secrets; says what has come in.
    pub recogniser: Arc<Recogniser>,
    /// Keeps the secrets.
    pub registry: Arc<Registry>,
    /// Where the source is asked, and where it is written to.
    pub addresses: Addresses,
    /// How often the source is asked where there are no triggers.
    pub poll_interval: Duration,
    /// The source slot.
    pub slot: String,
}

/// A connection to a server that can be written to.
struct Link {
    connection: Connection,
    installed: Installed,
    /// It is the primary of a source that is a standby.
    beside_standby: bool,
}

struct Task {
    watch: CatalogWatch,
    link: Option<Link>,
    /// To the source, if that is a standby.
    standby: Option<Connection>,
    heard: watch::Receiver<Heard>,
    /// A stream has started, and the publications have not been stated since.
    state_due: bool,
    settle_delay: Duration,
    next: Instant,
    /// Messages that were refused before the source was asked last.
    refused: u64,
    reported: Option<CatalogMode>,
    last_error: String,
}

impl CatalogWatch {
    /// Answers refreshes and watches the source until `shutdown`. What fails is tried again; a refresh gets the error.
    pub async fn run(
        self,
        mut requests: mpsc::Receiver<RefreshCatalog>,
        shutdown: CancellationToken,
    ) {
        let mut sessions = self.state.watch_session();
        // A stream may have started before this task.
        sessions.mark_changed();
        let mut task = Task::new(self);
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                request = requests.recv() => match request {
                    Some(request) => task.refresh(request, &mut requests).await,
                    None => break,
                },
                changed = sessions.changed() => match changed {
                    Ok(()) => task.session_started(*sessions.borrow_and_update() > 0),
                    Err(_) => break,
                },
                () = tokio::time::sleep_until(task.next) => task.look().await,
                changed = task.heard.changed() => match changed {
                    Ok(()) => task.heard_something(),
                    Err(_) => break,
                },
            }
        }
        task.close().await;
    }
}

impl Task {
    fn new(watch: CatalogWatch) -> Self {
        let heard = watch.recogniser.watch();
        Self {
            next: Instant::now() + watch.poll_interval,
            watch,
            link: None,
            standby: None,
            heard,
            state_due: false,
            settle_delay: SETTLE_DELAY,
            refused: 0,
            reported: None,
            last_error: String::new(),
        }
    }

    fn session_started(&mut self, started: bool) {
        if started {
            self.state_due = true;
            self.next = Instant::now();
        }
    }

    fn heard_something(&mut self) {
        let heard = self.heard.borrow_and_update();
        if heard.unsettled {
            self.next = self.next.min(Instant::now() + self.settle_delay);
        } else {
            self.settle_delay = SETTLE_DELAY;
        }
        if heard.refused != self.refused {
            // Somebody may have made a new secret at the source.
            self.next = self.next.min(Instant::now() + self.watch.poll_interval);
        }
    }

    /// States the publications for this request and those that wait behind it, and answers when that is durable.
    async fn refresh(&mut self, first: RefreshCatalog, more: &mut mpsc::Receiver<RefreshCatalog>) {
        let mut requests = vec![first];
        while let Ok(request) = more.try_recv() {
            requests.push(request);
        }
        match self.emit().await {
            Ok(lsn) => {
                tokio::spawn(answer_when_durable(
                    requests,
                    Arc::clone(&self.watch.state),
                    lsn,
                ));
            }
            Err(error) => {
                let reason = error.chain();
                tracing::warn!(
                    error = reason,
                    "the source can't be asked for its publications"
                );
                answer(requests, &Err(RefreshError::Unavailable { reason }));
            }
        }
    }

    /// The regular look at the source.
    async fn look(&mut self) {
        let looked = if *self.watch.state.watch_session().borrow() == 0 {
            // No stream yet, so nothing can come in.
            Ok(())
        } else {
            self.compare().await
        };
        self.refused = self.heard.borrow().refused;
        self.next = Instant::now() + self.interval();
        match looked {
            Ok(()) => self.last_error.clear(),
            Err(error) => {
                let error = error.chain();
                // Once, until it works again or is something else.
                if error != self.last_error {
                    tracing::warn!(
                        error,
                        "the publications of the source can't be compared with the log's"
                    );
                    self.last_error = error;
                }
            }
        }
    }

    fn interval(&mut self) -> Duration {
        if self.heard.borrow().unsettled {
            self.settle_delay = (self.settle_delay * 2).min(COMPARE_INTERVAL);
            return self.settle_delay;
        }
        match &self.link {
            Some(link) if link.installed.mode == CatalogMode::Triggers => COMPARE_INTERVAL,
            _ => self.watch.poll_interval,
        }
    }

    /// States the publications if that is due, or if they differ from what was heard last.
    async fn compare(&mut self) -> Result<(), CatalogError> {
        let unsettled = self.heard.borrow().unsettled;
        if self.state_due || unsettled || !self.is_up_to_date().await? {
            self.emit().await?;
        }
        self.note_restart().await
    }

    /// Finds out how old the changes can be that may still come.
    async fn note_restart(&mut self) -> Result<(), CatalogError> {
        let slot = self.watch.slot.clone();
        let restart = if self.watch.state.source().standby {
            self.restart_at_standby(&slot).await?
        } else {
            self.standby = None;
            let link = self.link().await?;
            let restart = restart_lsn(&mut link.connection, &slot).await;
            self.unlink_on_error(restart)?
        };
        if let Some(lsn) = restart {
            let counters = self.watch.state.counters();
            // Another server, after a failover, may be behind.
            counters.slot_restart_lsn.set(lsn.0);
        }
        Ok(())
    }

    /// The slot is the standby's own.
    async fn restart_at_standby(&mut self, slot: &str) -> Result<Option<Lsn>, CatalogError> {
        let mut connection = match self.standby.take() {
            Some(connection) => connection,
            None => Connection::connect(self.watch.addresses.source()).await?,
        };
        let restart = restart_lsn(&mut connection, slot).await?;
        self.standby = Some(connection);
        Ok(restart)
    }

    async fn is_up_to_date(&mut self) -> Result<bool, CatalogError> {
        let link = self.link().await?;
        let now = publications(&mut link.connection, link.installed).await;
        let now = self.unlink_on_error(now)?;
        let heard = self.heard.borrow();
        Ok(heard.latest.as_deref() == Some(&now))
    }

    async fn emit(&mut self) -> Result<Lsn, CatalogError> {
        let recogniser = Arc::clone(&self.watch.recogniser);
        let link = self.link().await?;
        let emitted = emit(
            &mut link.connection,
            link.installed,
            link.beside_standby,
            &recogniser,
        )
        .await;
        let lsn = self.unlink_on_error(emitted)?;
        self.state_due = false;
        Ok(lsn)
    }

    /// A connection on which something failed is not used again.
    fn unlink_on_error<T>(&mut self, result: Result<T, CatalogError>) -> Result<T, CatalogError> {
        if result.is_err() {
            self.link = None;
        }
        result
    }

    /// The connection, and what is installed at its other end now.
    async fn link(&mut self) -> Result<&mut Link, CatalogError> {
        let source = self.watch.state.source();
        let options = self.watch.addresses.writable(source.standby);
        let mut connection = match self.link.take() {
            Some(link) if link.beside_standby == source.standby => link.connection,
            // The source was promoted, or is another one.
            _ => Connection::connect(options).await?,
        };
        if source.standby {
            check_primary(&mut connection, &source).await?;
        }
        let CatalogWatch {
            registry,
            state,
            recogniser,
            slot,
            ..
        } = &self.watch;
        let installed = inspect(&mut connection, registry, state, recogniser).await?;
        describe(&mut connection, installed, slot, recogniser).await?;
        if self.reported.replace(installed.mode) != Some(installed.mode) {
            report_mode(installed, &self.watch.addresses.source().user);
        }
        Ok(self.link.insert(Link {
            connection,
            installed,
            beside_standby: source.standby,
        }))
    }

    async fn close(self) {
        if let Some(link) = self.link {
            // Ignored: the process ends.
            let _ = link.connection.close().await;
        }
    }
}

fn report_mode(installed: Installed, user: &str) {
    match installed.mode {
        CatalogMode::Triggers => {
            tracing::info!("event triggers at the source report changes of publications");
        }
        _ if installed.right_missing => tracing::warn!(
            "the source has Decant's event triggers, but role {user} may not read their secret: publications are polled, \
             and the triggers' messages count as forged. Run SELECT decant.grant_to_decoder('{user}') as their owner"
        ),
        _ => tracing::info!(
            "the source has no event triggers of Decant's: publications are polled, and a change counts from where it is \
             seen. decctl init installs the triggers"
        ),
    }
}

async fn answer_when_durable(requests: Vec<RefreshCatalog>, state: Arc<DecoderState>, lsn: Lsn) {
    let result = wait_while_it_grows(&state, lsn).await;
    answer(requests, &result);
}

async fn wait_while_it_grows(state: &DecoderState, lsn: Lsn) -> Result<Lsn, RefreshError> {
    loop {
        let before = state.head().durable_lsn;
        match tokio::time::timeout(STANDSTILL, state.wait_durable(lsn)).await {
            Ok(Ok(())) => return Ok(state.head().durable_lsn),
            Ok(Err(_)) => return Err(RefreshError::ShuttingDown),
            Err(_) if state.head().durable_lsn > before => {}
            Err(_) => {
                return Err(RefreshError::Unavailable {
                    reason: not_reached(state, lsn),
                });
            }
        }
    }
}

fn not_reached(state: &DecoderState, lsn: Lsn) -> String {
    let (durable, source) = (state.head().durable_lsn, state.source());
    let mut reason = format!(
        "the log has to reach {lsn}, and has stood still at {durable} for {} s",
        STANDSTILL.as_secs()
    );
    if !source.last_error.is_empty() {
        reason = format!("{reason}: {}", source.last_error);
    }
    reason
}

fn answer(requests: Vec<RefreshCatalog>, result: &Result<Lsn, RefreshError>) {
    for request in requests {
        // Ignored: who asked has gone.
        let _ = request.reply.send(result.clone());
    }
}
