//! The answers of one connection, in the order of its requests (PRO-1).

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_protocol::Preamble;

use crate::handlers::Reply;

/// An answer in its place.
pub struct Queued {
    /// What the answer's header needs.
    pub preamble: Preamble,
    /// Whether the request was of a flexible version.
    pub flexible: bool,
    /// The answer, or the future of it.
    pub reply: Reply,
    /// When the request had been read, for the latency metric.
    pub received: std::time::Instant,
}

/// A queue bounded in number and in bytes, for one reader and one writer of the same connection.
pub struct ResponseQueue {
    state: Mutex<State>,
    pushed: Notify,
    popped: Notify,
    max_count: usize,
    max_bytes: usize,
}

struct State {
    queue: VecDeque<Queued>,
    bytes: usize,
    /// An answer was taken and is not sent yet.
    sending: bool,
    closed: bool,
}

impl ResponseQueue {
    /// An empty queue. Allocates nothing until the first answer.
    pub fn new(max_count: usize, max_bytes: usize) -> Self {
        Self {
            state: Mutex::new(State { queue: VecDeque::new(), bytes: 0, sending: false, closed: false }),
            pushed: Notify::new(),
            popped: Notify::new(),
            max_count,
            max_bytes,
        }
    }

    /// Waits until the queue has room for one more answer. The reader calls it before it reads the next request, so that a request once read can always be
    /// answered. Cancel safe.
    pub async fn room(&self) {
        loop {
            let popped = self.popped.notified();
            {
                let state = self.state.lock();
                if state.queue.len() < self.max_count && state.bytes < self.max_bytes {
                    return;
                }
            }
            popped.await;
        }
    }

    /// Adds an answer behind all others.
    pub fn push(&self, queued: Queued) {
        {
            let mut state = self.state.lock();
            state.bytes += queued.reply.size();
            state.queue.push_back(queued);
        }
        self.pushed.notify_one();
    }

    /// Says that no more answers come.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.pushed.notify_one();
    }

    /// Takes the oldest answer, waiting for one; `None` once the queue is closed and empty. Cancel safe.
    pub async fn next(&self) -> Option<Queued> {
        loop {
            let pushed = self.pushed.notified();
            {
                let mut state = self.state.lock();
                if let Some(queued) = state.take() {
                    state.sending = true;
                    drop(state);
                    self.popped.notify_one();
                    return Some(queued);
                }
                if state.closed {
                    return None;
                }
            }
            pushed.await;
        }
    }

    /// Takes the oldest answer if there is one.
    pub fn try_next(&self) -> Option<Queued> {
        let queued = self.state.lock().take()?;
        self.popped.notify_one();
        Some(queued)
    }

    /// Says that what was taken is sent.
    pub fn sent(&self) {
        self.state.lock().sending = false;
    }

    /// Whether every request that came was answered.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.queue.is_empty() && !state.sending
    }
}

impl State {
    fn take(&mut self) -> Option<Queued> {
        let queued = self.queue.pop_front()?;
        self.bytes -= queued.reply.size();
        if self.queue.is_empty() && self.queue.capacity() > 16 {
            // An idle connection should not keep what a burst made it take.
            self.queue.shrink_to(0);
        }
        Some(queued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::Response;
    use bytes::Bytes;
    use futures::FutureExt;

    fn answer(correlation_id: i32, size: usize) -> Queued {
        Queued {
            preamble: Preamble { key: 3, version: 0, correlation_id },
            flexible: false,
            reply: Reply::Ready(Response::from_bytes(Bytes::from(vec![0; size]))),
            received: std::time::Instant::now(),
        }
    }

    #[test]
    fn answers_leave_in_the_order_of_their_requests() {
        let queue = ResponseQueue::new(10, 1000);
        for id in 0..3 {
            queue.push(answer(id, 1));
        }
        for id in 0..3 {
            assert_eq!(queue.next().now_or_never().flatten().map(|queued| queued.preamble.correlation_id), Some(id));
        }
        assert!(queue.next().now_or_never().is_none());
    }

    #[test]
    fn the_reader_waits_when_the_queue_is_full_by_count_or_by_bytes() {
        let by_count = ResponseQueue::new(1, 1000);
        assert!(by_count.room().now_or_never().is_some());
        by_count.push(answer(0, 1));
        assert!(by_count.room().now_or_never().is_none());
        by_count.try_next();
        assert!(by_count.room().now_or_never().is_some());

        let by_bytes = ResponseQueue::new(10, 100);
        by_bytes.push(answer(0, 100));
        assert!(by_bytes.room().now_or_never().is_none());
        by_bytes.try_next();
        assert!(by_bytes.room().now_or_never().is_some());
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_and_then_ends() {
        let queue = ResponseQueue::new(10, 1000);
        queue.push(answer(7, 1));
        queue.close();
        assert!(queue.next().now_or_never().flatten().is_some());
        assert!(queue.next().now_or_never().expect("ends at once").is_none());
    }

    #[test]
    fn a_connection_is_idle_only_when_all_was_sent() {
        let queue = ResponseQueue::new(10, 1000);
        assert!(queue.is_idle());
        queue.push(answer(0, 1));
        assert!(!queue.is_idle());
        queue.next().now_or_never();
        assert!(!queue.is_idle());
        queue.sent();
        assert!(queue.is_idle());
    }
}
