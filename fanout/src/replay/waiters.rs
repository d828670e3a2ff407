//! Who waits at the log's head, and for what.
//!
//! With thousands of subscribers, most of what a busy source writes concerns few of them. So the new blocks' headers are
//! read once, by [`Waiters::look`], and only those streams are rung for which a block's relations or flags matter. The
//! others look after their positions from time to time; if they were not rung since, nothing before the place that
//! [`Waiters::look`] has come to concerns them, and they go on from there without reading what lies between. So what an idle
//! subscriber costs depends neither on how much is written nor on how many there are.
//!
//! Whoever is rung looks for itself: being rung without need costs time and is no error. Not being rung would be one, hence
//! the order on both sides. A stream first forgets that it was rung ([`Seat::arm`]), then looks at the head once more, then
//! waits. The bells of new blocks are rung before the place behind them is known ([`Seat::spot`]).

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pg_proto::{Lsn, Oid};
use storage_format::block::{Block, BlockFlags, BlockHeader, BlockKind};
use storage_format::catalog::Catalog;
use storage_format::log::{Cursor, Log, ReadError, Spot, Step};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::keyed::{Keyed, Wanted, is_too_much};
use crate::emit::{Emitter, Interest};
use crate::filter::KeyReader;
use crate::selection::OidMap;

/// Blocks between two looks at the watermark.
const RUN: usize = 4096;
/// A stream that is interested in more relations than these is rung for every block with rows.
const RELATIONS_MAX: usize = 256;
/// Time until a stream that nothing concerns looks after its position: at first, and when it has done so again and again.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// All who wait. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Waiters {
    shared: Arc<Shared>,
}

/// Tells the head, and who has to look at it. Dropped, it tells everybody that there will be no more.
#[derive(Debug)]
pub struct HeadTeller {
    log: Arc<Log>,
    head: watch::Sender<Lsn>,
    waiters: Waiters,
}

/// How to hear of the head. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct HeadTold {
    pub(super) lsn: watch::Receiver<Lsn>,
    waiters: Waiters,
}

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    /// Length of `Table::seen`.
    seen: AtomicUsize,
    /// Behind all blocks of which the bells were rung.
    spot: Mutex<Option<Arc<Spot>>>,
}

#[derive(Debug, Default)]
struct Table {
    /// None if the log could not be read there: then everybody is rung.
    cursor: Option<Cursor>,
    /// Relations that had changes since this process began.
    seen: Vec<Oid>,
    relations: OidMap<Vec<usize>>,
    /// Those who wait for rows with certain keys.
    keyed: Keyed,
    reader: KeyReader,
    seats: Vec<Option<Occupied>>,
    /// How many of them wait for all relations.
    unbounded: usize,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Occupied {
    bell: Arc<Bell>,
    flags: BlockFlags,
    /// `None`: all.
    relations: Option<Vec<Oid>>,
    keyed: Wanted,
}

#[derive(Debug, Default)]
struct Bell {
    rung: AtomicBool,
    /// Where it was rung for the first time: nothing before concerns who hears it.
    before: Mutex<Option<Arc<Spot>>>,
    notify: Notify,
}

impl Bell {
    /// `before`: nothing up to there was worth it.
    fn ring(&self, before: Option<&Arc<Spot>>) {
        if self.rung.load(Ordering::SeqCst) {
            return;
        }
        // An older place that stays here for a moment is behind the one who hears it: it is of no use and no harm.
        *self.before.lock() = before.cloned();
        if !self.rung.swap(true, Ordering::SeqCst) {
            self.notify.notify_one();
        }
    }
}

impl HeadTeller {
    /// For a log, and how to hear of it.
    #[must_use]
    pub fn new(log: Arc<Log>) -> (Self, HeadTold) {
        let (head, lsn) = watch::channel(log.head().lsn);
        let waiters = Waiters {
            shared: Arc::new(Shared {
                table: Mutex::default(),
                seen: AtomicUsize::new(0),
                spot: Mutex::default(),
            }),
        };
        let told = HeadTold {
            lsn,
            waiters: waiters.clone(),
        };
        (Self { log, head, waiters }, told)
    }

    /// Looks at the head; true if it has moved.
    pub fn look(&self) -> bool {
        let lsn = self.log.head().lsn;
        let moved = self.head.send_if_modified(|head| {
            let moved = *head != lsn;
            *head = lsn;
            moved
        });
        if moved {
            self.waiters.look(&self.log);
        }
        moved
    }
}

impl Drop for HeadTeller {
    fn drop(&mut self) {
        // Those who are rung find that nobody tells the head any more.
        drop(std::mem::replace(
            &mut self.head,
            watch::channel(Lsn::INVALID).0,
        ));
        self.waiters.shared.table.lock().ring_all();
    }
}

impl HeadTold {
    /// A place for one more stream.
    pub(super) fn take_seat(&self) -> Seat {
        let bell = Arc::new(Bell::default());
        let mut table = self.waiters.shared.table.lock();
        let occupied = Occupied {
            bell: Arc::clone(&bell),
            flags: BlockFlags::NONE,
            relations: Some(Vec::new()),
            keyed: Wanted::new(),
        };
        let number = table.free.pop().unwrap_or(table.seats.len());
        if number == table.seats.len() {
            table.seats.push(None);
        }
        table.seats[number] = Some(occupied);
        drop(table);
        Seat {
            shared: Arc::clone(&self.waiters.shared),
            head: self.lsn.clone(),
            number,
            bell,
            catalog: None,
            seen: 0,
            armed: false,
            pause: PAUSE_MIN,
            next_look: Instant::now(),
        }
    }
}

impl Waiters {
    /// Reads the headers of new blocks and rings for them.
    fn look(&self, log: &Arc<Log>) {
        let mut table = self.shared.table.lock();
        match table.follow(log, &self.shared.seen) {
            Ok(spot) => *self.shared.spot.lock() = spot.map(Arc::new),
            Err(error) => {
                // Each stream meets it for itself, and says so.
                tracing::debug!(%error, "new blocks can't be looked at; everybody looks");
                table.cursor = None;
                table.ring_all();
            }
        }
    }
}

/// What new blocks are about.
#[derive(Default)]
struct News {
    flags: BlockFlags,
    relations: Vec<Oid>,
}

impl News {
    fn note(&mut self, header: &BlockHeader, relations: &[Oid]) {
        if header.kind == BlockKind::Data {
            self.flags |= header.flags;
            for oid in relations {
                // As a rule the same as before.
                if self.relations.last() != Some(oid) {
                    self.relations.push(*oid);
                }
            }
        }
    }
}

impl Table {
    /// Goes to the head, and rings for what lies on the way.
    fn follow(
        &mut self,
        log: &Arc<Log>,
        seen: &AtomicUsize,
    ) -> Result<Option<Spot>, Box<dyn std::error::Error>> {
        let Some(mut cursor) = self.cursor.take() else {
            let cursor = log.cursor_at(log.head().lsn)?;
            // What lies before it was not looked at.
            self.cursor = Some(cursor);
            self.ring_all();
            return Ok(None);
        };
        let mut before = None;
        loop {
            before = cursor.spot().map(Arc::new).or(before);
            let news = RefCell::new(News::default());
            let note = |header: &BlockHeader, relations: &[Oid]| {
                news.borrow_mut().note(header, relations);
                self.keyed.any_of(relations)
            };
            let step: Result<Step, ReadError> = cursor.step_with(&note, RUN);
            self.ring_for(news.into_inner(), before.as_ref(), seen);
            match step? {
                Step::Head => break,
                Step::Skipped => {}
                Step::Block(block) => self.ring_for_rows(&block, before.as_ref()),
            }
        }
        let spot = cursor.spot();
        self.cursor = Some(cursor);
        Ok(spot)
    }

    fn ring_for_rows(&mut self, block: &Block, before: Option<&Arc<Spot>>) {
        let seats = &self.seats;
        self.keyed.ring_for(block, &mut self.reader, &|number| {
            if let Some(Some(seat)) = seats.get(number) {
                seat.bell.ring(before);
            }
        });
    }

    fn ring_for(&mut self, mut news: News, before: Option<&Arc<Spot>>, seen: &AtomicUsize) {
        news.relations.sort_unstable();
        news.relations.dedup();
        let known = self.seen.len();
        for oid in &news.relations {
            if !self.relations.contains_key(oid) {
                self.relations.insert(*oid, Vec::new());
                self.seen.push(*oid);
            }
        }
        if self.seen.len() > known {
            seen.store(self.seen.len(), Ordering::SeqCst);
        }
        if self.seen.len() > known || news.flags.contains(BlockFlags::HAS_CATALOG) {
            return self.ring_all();
        }
        for oid in &news.relations {
            for number in self.relations.get(oid).into_iter().flatten() {
                if let Some(Some(seat)) = self.seats.get(*number) {
                    seat.bell.ring(before);
                }
            }
        }
        if self.unbounded == 0
            && !Interest::FLAGS
                .iter()
                .any(|flag| news.flags.contains(*flag))
        {
            return;
        }
        for seat in self.seats.iter().flatten() {
            if seat.relations.is_none() || seat.flags.intersects(news.flags) {
                seat.bell.ring(before);
            }
        }
    }

    fn ring_all(&self) {
        for seat in self.seats.iter().flatten() {
            seat.bell.ring(None);
        }
    }

    fn set_interest(&mut self, number: usize, interest: Interest) {
        let Interest {
            flags,
            mut relations,
            mut keyed,
        } = interest;
        if let Some(relations) = &mut relations {
            let (many, few) = keyed.into_iter().partition(|(_, one)| is_too_much(one));
            let many: Wanted = many;
            relations.extend(many.into_iter().map(|(oid, _)| oid));
            keyed = few;
        }
        let relations = relations.filter(|oids| oids.len() + keyed.len() <= RELATIONS_MAX);
        if relations.is_none() {
            keyed.clear();
        }
        match self.seats.get_mut(number) {
            Some(Some(seat))
                if (seat.flags, &seat.relations, &seat.keyed) != (flags, &relations, &keyed) => {}
            _ => return,
        }
        self.clear_interest(number);
        let Some(Some(seat)) = self.seats.get_mut(number) else {
            return;
        };
        seat.flags = flags;
        seat.relations = relations;
        seat.keyed = keyed;
        self.unbounded += usize::from(seat.relations.is_none());
        self.keyed.add(number, &seat.keyed);
        for oid in seat.relations.iter().flatten() {
            self.relations.entry(*oid).or_default().push(number);
        }
    }

    fn clear_interest(&mut self, number: usize) {
        if let Some(Some(seat)) = self.seats.get_mut(number) {
            self.keyed.remove(number, &std::mem::take(&mut seat.keyed));
            let Some(oids) = seat.relations.replace(Vec::new()) else {
                self.unbounded = self.unbounded.saturating_sub(1);
                return;
            };
            for oid in oids {
                if let Some(numbers) = self.relations.get_mut(&oid) {
                    numbers.retain(|one| *one != number);
                }
            }
        }
    }
}

/// One stream's place among those who wait.
pub(super) struct Seat {
    shared: Arc<Shared>,
    head: watch::Receiver<Lsn>,
    number: usize,
    bell: Arc<Bell>,
    /// The catalog, and how many relations had been seen, when it said what it is interested in.
    catalog: Option<Arc<Catalog>>,
    seen: usize,
    /// It waits, and what was there when it began to wait is done.
    armed: bool,
    pause: Duration,
    next_look: Instant,
}

impl Seat {
    /// From now on the stream is rung for what concerns it. What is in the log already it has to look at afterwards.
    pub(super) fn arm(&mut self, emitter: &mut Emitter) {
        // The same word comes for the same catalog and relations.
        self.bell.rung.store(false, Ordering::SeqCst);
        let seen = self.shared.seen.load(Ordering::SeqCst);
        let same_catalog = self
            .catalog
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, emitter.catalog()));
        if !same_catalog || seen != self.seen {
            let mut table = self.shared.table.lock();
            let interest = emitter.interest(&table.seen);
            self.seen = table.seen.len();
            table.set_interest(self.number, interest);
            self.catalog = Some(Arc::clone(emitter.catalog()));
        }
        self.armed = true;
        self.next_look = Instant::now() + self.pause;
    }

    /// Whether it was rung since it began to wait.
    #[cfg(test)]
    pub(super) fn is_rung(&self) -> bool {
        self.bell.rung.load(Ordering::SeqCst)
    }

    /// The stream has something to do.
    pub(super) const fn disarm(&mut self) {
        self.armed = false;
        self.pause = PAUSE_MIN;
    }

    /// A place up to which nothing concerns the stream, from where it was when it began to wait: the watcher's, or that of
    /// the block it was rung for.
    pub(super) fn spot(&self) -> Option<Arc<Spot>> {
        if !self.armed {
            return None;
        }
        let spot = self.shared.spot.lock().clone();
        if self.bell.rung.load(Ordering::SeqCst) {
            return self.bell.before.lock().clone();
        }
        spot
    }

    /// Returns when the stream has to look: it was rung, or its position may have moved for some time. False if nobody
    /// tells the head any more. Cancel safe.
    pub(super) async fn woken(&mut self) -> bool {
        loop {
            if self.bell.rung.load(Ordering::SeqCst) {
                return self.head.has_changed().is_ok();
            }
            tokio::select! {
                () = self.bell.notify.notified() => {}
                () = tokio::time::sleep_until(self.next_look) => {
                    self.pause = (self.pause * 2).min(PAUSE_MAX);
                    self.next_look = Instant::now() + self.pause;
                    match self.head.has_changed() {
                        Ok(false) => {}
                        Ok(true) => {
                            self.head.mark_unchanged();
                            return true;
                        }
                        Err(_) => return false,
                    }
                }
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.shared.table.lock();
        table.clear_interest(self.number);
        if let Some(seat) = table.seats.get_mut(self.number) {
            *seat = None;
            table.free.push(self.number);
        }
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat")
            .field("number", &self.number)
            .field("armed", &self.armed)
            .finish_non_exhaustive()
    }
}
