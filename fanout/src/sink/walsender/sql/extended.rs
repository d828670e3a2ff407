//! The extended query protocol of ordinary connections: messages go to the source as they come and answers come back,
//! neither waiting for the other, but for statements about slots. Around those everything is in step: what comes before
//! is answered first, and what they need is put in place before they go on.

use std::io;

use pg_proto::Oid;
use pg_proto::wire::{ErrorFields, ExtendedQuery, parameters_only, sqlstate};

use super::super::backends::Cancelling;
use super::super::client::ClientFrame;
use super::super::command::aborted;
use super::super::session::{Flow, Session, administrator};
use super::super::upstream::lost;
use super::analysis::{Special, Verdict, analyse};
use super::call::RESULTS;
use super::effects::{Calls, RIGHTS, Rights};
use super::hidden::{self, Hidden, HiddenError, Interrupts, set};
use super::names::{View, is_special_number};
use super::pipeline::Pipeline;
use super::prepared::Statement;
use super::relay::{RELAY_CHUNK, is_fatal};

/// So much may wait for the source to read it before the client is read on.
const QUEUED_MAX: usize = 1 << 20;
/// So many messages may be unanswered before the client is read on.
const ASKED_MAX: usize = 10_000;
/// What the source is told in the place of a statement that is refused here: it fails, and so does its transaction.
const FAIL: &[u8] = b"SELECT refused_by_decant";

/// A batch of messages, up to its Sync or several.
struct Batch {
    pipeline: Pipeline,
    cancelling: Cancelling,
    /// Whose rows are at the source since the last Sync.
    supplied: Vec<View>,
}

/// What happened.
enum Turn {
    /// The client said something.
    Client(ClientFrame),
    /// Something else, which is dealt with.
    Done,
    /// The session ends.
    End,
}

impl Session<'_> {
    /// Serves a batch of the extended protocol that begins with `first`.
    pub(crate) async fn extended(&mut self, first: ClientFrame) -> io::Result<Flow> {
        if let Err(error) = self.reach_source().await {
            if first.tag() == b'F' {
                return self.conclude(Err(error)).await;
            }
            self.skip_to_sync = true;
            self.fail(error).await;
            return Ok(Flow::Next);
        }
        let mut batch = Batch {
            pipeline: Pipeline::default(),
            cancelling: Cancelling::new(self.backend.cancelled()),
            supplied: Vec::new(),
        };
        let mut next = Some(first);
        loop {
            if let Some(frame) = next.take() {
                match frame.tag() {
                    b'X' => return Ok(Flow::End),
                    b'P' | b'B' | b'D' | b'E' | b'C' | b'H' | b'S' | b'F' | b'd' | b'c' | b'f' => {
                        if !self.pass(&mut batch, &frame).await? {
                            return Ok(Flow::End);
                        }
                    }
                    _ if batch.pipeline.is_skipping() => {}
                    // A query of the simple protocol, or an error, after all that came before.
                    _ => {
                        let alive = self.drain(&mut batch).await?;
                        self.unread = Some(frame);
                        return Ok(if alive { Flow::Next } else { Flow::End });
                    }
                }
            }
            if batch.pipeline.is_over() {
                self.prepared.end_of_batch(self.upstream.status());
                return Ok(Flow::Next);
            }
            match self.turn(&mut batch, true).await? {
                Turn::Client(frame) => next = Some(frame),
                Turn::Done => {}
                Turn::End => return Ok(Flow::End),
            }
        }
    }

    /// Whatever comes first: an answer, a message of the client if it is `listened` to, a request to cancel.
    async fn turn(&mut self, batch: &mut Batch, listened: bool) -> io::Result<Turn> {
        let pending = self.client.sender.pending_len();
        let Some(connection) = self.upstream.connection() else {
            return Ok(Turn::End);
        };
        let room = connection.queued() < QUEUED_MAX && batch.pipeline.len() < ASKED_MAX;
        tokio::select! {
            biased;
            () = self.shared.shutdown.cancelled() => self.end_now(),
            () = self.terminated.cancelled() => self.end_now(),
            () = batch.cancelling.next() => {
                let token = connection.cancel_token();
                tokio::spawn(async move { token.cancel().await });
                Ok(Turn::Done)
            }
            frame = connection.next_frame(), if pending < RELAY_CHUNK => match frame {
                Ok(frame) => {
                    self.client.sender.put_raw(&frame.wire_bytes());
                    batch.pipeline.answered(frame.tag());
                    self.had_error |= frame.tag() == b'E';
                    match frame.tag() {
                        b'S' => self.note_parameter(&frame),
                        b'Z' => batch.supplied.clear(),
                        b'E' if is_fatal(&frame) => return Ok(Turn::End),
                        _ => {}
                    }
                    Ok(Turn::Done)
                }
                Err(error) => {
                    self.upstream.drop_connection();
                    self.client.sender.error(lost(&error));
                    Ok(Turn::End)
                }
            },
            received = self.client.receiver.next(), if listened && room && pending == 0 => match received {
                Ok(Some(frame)) => Ok(Turn::Client(frame)),
                Ok(None) => Ok(Turn::End),
                Err(error) => {
                    if let Some(report) = error.report() {
                        self.client.sender.error(report);
                    }
                    Ok(Turn::End)
                }
            },
            () = std::future::ready(()), if pending > 0 => {
                self.client.sender.flush().await?;
                Ok(Turn::Done)
            }
        }
    }

    fn end_now(&mut self) -> io::Result<Turn> {
        self.client.sender.error(administrator());
        Ok(Turn::End)
    }

    /// Waits until everything is answered. False: the session ends.
    async fn drain(&mut self, batch: &mut Batch) -> io::Result<bool> {
        if !batch.pipeline.is_drained()
            && let Some(connection) = self.upstream.connection()
        {
            connection.queue_frame(b'H', &[]);
        }
        while !batch.pipeline.is_drained() && !batch.pipeline.is_copying_in() {
            if let Turn::End = self.turn(batch, false).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Passes on a message. False: the session ends.
    async fn pass(&mut self, batch: &mut Batch, frame: &ClientFrame) -> io::Result<bool> {
        if batch.pipeline.is_skipping() && frame.tag() != b'S' {
            return Ok(true);
        }
        if !batch.pipeline.is_copying_in() {
            match ExtendedQuery::decode(frame.as_frame()) {
                Some(Ok(ExtendedQuery::Parse {
                    statement,
                    query,
                    types,
                })) => {
                    return self
                        .parse_special(batch, frame, (statement, query, types))
                        .await;
                }
                Some(Ok(message)) => return self.about_prepared(batch, frame, message).await,
                // The source says what is wrong with it.
                Some(Err(_)) => {}
                None if frame.tag() == b'F' && is_special_call(frame) => {
                    let error = ErrorFields::error(
                        sqlstate::FEATURE_NOT_SUPPORTED,
                        "this function can't be called by its number through this endpoint",
                    );
                    let alive = self.drain(batch).await?;
                    return Ok(alive && self.conclude(Err(error)).await? == Flow::Next);
                }
                None => {}
            }
        }
        Ok(self.hand_on(batch, frame.tag(), frame.as_frame().body))
    }

    fn hand_on(&mut self, batch: &mut Batch, tag: u8, body: &[u8]) -> bool {
        let Some(connection) = self.upstream.connection() else {
            return false;
        };
        if batch.pipeline.pass(tag) {
            connection.queue_frame(tag, body);
        }
        true
    }

    async fn parse_special(
        &mut self,
        batch: &mut Batch,
        frame: &ClientFrame,
        (name, query, types): (&[u8], &[u8], Vec<Oid>),
    ) -> io::Result<bool> {
        self.prepared.forget_statement(name);
        match analyse(query, self.dialect(query).await) {
            Verdict::Plain => Ok(self.hand_on(batch, frame.tag(), frame.as_frame().body)),
            Verdict::Refused(error) => self.refuse(batch, *error).await,
            Verdict::Special(special) => {
                let query = special.text.clone();
                let statement = Statement { special, types };
                if let Err(error) = self.prepared.add_statement(name, statement.clone()) {
                    return self.refuse(batch, error).await;
                }
                let types = statement.types;
                let message = ExtendedQuery::Parse {
                    statement: name,
                    query: &query,
                    types,
                };
                let Some(connection) = self.upstream.connection() else {
                    return Ok(false);
                };
                if batch.pipeline.pass(b'P') {
                    connection.queue_extended(&message);
                }
                Ok(true)
            }
        }
    }

    async fn about_prepared(
        &mut self,
        batch: &mut Batch,
        frame: &ClientFrame,
        message: ExtendedQuery<'_>,
    ) -> io::Result<bool> {
        let ready = match message {
            ExtendedQuery::Bind {
                portal,
                statement,
                values,
            } => match self.prepared.bind(portal, statement, values) {
                Ok(Some(statement)) => self.supply(batch, &statement.special).await?,
                Ok(None) => true,
                Err(error) => return self.refuse(batch, error).await,
            },
            ExtendedQuery::Execute { portal, .. } => match self.prepared.execute(portal) {
                Some((statement, values, first)) => {
                    let special = &statement.special;
                    let supplied = self.supply(batch, special).await?;
                    let effect = special.asking.as_deref().filter(|_| first && supplied);
                    match effect {
                        Some(asking) => self.act(batch, asking, &statement.types, &values).await?,
                        None => supplied,
                    }
                }
                None => true,
            },
            ExtendedQuery::Close { what, name } => {
                self.prepared.close(what, name);
                true
            }
            _ => true,
        };
        if !ready {
            return Ok(self.upstream.is_open());
        }
        Ok(self.hand_on(batch, frame.tag(), frame.as_frame().body))
    }

    /// Puts the rows of views in place. False: that failed, the client knows, and what comes up to Sync is ignored.
    async fn supply(&mut self, batch: &mut Batch, special: &Special) -> io::Result<bool> {
        for view in &special.views {
            // Rows as of its first use in a batch are fresh enough for all of it.
            if batch.supplied.contains(view) {
                continue;
            }
            match self.rows_of(*view).await {
                Ok(statement) => {
                    let done = self.hide(batch, statement.as_bytes(), &[], None).await?;
                    if done.is_none() {
                        return Ok(false);
                    }
                }
                Err(error) => {
                    self.refuse(batch, error).await?;
                    return Ok(false);
                }
            }
            batch.supplied.push(*view);
        }
        Ok(true)
    }

    /// Does what the functions in a statement do, and puts what they gave in place.
    async fn act(
        &mut self,
        batch: &mut Batch,
        asking: &[u8],
        types: &[Oid],
        values: &[u8],
    ) -> io::Result<bool> {
        let Ok(values) = parameters_only(values) else {
            return Ok(true);
        };
        let Some(rows) = self.hide(batch, asking, types, Some(&values)).await? else {
            return Ok(false);
        };
        let Some(rights) = self.hide(batch, RIGHTS.as_bytes(), &[], None).await? else {
            return Ok(false);
        };
        let results = match Calls::parse(rows) {
            Ok(calls) => self.make_calls(&calls, Rights::parse(rights)).await,
            Err(error) => Err(error),
        };
        batch.supplied.clear();
        match results {
            Ok(results) => {
                let statement = set(RESULTS, &results);
                let done = self.hide(batch, statement.as_bytes(), &[], None).await?;
                Ok(done.is_some())
            }
            Err(error) => {
                self.refuse(batch, error).await?;
                Ok(false)
            }
        }
    }

    /// Runs a statement of this endpoint's own after all that came before. `None`: not done, as an error came before,
    /// or this is one; the client knows.
    async fn hide(
        &mut self,
        batch: &mut Batch,
        text: &[u8],
        types: &[Oid],
        values: Option<&[u8]>,
    ) -> io::Result<Option<Vec<Option<String>>>> {
        if !self.drain(batch).await? || batch.pipeline.is_skipping() {
            return Ok(None);
        }
        let Some(connection) = self.upstream.connection() else {
            return Ok(None);
        };
        let statement = Hidden {
            text,
            types,
            values,
            sync: false,
        };
        let ending = [&self.shared.shutdown, &self.terminated];
        let interrupts = Interrupts::new(&mut batch.cancelling, ending);
        match hidden::run(connection, statement, interrupts).await {
            Ok(rows) => Ok(Some(rows)),
            Err(HiddenError::Said(error)) => {
                self.client.sender.error(*error);
                self.had_error = true;
                batch.pipeline.failed();
                Ok(None)
            }
            Err(HiddenError::Lost(error)) => {
                self.upstream.drop_connection();
                self.client.sender.error(lost(&error));
                Ok(None)
            }
        }
    }

    /// Tells the client an error after all that came before, and has the transaction at the source fail.
    async fn refuse(&mut self, batch: &mut Batch, error: ErrorFields) -> io::Result<bool> {
        if !self.drain(batch).await? {
            return Ok(false);
        }
        let Some(connection) = self.upstream.connection() else {
            return Ok(false);
        };
        if batch.pipeline.is_skipping() {
            return Ok(true);
        }
        let error = if hidden::has_failed(connection) {
            aborted()
        } else {
            error
        };
        tracing::debug!(error = %error.message(), code = error.code(), "statement failed");
        self.client.sender.error(error);
        self.had_error = true;
        batch.pipeline.failed();
        let failing = Hidden {
            text: FAIL,
            types: &[],
            values: None,
            sync: false,
        };
        let ending = [&self.shared.shutdown, &self.terminated];
        let interrupts = Interrupts::new(&mut batch.cancelling, ending);
        match hidden::run(connection, failing, interrupts).await {
            Err(HiddenError::Lost(_)) | Ok(_) => {
                self.upstream.drop_connection();
                Ok(false)
            }
            Err(HiddenError::Said(_)) => Ok(true),
        }
    }
}

fn is_special_call(frame: &ClientFrame) -> bool {
    let number = frame.as_frame().body.first_chunk::<4>();
    number.is_some_and(|number| is_special_number(u32::from_be_bytes(*number)))
}
