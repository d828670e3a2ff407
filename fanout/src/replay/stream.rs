//! A subscriber's way through the log.

use std::sync::Arc;

use pg_proto::{Lsn, Xid};
use storage_format::block::Block;
use storage_format::log::{Cursor, Step as CursorStep};
use tokio_util::task::AbortOnDropHandle;

use super::early::{EarlyReader, EarlyStep, Here};
use super::waiters::Seat;
use crate::emit::{Emitter, Outcome, Output, Step};
use crate::error::StreamError;
use crate::filter::{Asks, EvaluateError, Filters, Paths, Verdicts};

/// Most blocks that are skipped in one step, so that one subscriber of little does not keep a thread for long.
const SKIPPED_MAX: usize = 256;

/// What [`Stream::advance`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advance {
    /// It went one block further, or over a run of blocks in which nothing concerns this subscriber.
    Moved(Step),
    /// There is nothing further yet: wait with [`Stream::head_moved`].
    AtHead,
    /// PostgreSQL is judging rows: wait with [`Stream::head_moved`].
    Asking,
    /// The end that was asked for is reached; nothing more will come.
    End,
}

/// One subscriber's way through the log. See the [module](super) for how it is driven.
#[derive(Debug)]
pub struct Stream {
    cursor: Cursor,
    emitter: Emitter,
    seat: Seat,
    ended: bool,
    filters: Filters,
    asked: Option<Asked>,
    /// Transactions that have not ended, if they are wanted.
    early: Option<EarlyReader>,
    /// The log has come to the end of this transaction, which is in the block, and not all of it was handed over.
    unfinished: Option<(Xid, Block)>,
}

/// A block in which rows are being judged by PostgreSQL.
#[derive(Debug)]
struct Asked {
    block: Block,
    /// The block is a staged one of this transaction.
    early: Option<Xid>,
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    Coming(AbortOnDropHandle<Result<Verdicts, EvaluateError>>),
    There(Result<Verdicts, EvaluateError>),
}

impl Stream {
    pub(super) const fn new(
        cursor: Cursor,
        emitter: Emitter,
        seat: Seat,
        filters: Filters,
    ) -> Self {
        Self {
            cursor,
            emitter,
            seat,
            ended: false,
            filters,
            asked: None,
            early: None,
            unfinished: None,
        }
    }

    /// Transactions are handed over before they end, from what this reads.
    pub(super) fn with_early(self, early: Option<EarlyReader>) -> Self {
        Self { early, ..self }
    }

    /// Hands the next block's changes to `out`, if there is one. Never waits; works on one block at most.
    pub fn advance(&mut self, out: &mut impl Output) -> Result<Advance, StreamError> {
        if let Some(asked) = self.asked.take() {
            return self.answered(asked, out);
        }
        if let Some((xid, block)) = self.unfinished.take() {
            return self.finish(xid, block, out);
        }
        if self.ended || self.emitter.ended() {
            return Ok(Advance::End);
        }
        if let Some(spot) = self.seat.spot() {
            // Nothing up to there concerns this stream, or it would have been rung.
            self.cursor.go_on_from(&spot);
        }
        if let Some(moved) = self.step_early(out)? {
            // What concerns it may be another now.
            self.seat.disarm();
            return Ok(moved);
        }
        let mut advance = self.step(out)?;
        if advance == Advance::AtHead {
            // What comes between looking at the log and waiting must wake this stream: first ask to be rung, then look
            // again.
            self.seat.arm(&mut self.emitter);
            advance = self.step(out)?;
        }
        if advance == Advance::AtHead
            && let Some(moved) = self.step_early(out)?
        {
            // The log has come to where a piece is due.
            advance = moved;
        }
        if advance != Advance::AtHead {
            self.seat.disarm();
        }
        Ok(advance)
    }

    /// Hands over what is due of transactions that have not ended.
    fn step_early(&mut self, out: &mut impl Output) -> Result<Option<Advance>, StreamError> {
        let Some(early) = &mut self.early else {
            return Ok(None);
        };
        if !self.emitter.takes_pieces() {
            return Ok(None);
        }
        let step = early.step(here(&self.cursor), &mut self.emitter, out)?;
        Ok(self.came_to_early(step))
    }

    /// Hands over what is left of a transaction to whose end the log has come, then goes on there.
    fn finish(
        &mut self,
        xid: Xid,
        block: Block,
        out: &mut impl Output,
    ) -> Result<Advance, StreamError> {
        if let Some(early) = self
            .early
            .as_mut()
            .filter(|_| self.emitter.early_is_open(xid))
        {
            let step = early.drain(xid, here(&self.cursor), &mut self.emitter, out)?;
            self.unfinished = Some((xid, block));
            let moved = self.came_to_early(step);
            return Ok(moved.unwrap_or_else(|| self.moved(Step::default())));
        }
        let outcome = self.emitter.resume(&block, Verdicts::default(), out)?;
        Ok(self.came_to(outcome, block))
    }

    fn came_to_early(&mut self, step: EarlyStep) -> Option<Advance> {
        match step {
            EarlyStep::Nothing => None,
            EarlyStep::Moved(Outcome::Ask(asks), Some((xid, block))) => {
                Some(self.ask(asks, Block::clone(&block), Some(xid)))
            }
            EarlyStep::Moved(Outcome::On(step), _) => Some(self.moved(step)),
            // No piece of a transaction is the end of what was asked for.
            EarlyStep::Moved(..) => Some(self.moved(Step::default())),
        }
    }

    /// Which way the rows went that filters judged.
    #[must_use]
    pub const fn filter_paths(&self) -> &Arc<Paths> {
        self.emitter.filter_paths()
    }

    /// Whether PostgreSQL is judging rows of the block at hand.
    #[must_use]
    pub const fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    /// Returns when there may be more than there was at the last [`Self::advance`]. Cancel safe.
    pub async fn head_moved(&mut self) -> Result<(), StreamError> {
        if let Some(asked) = &mut self.asked {
            if let Answer::Coming(answer) = &mut asked.answer {
                let answer = answer.await.map_err(|_| StreamError::ShuttingDown)?;
                asked.answer = Answer::There(answer);
            }
            return Ok(());
        }
        let woken = match &mut self.early {
            None => self.seat.woken().await,
            Some(early) => tokio::select! {
                woken = self.seat.woken() => woken,
                () = early.changed() => true,
            },
        };
        match woken {
            true => Ok(()),
            false => Err(StreamError::ShuttingDown),
        }
    }

    /// Every transaction whose commit is below this was handed over whole, as far as it concerns this
    /// subscriber. Never goes back.
    #[must_use]
    pub const fn position(&self) -> Lsn {
        self.emitter.position()
    }

    /// The commit position of the transaction whose BEGIN was handed over and whose COMMIT was not.
    #[must_use]
    pub const fn open_transaction(&self) -> Option<Lsn> {
        self.emitter.open_transaction()
    }

    /// Whether it was rung since it began to wait.
    #[cfg(test)]
    pub(crate) fn is_rung(&self) -> bool {
        self.seat.is_rung()
    }

    fn step(&mut self, out: &mut impl Output) -> Result<Advance, StreamError> {
        self.emitter.renew_versions();
        let emitter = &self.emitter;
        let wanted = |header: &_, relations: &[_]| emitter.needs(header, relations);
        let block = match self.cursor.step_with(&wanted, SKIPPED_MAX)? {
            CursorStep::Block(block) => block,
            CursorStep::Skipped => {
                self.emitter.passed(self.cursor.position());
                return Ok(self.moved(Step::default()));
            }
            CursorStep::Head => {
                self.emitter.passed(self.cursor.position());
                return Ok(if self.emitter.ended() {
                    Advance::End
                } else {
                    Advance::AtHead
                });
            }
        };
        self.emitter.set_start(self.cursor.start());
        let outcome = self.emitter.block(&block, self.cursor.catalog(), out)?;
        Ok(self.came_to(outcome, block))
    }

    /// Goes on in a block when its rows are judged.
    fn answered(&mut self, asked: Asked, out: &mut impl Output) -> Result<Advance, StreamError> {
        let Asked {
            block,
            early,
            answer,
        } = asked;
        match (answer, early) {
            (answer @ Answer::Coming(_), _) => {
                self.asked = Some(Asked {
                    block,
                    early,
                    answer,
                });
                Ok(Advance::Asking)
            }
            (Answer::There(verdicts), Some(xid)) => {
                let outcome = self.emitter.early_resume(xid, &block, verdicts?, out)?;
                let step = EarlyStep::Moved(outcome, Some((xid, Arc::new(block))));
                let moved = self.came_to_early(step);
                Ok(moved.unwrap_or_else(|| self.moved(Step::default())))
            }
            (Answer::There(verdicts), None) => {
                let outcome = self.emitter.resume(&block, verdicts?, out)?;
                Ok(self.came_to(outcome, block))
            }
        }
    }

    fn came_to(&mut self, outcome: Outcome, block: impl std::borrow::Borrow<Block>) -> Advance {
        match outcome {
            Outcome::On(step) => self.moved(step),
            Outcome::End(step) => {
                self.ended = true;
                self.moved(step)
            }
            Outcome::Ask(asks) => self.ask(asks, block.borrow().clone(), None),
            Outcome::Unfinished(xid) => {
                self.unfinished = Some((xid, block.borrow().clone()));
                self.moved(Step::default())
            }
        }
    }

    fn ask(&mut self, asks: Asks, block: Block, early: Option<Xid>) -> Advance {
        self.emitter.filter_paths().note(&asks);
        let filters = self.filters.clone();
        // A task of its own: a reader that looks after its socket meanwhile must not begin anew each time.
        let task = tokio::spawn(async move { filters.resolve(&asks).await });
        self.asked = Some(Asked {
            block,
            early,
            answer: Answer::Coming(AbortOnDropHandle::new(task)),
        });
        Advance::Asking
    }

    const fn moved(&self, step: Step) -> Advance {
        Advance::Moved(step)
    }
}

/// Where a stream is that is not inside a block.
fn here(cursor: &Cursor) -> Here<'_> {
    Here {
        position: cursor.position(),
        begun: cursor.is_past_start(),
        catalog: cursor.catalog_behind(),
    }
}
