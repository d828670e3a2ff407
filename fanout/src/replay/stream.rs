//! A subscriber's way through the log.

use pg_proto::Lsn;
use storage_format::block::Block;
use storage_format::log::{Cursor, Step as CursorStep};
use tokio_util::task::AbortOnDropHandle;

use super::waiters::Seat;
use crate::emit::{Emitter, Outcome, Output, Step};
use crate::error::StreamError;
use crate::filter::{EvaluateError, Filters, Verdicts};

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
}

/// A block in which rows are being judged by PostgreSQL.
#[derive(Debug)]
struct Asked {
    block: Block,
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
        }
    }

    /// Hands the next block's changes to `out`, if there is one. Never waits; works on one block at most.
    pub fn advance(&mut self, out: &mut impl Output) -> Result<Advance, StreamError> {
        if let Some(asked) = self.asked.take() {
            return self.answered(asked, out);
        }
        if self.ended || self.emitter.ended() {
            return Ok(Advance::End);
        }
        if let Some(spot) = self.seat.spot() {
            // Nothing up to there concerns this stream, or it would have been rung.
            self.cursor.go_on_from(&spot);
        }
        let mut advance = self.step(out)?;
        if advance == Advance::AtHead {
            // What comes between looking at the log and waiting must wake this stream: first ask to be rung, then look
            // again.
            self.seat.arm(&mut self.emitter);
            advance = self.step(out)?;
        }
        if advance != Advance::AtHead {
            self.seat.disarm();
        }
        Ok(advance)
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
        match self.seat.woken().await {
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
        let Asked { block, answer } = asked;
        match answer {
            Answer::Coming(_) => {
                self.asked = Some(Asked { block, answer });
                Ok(Advance::Asking)
            }
            Answer::There(verdicts) => {
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
            Outcome::Ask(asks) => {
                let filters = self.filters.clone();
                // A task of its own: a reader that looks after its socket meanwhile must not begin anew each time.
                let task = tokio::spawn(async move { filters.resolve(&asks).await });
                self.asked = Some(Asked {
                    block: block.borrow().clone(),
                    answer: Answer::Coming(AbortOnDropHandle::new(task)),
                });
                Advance::Asking
            }
        }
    }

    const fn moved(&self, step: Step) -> Advance {
        Advance::Moved(step)
    }
}
