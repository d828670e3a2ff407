//! Two lanes: subscribers that follow the head, and those that catch up.
//!
//! Who catches up uses a processor as long as he is let; who follows needs one for some microseconds, but at once. On the
//! same threads the one waits for the other's turn to end, and where processors are few the kernel, too, lets the one wait
//! that has just woken. So a task that is far behind goes on on threads of their own, which have a lower priority, and
//! comes back to the others when it has reached the head. It is the same task on the way: nothing of it is made anew.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;

/// So many blocks in a row that were not the last one are far behind: some 8 MB of the log.
const FAR_BLOCKS: u32 = 128;
/// How much nicer than the others the threads are that catch up. By the kernel's weights (`sched_prio_to_weight`) it leaves them a
/// quarter of a processor that another thread wants all the time, and all of one that nobody wants. A thread that wakes
/// comes before them either way, which is what counts; nicer ones might never reach the head of a busy machine.
const NICE: i32 = 5;

tokio::task_local! {
    /// Whether the task that runs is to catch up.
    static BEHIND: Arc<AtomicBool>;
}

/// The threads that catch up. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Lanes(Arc<CatchUp>);

#[derive(Debug)]
struct CatchUp {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    tasks: AtomicU64,
}

impl Drop for CatchUp {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Dropped where nobody may wait; whose task it is has waited for it.
            runtime.shutdown_background();
        }
    }
}

impl Lanes {
    /// Starts the threads, as many as there are processors.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .thread_name("catch-up")
            .on_thread_start(be_nice)
            .enable_all()
            .build()?;
        Ok(Self(Arc::new(CatchUp {
            runtime: Some(runtime),
            tasks: AtomicU64::new(0),
        })))
    }

    /// Runs a subscriber's task on the lane that it belongs to, as its [`Distance`] says, until it ends.
    pub async fn drive<F>(self, task: Pin<Box<F>>)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let behind = Arc::new(AtomicBool::new(false));
        let mut task = task;
        loop {
            let stretch = Stretch::new(task, &behind, false);
            let Some(left) = stretch.await else { return };
            let Some(left) = self.catch_up(Stretch::new(left, &behind, true)).await else {
                return;
            };
            task = left;
        }
    }

    async fn catch_up<F>(&self, stretch: Stretch<F>) -> Option<Pin<Box<F>>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = self.0.runtime.as_ref()?;
        let _counted = Counted::new(&self.0.tasks);
        match AbortOnDropHandle::new(runtime.spawn(stretch)).await {
            Ok(left) => left,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The process ends.
                Err(_) => None,
            },
        }
    }

    /// Subscribers that are catching up now.
    #[must_use]
    pub fn catching_up(&self) -> u64 {
        self.0.tasks.load(Ordering::Relaxed)
    }
}

/// On Linux this is a thread's own (`setpriority`, section "C library/kernel differences").
fn be_nice() {
    let nicer = rustix::process::getpriority_process(None)
        .and_then(|nice| rustix::process::setpriority_process(None, nice + NICE));
    if let Err(error) = nicer {
        tracing::debug!(%error, "threads that catch up have the priority of the others");
    }
}

struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A task as long as it belongs to one lane: `None` when it has ended, itself when it belongs to the other.
struct Stretch<F> {
    task: Option<Pin<Box<F>>>,
    behind: Arc<AtomicBool>,
    here: bool,
}

impl<F> Stretch<F> {
    fn new(task: Pin<Box<F>>, behind: &Arc<AtomicBool>, here: bool) -> Self {
        Self {
            task: Some(task),
            behind: Arc::clone(behind),
            here,
        }
    }
}

impl<F: Future<Output = ()>> Future for Stretch<F> {
    type Output = Option<Pin<Box<F>>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { task, behind, here } = self.get_mut();
        let Some(running) = task else {
            return Poll::Ready(None);
        };
        let polled = BEHIND.sync_scope(Arc::clone(behind), || running.as_mut().poll(cx));
        match polled {
            Poll::Ready(()) => Poll::Ready(None),
            // What it waits for wakes it here no more, and is asked for again there.
            Poll::Pending if behind.load(Ordering::Relaxed) != *here => Poll::Ready(task.take()),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// How far a stream has come since it was at the head. Tells the task's lane.
#[derive(Debug, Default)]
pub(crate) struct Distance(u32);

impl Distance {
    /// It went a block further.
    pub(crate) fn moved(&mut self) {
        self.0 = self.0.saturating_add(1);
        if self.0 == FAR_BLOCKS {
            tell(true);
        }
    }

    /// There is nothing further.
    pub(crate) fn at_head(&mut self) {
        if std::mem::take(&mut self.0) >= FAR_BLOCKS {
            tell(false);
        }
    }
}

impl Drop for Distance {
    fn drop(&mut self) {
        // Whatever the task does next.
        self.at_head();
    }
}

fn tell(now: bool) {
    // A task that was not given a lane stays where it is.
    let _ = BEHIND.try_with(|behind| behind.store(now, Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    async fn walk(distance: &mut Distance, blocks: u32) {
        for _ in 0..blocks {
            distance.moved();
            tokio::task::yield_now().await;
        }
    }

    fn here() -> String {
        let thread = std::thread::current();
        thread.name().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn who_is_far_behind_goes_on_elsewhere_until_he_is_at_the_head() {
        let lanes = Lanes::start().unwrap();
        let (at, mut seen) = mpsc::unbounded_channel();
        let counts = lanes.clone();
        let task = async move {
            let note = |what: &str| {
                let nice = rustix::process::getpriority_process(None).unwrap();
                let note = (what.to_owned(), here(), nice, counts.catching_up());
                at.send(note).unwrap();
            };
            for _ in 0..2 {
                let mut distance = Distance::default();
                walk(&mut distance, FAR_BLOCKS - 1).await;
                note("near");
                walk(&mut distance, FAR_BLOCKS).await;
                note("far");
                distance.at_head();
                tokio::task::yield_now().await;
                note("back");
                walk(&mut distance, FAR_BLOCKS).await;
                note("far again");
                drop(distance);
                tokio::task::yield_now().await;
                note("ended");
            }
        };
        lanes.clone().drive(Box::pin(task)).await;
        let mut notes = Vec::new();
        while let Some(note) = seen.recv().await {
            notes.push(note);
        }
        assert_eq!(notes.len(), 10);
        let usual = rustix::process::getpriority_process(None).unwrap();
        for (what, thread, nice, count) in notes {
            let far = what.starts_with("far");
            assert_eq!(thread == "catch-up", far, "{what} on {thread}");
            assert_eq!(nice, usual + if far { NICE } else { 0 }, "{what}");
            assert_eq!(count, u64::from(far), "{what}");
        }
        assert_eq!(lanes.catching_up(), 0);
    }

    #[tokio::test]
    async fn what_wakes_a_task_finds_it_on_both_lanes() {
        let lanes = Lanes::start().unwrap();
        let (give, mut take) = mpsc::channel(1);
        let (answer, mut answers) = mpsc::channel(1);
        let task = async move {
            let mut distance = Distance::default();
            while let Some(number) = take.recv().await {
                match number % 2 {
                    0 => walk(&mut distance, FAR_BLOCKS).await,
                    _ => distance.at_head(),
                }
                answer.send(number).await.unwrap();
            }
        };
        let running = tokio::spawn(lanes.drive(Box::pin(task)));
        for number in 0..1_000 {
            give.send(number).await.unwrap();
            assert_eq!(answers.recv().await, Some(number));
        }
        drop(give);
        running.await.unwrap();
    }

    #[tokio::test]
    async fn a_task_that_is_given_up_ends_also_while_it_catches_up() {
        let lanes = Lanes::start().unwrap();
        let (alive, mut ended) = mpsc::channel::<()>(1);
        let (far, mut is_far) = mpsc::channel(1);
        let task = async move {
            let _alive = alive;
            let mut distance = Distance::default();
            walk(&mut distance, FAR_BLOCKS).await;
            far.send(()).await.unwrap();
            std::future::pending::<()>().await;
        };
        let running = tokio::spawn(lanes.drive(Box::pin(task)));
        is_far.recv().await.unwrap();
        running.abort();
        assert_eq!(ended.recv().await, None);
    }
}
