//! How one stream follows transactions that have not ended.
//!
//! The decoder notes with each staged block where the log was: everything that commits below that came before it on the
//! source's stream. A block is handed over when this stream has come there, and before it goes further. So pieces and
//! committed transactions come in the order in which the source has sent them, as far as that can be told: a log
//! block with several transactions is one step.
//!
//! A transaction is begun only while its file has no end. Then the log can't have been past it, and all that is asked of
//! its start is that the stream is at or behind the position that the subscriber began from, as
//! `SnapBuildXactNeedsSkip` does.

use std::sync::Arc;

use pg_proto::{Lsn, Xid};
use storage_format::block::Block;
use storage_format::catalog::Catalog;
use storage_format::log::ReadError;
use storage_format::staging::{Rollback, StagedItem, StagedReader, StagedStep};
use tokio::sync::watch;

use super::staged::{Listing, Sending, StagedFile, StagedFiles};
use crate::emit::{Emitter, Outcome, Output, Step};
use crate::error::StreamError;

/// Where the stream is in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here<'a> {
    /// Everything that commits below this was handed over.
    pub(super) position: Lsn,
    /// The subscriber's start is behind.
    pub(super) begun: bool,
    /// As of the position.
    pub(super) catalog: &'a Arc<Catalog>,
}

/// What one step came to.
#[derive(Debug)]
pub(super) enum EarlyStep {
    /// Nothing is to be handed over here.
    Nothing,
    /// Something was.
    Moved(Outcome, Option<(Xid, Arc<Block>)>),
}

/// The staged files as one stream sees them.
#[derive(Debug)]
pub(super) struct EarlyReader {
    files: StagedFiles,
    listing: watch::Receiver<Listing>,
    /// The log's head, for pieces that are due when the log is further.
    head: watch::Receiver<Lsn>,
    /// Numbers of the files of the listing that were looked at before.
    seen: Vec<u64>,
    open: Vec<Following>,
    /// Whose turn it is.
    turn: usize,
}

/// One file on its way.
#[derive(Debug)]
struct Following {
    file: Arc<StagedFile>,
    offset: u64,
    /// Some of it was handed over.
    sending: Option<Sending>,
    /// The position at which what stands at the offset is due, if that was read already.
    due: Option<Lsn>,
    /// Nothing more is there until the listing changes.
    exhausted: bool,
}

impl EarlyReader {
    pub(super) fn new(files: StagedFiles, head: watch::Receiver<Lsn>) -> Self {
        let mut listing = files.follow();
        listing.mark_changed();
        Self {
            listing,
            head,
            files,
            seen: Vec::new(),
            open: Vec::new(),
            turn: 0,
        }
    }

    /// Returns when there may be more. Cancel safe. Never, when nobody looks any more.
    pub(super) async fn changed(&mut self) {
        let waits = self.open.iter().any(|one| one.due.is_some());
        let changed = tokio::select! {
            changed = self.listing.changed() => {
                self.listing.mark_changed();
                changed
            }
            changed = self.head.changed(), if waits => changed,
        };
        if changed.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Hands over what is due next, if anything is: one block at most.
    pub(super) fn step(
        &mut self,
        here: Here<'_>,
        emitter: &mut Emitter,
        out: &mut impl Output,
    ) -> Result<EarlyStep, StreamError> {
        self.refresh();
        emitter.early_expire(out);
        if !here.begun {
            return Ok(EarlyStep::Nothing);
        }
        for _ in 0..self.open.len() {
            self.turn = (self.turn + 1) % self.open.len().max(1);
            let Some(one) = self.open.get_mut(self.turn) else {
                break;
            };
            if one.exhausted || one.due.is_some_and(|due| due > here.position) {
                continue;
            }
            match one.next()? {
                Some(next) if next.position > here.position => one.due = Some(next.position),
                Some(next) => {
                    if let Some(step) = self.hand_over(next, here, emitter, out)? {
                        return Ok(step);
                    }
                }
                None => match one.nothing_more()? {
                    Some(true) => self.lose(emitter, out),
                    Some(false) => {}
                    None => one.exhausted = true,
                },
            }
        }
        Ok(EarlyStep::Nothing)
    }

    /// Hands over what comes next of a transaction to whose end the log has come, due or not. The file of a transaction
    /// that is in the log has its end; if this one has none, it is another attempt at the same.
    pub(super) fn drain(
        &mut self,
        xid: Xid,
        here: Here<'_>,
        emitter: &mut Emitter,
        out: &mut impl Output,
    ) -> Result<EarlyStep, StreamError> {
        let sent = |one: &Following| one.xid() == xid && one.sending.is_some();
        let found = self.open.iter().position(sent);
        let next = match found.and_then(|turn| Some((turn, self.open.get_mut(turn)?))) {
            Some((turn, one)) => {
                self.turn = turn;
                one.next()?
            }
            None => None,
        };
        if let Some(next) = next {
            let step = self.hand_over(next, here, emitter, out)?;
            return Ok(step.unwrap_or(EarlyStep::Nothing));
        }
        if let Some(turn) = found {
            self.open.remove(turn);
        }
        emitter.early_given_up(xid, Rollback::default(), out);
        Ok(EarlyStep::Nothing)
    }

    /// Takes notice of what has come and gone.
    fn refresh(&mut self) {
        if !self.listing.has_changed().unwrap_or(false) {
            return;
        }
        let listing = self.listing.borrow_and_update().clone();
        for one in &mut self.open {
            one.exhausted = false;
        }
        for file in &*listing.files {
            if !self.seen.contains(&file.number) {
                self.open.push(Following {
                    file: Arc::clone(file),
                    offset: StagedReader::START,
                    sending: None,
                    due: None,
                    exhausted: false,
                });
            }
        }
        self.seen = listing.files.iter().map(|file| file.number).collect();
    }

    /// Hands over what was read of the file whose turn it is. `None` if that is to be left to the log.
    fn hand_over(
        &mut self,
        next: StagedStep,
        here: Here<'_>,
        emitter: &mut Emitter,
        out: &mut impl Output,
    ) -> Result<Option<EarlyStep>, StreamError> {
        let Some(one) = self.open.get_mut(self.turn) else {
            return Ok(None);
        };
        let reader = &one.file.reader;
        let xid = reader.xid();
        if one.sending.is_none() {
            if reader.end().map_err(ReadError::from)?.is_some() {
                self.open.remove(self.turn);
                return Ok(None);
            }
            // Another attempt at the same, of a decoder that is no more.
            emitter.early_given_up(xid, Rollback::default(), out);
            emitter.early_begin(xid, reader.start(), reader.send_time());
            one.sending = Some(self.files.sending());
            return Ok(Some(self.begun(xid)));
        }
        let passed = next.next - one.offset;
        one.offset = next.next;
        one.due = None;
        self.files.count_bytes(passed);
        let step = match next.item {
            StagedItem::Block(block) => {
                let outcome = emitter.early_block(xid, &block, here.catalog, out)?;
                return Ok(Some(EarlyStep::Moved(outcome, Some((xid, block)))));
            }
            StagedItem::Aborted(subxid, at) => {
                emitter.early_aborted(xid, subxid, at, out)?;
                EarlyStep::Moved(Outcome::On(Step::default()), None)
            }
            StagedItem::End(end) => {
                emitter.early_ended(xid, end, out);
                self.open.remove(self.turn);
                EarlyStep::Moved(Outcome::On(Step::default()), None)
            }
        };
        Ok(Some(step))
    }

    /// The file whose turn it is is the one of its transaction from here on.
    fn begun(&mut self, xid: Xid) -> EarlyStep {
        let number = self.open.get(self.turn).map(|one| one.file.number);
        self.open
            .retain(|one| one.xid() != xid || Some(one.file.number) >= number);
        EarlyStep::Moved(Outcome::On(Step::default()), None)
    }

    /// The file whose turn it is was removed without an end: the decoder begins anew.
    fn lose(&mut self, emitter: &mut Emitter, out: &mut impl Output) {
        let lost = self.open.remove(self.turn);
        if lost.sending.is_some() {
            emitter.early_given_up(lost.xid(), Rollback::default(), out);
        }
    }
}

impl Following {
    fn xid(&self) -> Xid {
        self.file.reader.xid()
    }

    fn next(&self) -> Result<Option<StagedStep>, StreamError> {
        let read = self.file.reader.read(self.offset);
        Ok(read.map_err(ReadError::from)?)
    }

    /// Whether nothing more will ever come; `None` if that is not known yet. Asked first whether the file is gone, then
    /// whether there is more: the decoder writes the end before it removes the file.
    fn nothing_more(&self) -> Result<Option<bool>, StreamError> {
        if self.file.reader.is_removed().map_err(ReadError::from)? {
            return Ok(Some(self.next()?.is_none()));
        }
        Ok(None)
    }
}
