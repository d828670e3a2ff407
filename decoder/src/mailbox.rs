//! A queue into a thread that does blocking work.
//!
//! Sending never blocks, so that an async task may send and two threads that feed each other can't lock up; what
//! bounds the queue is what has to be had before sending (a permit, a builder). The receiver waits with or without
//! a deadline.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

#[derive(Debug)]
struct Inner<T> {
    queue: Mutex<Queue<T>>,
    arrived: Condvar,
}

#[derive(Debug)]
struct Queue<T> {
    items: VecDeque<T>,
    senders: usize,
    receiver: bool,
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Inner<T>>);

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Receiver<T>(Arc<Inner<T>>);

/// What a wait ended with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<T> {
    /// An item.
    Item(T),
    /// The deadline passed.
    Deadline,
    /// No sender is left and the queue is empty.
    Closed,
}

/// The receiver is gone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// An empty queue.
pub(crate) fn mailbox<T>() -> (Sender<T>, Receiver<T>) {
    let inner = Arc::new(Inner {
        queue: Mutex::new(Queue {
            items: VecDeque::new(),
            senders: 1,
            receiver: true,
        }),
        arrived: Condvar::new(),
    });
    (Sender(Arc::clone(&inner)), Receiver(inner))
}

impl<T> Sender<T> {
    /// Appends an item.
    pub(crate) fn send(&self, item: T) -> Result<(), Gone> {
        let mut queue = self.0.queue.lock();
        if !queue.receiver {
            return Err(Gone);
        }
        queue.items.push_back(item);
        drop(queue);
        self.0.arrived.notify_one();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.queue.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.queue.lock().senders -= 1;
        self.0.arrived.notify_one();
    }
}

impl<T> Receiver<T> {
    /// Waits for the next item, at most until `deadline`.
    pub(crate) fn receive(&self, deadline: Option<Instant>) -> Received<T> {
        let mut queue = self.0.queue.lock();
        loop {
            if let Some(item) = queue.items.pop_front() {
                return Received::Item(item);
            }
            if queue.senders == 0 {
                return Received::Closed;
            }
            match deadline {
                None => self.0.arrived.wait(&mut queue),
                Some(deadline) => {
                    if self.0.arrived.wait_until(&mut queue, deadline).timed_out()
                        && queue.items.is_empty()
                    {
                        return Received::Deadline;
                    }
                }
            }
        }
    }

    /// The next item, if there is one already.
    pub(crate) fn try_receive(&self) -> Option<T> {
        self.0.queue.lock().items.pop_front()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.receiver = false;
        // What nobody will take gives back what it holds (permits, builders, reply channels).
        let left = std::mem::take(&mut queue.items);
        drop(queue);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn keeps_order_and_tells_the_end() {
        let (sender, receiver) = mailbox();
        sender.send(1).unwrap();
        sender.clone().send(2).unwrap();
        assert_eq!(receiver.receive(None), Received::Item(1));
        let soon = Instant::now() + Duration::from_millis(1);
        assert_eq!(receiver.try_receive(), Some(2));
        assert_eq!(receiver.receive(Some(soon)), Received::Deadline);
        drop(sender);
        assert_eq!(receiver.receive(None), Received::Closed);
    }

    #[test]
    fn wakes_a_waiting_receiver() {
        let (sender, receiver) = mailbox();
        let thread = std::thread::spawn(move || receiver.receive(None));
        sender.send(5).unwrap();
        assert_eq!(thread.join().unwrap(), Received::Item(5));
        assert_eq!(sender.send(6), Err(Gone));
    }
}
