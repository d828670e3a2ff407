//! `START_REPLICATION ... LOGICAL`: from the command to the stream and back to commands.

use std::io;

use pg_proto::Lsn;
use pg_proto::replication::CommandOption;
use pg_proto::wire::{
    BackendMessage, CopyResponse, ErrorFields, Severity, TransactionStatus, sqlstate,
};
use storage_format::log::ReadError;

use super::backends::Streams;
use super::parameters::{encoding_conflict, fixed_settings};
use super::session::{Flow, Session};
use super::slots::MAKE_ANEW;
use super::start_options::{self, StartOptions, Streaming};
use super::stream::{End, Sending};
use super::upstream::with_causes;
use crate::emit::{EmitOptions, Form, MissingPublication, WireForm};
use crate::error::StreamError;
use crate::positions::Lease;
use crate::replay::{Ahead, Stream, StreamOptions};
use crate::selection::{Publications, SelectionSpec};
use crate::sink::PublicationsError;
use crate::subscriber::{Protocol, Registration, SubscriberInfo};

/// What a stream needs, all at hand.
struct Prepared {
    stream: Stream,
    registration: Registration,
    form: Option<WireForm>,
    start: Lsn,
}

impl Session<'_> {
    /// Streams until the client or the server ends it.
    pub(super) async fn start(
        &mut self,
        slot: &str,
        start: Lsn,
        options: &[CommandOption],
    ) -> io::Result<Flow> {
        let (lease, streams) = match self.take_slot(slot).await {
            Ok(taken) => taken,
            Err(error) => return self.conclude(Err(error)).await,
        };
        let prepared = match self.prepare(slot, &lease, start, options).await {
            Ok(prepared) => prepared,
            Err(error) => {
                self.give_slot_back(slot, lease, streams).await;
                return self.conclude(Err(error)).await;
            }
        };
        self.upstream.set_aside().await;
        self.warn_of_fixed_settings();
        let sender = &mut self.client.sender;
        sender.put(&BackendMessage::CopyBothResponse(CopyResponse::default()));
        tracing::info!(
            peer = %self.peer, slot, start = %prepared.start,
            application_name = self.login.application_name(), "streaming begins"
        );
        let (ended, registration) = self.send(slot, &lease, prepared).await;
        self.give_slot_back(slot, lease, streams).await;
        drop(registration);
        let flow = match ended? {
            End::CopyDone => {
                let sender = &mut self.client.sender;
                sender.put(&BackendMessage::CopyDone);
                sender.complete("COPY 0");
                sender.complete("START_REPLICATION");
                self.conclude(Ok(())).await?
            }
            End::Shutdown => {
                self.client.sender.complete("COPY 0");
                Flow::End
            }
            End::Gone => Flow::End,
            End::Failed(error) => self.conclude(Err(error)).await?,
        };
        tracing::info!(peer = %self.peer, slot, "streaming ends");
        Ok(flow)
    }

    fn warn_of_fixed_settings(&mut self) {
        let fixed = fixed_settings(&self.parameters, &self.login);
        if !fixed.is_empty() {
            let message = "settings of this connection do not change how values are sent";
            let warning = ErrorFields::new(Severity::Warning, sqlstate::WARNING, message)
                .with_detail(format!("In the stream {}.", fixed.join(", ")));
            let notice = BackendMessage::NoticeResponse(warning);
            self.client.sender.put(&notice);
        }
    }

    async fn send(
        &mut self,
        slot: &str,
        lease: &Lease,
        prepared: Prepared,
    ) -> (io::Result<End>, Registration) {
        let Prepared {
            stream,
            registration,
            form,
            start,
        } = prepared;
        let sending = Sending::new(stream, lease, &registration, start, self.wal_sender_timeout)
            .in_form(form);
        let cancelled = self.backend.cancelled();
        let shutdown = &self.shared.shutdown;
        let signals = (&*cancelled, &self.terminated);
        let ended = Box::pin(sending.run(&mut self.client, shutdown, signals)).await;
        let ended = ended.map(|ended| {
            ended.or_failed(|error, at| {
                let report = self.stream_error(slot, error);
                report.with_context(change_context(slot, at))
            })
        });
        (ended, registration)
    }

    /// The right to stream from a slot: a temporary one of this session, or one that nobody streams from.
    async fn take_slot(&mut self, slot: &str) -> Result<(Lease, Streams), ErrorFields> {
        self.require_database()?;
        if self.upstream.status() != TransactionStatus::Idle {
            return Err(ErrorFields::error(
                sqlstate::ACTIVE_SQL_TRANSACTION,
                "START_REPLICATION cannot run inside a transaction block",
            ));
        }
        let lease = match self.temporary.remove(slot) {
            Some(lease) => lease,
            None => {
                let (positions, pid) = (&self.shared.services.positions, self.backend.pid());
                let acquired = positions.acquire_for(slot, pid).await;
                acquired.map_err(|error| self.slot_error(&error))?
            }
        };
        let streams = self.backend.streams(slot);
        Ok((lease, streams))
    }

    async fn give_slot_back(&mut self, slot: &str, lease: Lease, streams: Streams) {
        lease.settle(self.shared.services.replay.log()).await;
        if lease.slot().temporary {
            self.temporary.insert(slot.to_owned(), lease);
        } else if let Err(error) = lease.release().await {
            tracing::warn!(slot, %error, "can't release the slot; its lease will run out");
        }
        drop(streams);
    }

    async fn prepare(
        &self,
        slot: &str,
        lease: &Lease,
        start: Lsn,
        options: &[CommandOption],
    ) -> Result<Prepared, ErrorFields> {
        let options = start_options::parse(self.source.version, slot, options)?;
        if let Some(conflict) = encoding_conflict(&self.parameters) {
            let message = "this client_encoding is not supported for START_REPLICATION";
            return Err(
                ErrorFields::error(sqlstate::FEATURE_NOT_SUPPORTED, message).with_detail(conflict)
            );
        }
        let confirmed = lease.confirmed();
        if start.is_valid() && start < confirmed {
            tracing::debug!(slot, %start, %confirmed, "has been already streamed, forwarding");
        }
        let start = start.max(confirmed);
        self.require_publications(slot, &options, start).await?;
        let two_phase_at = self.two_phase_at(slot, lease, start, &options).await?;
        let streaming = options.streaming != Streaming::Off;
        let selection = SelectionSpec {
            publications: Publications::Named(options.publications.clone()),
            grant: self
                .shared
                .services
                .guard
                .current()
                .grant_of(&self.login.user),
            ..SelectionSpec::default()
        };
        let stream_options = StreamOptions {
            selection: selection.clone(),
            emit: EmitOptions {
                start,
                end: None,
                messages: options.messages,
                local_origin_only: options.origin_none,
                missing_publication: if self.source.version.tolerates_missing_publication() {
                    MissingPublication::Skip
                } else {
                    MissingPublication::Fail
                },
                streaming,
                two_phase_at,
                begin_with_first_change: self.source.version.begins_late(),
                repeat_relations: true,
            },
            ahead: Ahead::Wait,
            form: Form::default(),
        };
        let opened = self.shared.services.replay.open(stream_options);
        let stream = opened.map_err(|error| self.stream_error(slot, &error))?;
        Ok(Prepared {
            stream,
            registration: self.register(slot, selection)?,
            form: WireForm::new(streaming, options.binary)
                .map(|form| form.with_abort_positions(options.streaming == Streaming::Parallel)),
            start,
        })
    }

    /// From which PREPARE on this subscriber gets prepared transactions as such. It is asked for when the slot is made,
    /// or later with an option, and stays so: what was prepared before comes whole with its commit, also after a
    /// reconnect, or the subscriber would get a PREPARE twice.
    async fn two_phase_at(
        &self,
        slot: &str,
        lease: &Lease,
        start: Lsn,
        options: &StartOptions,
    ) -> Result<Option<Lsn>, ErrorFields> {
        let kept = lease.slot();
        if kept.two_phase {
            // The option is not needed, nor a version of the protocol that has it.
            return Ok(Some(Lsn(kept.two_phase_at)));
        }
        if !options.two_phase {
            return Ok(None);
        }
        let positions = &self.shared.services.positions;
        let altered = positions.set_two_phase(slot, Some(start)).await;
        let altered = altered.map_err(|error| self.slot_error(&error))?;
        Ok(Some(Lsn(altered.two_phase_at)))
    }

    /// Versions before 18 end a stream at the first change if a publication is missing; here it does not begin.
    async fn require_publications(
        &self,
        slot: &str,
        options: &StartOptions,
        start: Lsn,
    ) -> Result<(), ErrorFields> {
        let tolerant = self.source.version.tolerates_missing_publication();
        let looked_up = self
            .shared
            .services
            .unknown_publications(&options.publications);
        let missing = match looked_up.await {
            Ok(unknown) => unknown.into_iter().next(),
            Err(error @ PublicationsError::Stream(_)) => return Err(publications_error(&error)),
            Err(error) if tolerant => {
                tracing::warn!(slot, %error, "a publication is not known and will be skipped");
                None
            }
            Err(error) => return Err(publications_error(&error)),
        };
        match missing {
            Some(name) if !tolerant => {
                let error = StreamError::UnknownPublication { name };
                let report = self.stream_error(slot, &error);
                Err(report.with_context(change_context(slot, start)))
            }
            _ => Ok(()),
        }
    }

    fn register(&self, slot: &str, selection: SelectionSpec) -> Result<Registration, ErrorFields> {
        let info = SubscriberInfo {
            protocol: Protocol::Postgresql,
            application_name: self.login.application_name().to_owned(),
            user: self.login.user.clone(),
            peer: self.peer.to_string(),
            slot: Some(slot.to_owned()),
            selection,
        };
        let registered = self.shared.services.subscribers.register(info);
        registered
            .map_err(|error| ErrorFields::error(sqlstate::TOO_MANY_CONNECTIONS, error.to_string()))
    }

    /// What a client is told when the log says no.
    fn stream_error(&self, slot: &str, error: &StreamError) -> ErrorFields {
        if error.is_damage() {
            tracing::error!(slot, error = service::cli::causes(error), "stream ended");
        }
        match error {
            StreamError::NotKept { .. } => {
                let message = self.source.version.invalidated_slot(slot);
                ErrorFields::error(error.sqlstate(), message)
                    .with_detail(error.to_string())
                    .with_hint("Drop the slot, or the subscription, and make it anew.")
            }
            StreamError::Log(ReadError::Gap { to, .. }) => {
                with_cause(error.sqlstate(), error).with_hint(format!(
                    "Drop the slot, or the subscription, make it anew and copy the tables; the log goes on at {to}."
                ))
            }
            StreamError::Log(ReadError::Forked { .. }) => with_cause(error.sqlstate(), error)
                .with_hint(MAKE_ANEW),
            _ => with_cause(error.sqlstate(), error),
        }
    }
}

/// Where errors of the stream come from.
fn change_context(slot: &str, lsn: Lsn) -> String {
    format!(
        "slot \"{slot}\", output plugin \"pgoutput\", in the change callback, associated LSN {lsn}"
    )
}

fn publications_error(error: &PublicationsError) -> ErrorFields {
    with_cause(error.sqlstate(), error)
}

fn with_cause(code: &str, error: &dyn std::error::Error) -> ErrorFields {
    let report = ErrorFields::error(code, error.to_string());
    match error.source() {
        Some(cause) => report.with_detail(with_causes(cause)),
        None => report,
    }
}
