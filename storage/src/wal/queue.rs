//! What stands between those who push and the writer, and between the writer and those who wait.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::space::Promise;
use super::{WalEntry, WalError, WalSeq};

/// An ordered entry and what its admission paid for it.
pub(super) struct Queued {
    pub(super) seq: u64,
    pub(super) entry: WalEntry,
    pub(super) permits: usize,
    pub(super) promise: Promise,
}

/// Ordered entries on their way to the writer. Bounded by admission: every entry holds part of one.
pub(super) struct Queue {
    state: Mutex<QueueState>,
    filled: Condvar,
}

struct QueueState {
    entries: VecDeque<Queued>,
    next_seq: u64,
    writer_waits: bool,
    closed: bool,
}

/// What the writer woke up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    Entries,
    Deadline,
    Closed,
}

impl Queue {
    pub(super) fn new(next_seq: u64) -> Queue {
        Queue {
            state: Mutex::new(QueueState { entries: VecDeque::new(), next_seq, writer_waits: false, closed: false }),
            filled: Condvar::new(),
        }
    }

    /// Gives the entry the next seq and queues it. A closed queue drops it: nobody will ever see it complete.
    pub(super) fn push(&self, entry: WalEntry, permits: usize, promise: Promise) -> (u64, Option<Queued>) {
        let mut state = self.state.lock();
        let seq = state.next_seq;
        state.next_seq += 1;
        let queued = Queued { seq, entry, permits, promise };
        if state.closed {
            return (seq, Some(queued));
        }
        state.entries.push_back(queued);
        let wake = std::mem::take(&mut state.writer_waits);
        drop(state);
        if wake {
            self.filled.notify_one();
        }
        (seq, None)
    }

    /// Swaps everything queued into `batch`, which must be empty; waits until there is something.
    pub(super) fn take(&self, batch: &mut VecDeque<Queued>, deadline: Option<Instant>) -> Wake {
        let mut state = self.state.lock();
        loop {
            if !state.entries.is_empty() {
                std::mem::swap(&mut state.entries, batch);
                return Wake::Entries;
            }
            if state.closed {
                return Wake::Closed;
            }
            state.writer_waits = true;
            match deadline {
                Some(deadline) => {
                    if self.filled.wait_until(&mut state, deadline).timed_out()
                        && state.entries.is_empty()
                        && !state.closed
                    {
                        state.writer_waits = false;
                        return Wake::Deadline;
                    }
                }
                None => self.filled.wait(&mut state),
            }
        }
    }

    /// Lets the writer pause; true when the queue was closed meanwhile.
    pub(super) fn pause(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.closed {
            if self.filled.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.closed
    }

    /// Lets the writer finish what is queued and stop. Later pushes are dropped.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_one();
    }

    /// Closes and forgets what is queued; returned for its promises to be given back.
    pub(super) fn abandon(&self) -> VecDeque<Queued> {
        let mut state = self.state.lock();
        state.closed = true;
        std::mem::take(&mut state.entries)
    }

    /// The seq the next entry will get.
    pub(super) fn next_seq(&self) -> u64 {
        self.state.lock().next_seq
    }
}

/// How far the log is complete, who waits for more, and whether it ever will be.
pub(super) struct Progress {
    complete_through: AtomicU64,
    ended: AtomicBool,
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    next_id: u64,
    wakers: BTreeMap<(u64, u64), Waker>,
    end: Option<WalError>,
}

impl Progress {
    pub(super) fn new(complete_through: u64) -> Progress {
        Progress {
            complete_through: AtomicU64::new(complete_through),
            ended: AtomicBool::new(false),
            waiters: Mutex::new(Waiters::default()),
        }
    }

    pub(super) fn complete_through(&self) -> u64 {
        self.complete_through.load(Ordering::Acquire)
    }

    /// Why nothing completes any more, if so.
    pub(super) fn end(&self) -> Option<WalError> {
        if !self.ended.load(Ordering::Acquire) {
            return None;
        }
        self.waiters.lock().end.clone()
    }

    /// Every entry up to `seq` is complete: wakes those who wait for one of them.
    pub(super) fn complete(&self, seq: u64) {
        let due = {
            let mut waiters = self.waiters.lock();
            self.complete_through.store(seq, Ordering::Release);
            if waiters.wakers.is_empty() {
                return;
            }
            let later = waiters.wakers.split_off(&(seq + 1, 0));
            std::mem::replace(&mut waiters.wakers, later)
        };
        for waker in due.into_values() {
            waker.wake();
        }
    }

    /// Nothing completes after this. The first reason stays.
    pub(super) fn set_end(&self, error: WalError) {
        self.waiters.lock().end.get_or_insert(error);
        self.ended.store(true, Ordering::Release);
    }

    /// Wakes everybody, after [`Progress::set_end`].
    pub(super) fn wake_all(&self) {
        let due = std::mem::take(&mut self.waiters.lock().wakers);
        for waker in due.into_values() {
            waker.wake();
        }
    }
}

/// Resolves when an entry is complete. Cancel safe.
pub struct Durable {
    progress: Arc<Progress>,
    seq: u64,
    registered: Option<u64>,
}

impl Durable {
    pub(super) fn new(progress: Arc<Progress>, seq: WalSeq) -> Durable {
        Durable { progress, seq: seq.get(), registered: None }
    }
}

impl Future for Durable {
    type Output = Result<(), WalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.progress.complete_through() >= this.seq {
            // The writer takes the waker out in the same breath, so that dropping this need not lock.
            this.registered = None;
            return Poll::Ready(Ok(()));
        }
        let mut waiters = this.progress.waiters.lock();
        // Again under the lock: the writer completes under it, so that no wake-up is missed.
        if this.progress.complete_through() >= this.seq {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &waiters.end {
            return Poll::Ready(Err(error.clone()));
        }
        let id = match this.registered {
            Some(id) => id,
            None => {
                waiters.next_id += 1;
                waiters.next_id
            }
        };
        this.registered = Some(id);
        match waiters.wakers.get_mut(&(this.seq, id)) {
            Some(waker) => waker.clone_from(context.waker()),
            None => {
                waiters.wakers.insert((this.seq, id), context.waker().clone());
            }
        }
        Poll::Pending
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        if let Some(id) = self.registered {
            self.progress.waiters.lock().wakers.remove(&(self.seq, id));
        }
    }
}
