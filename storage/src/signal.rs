//! How a parked fetch learns that there is something new to read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// What one parked reader waits on. It may be subscribed to many partitions; the first that moves wakes it.
#[derive(Debug, Default)]
pub struct ReadSignal {
    notify: Notify,
}

impl ReadSignal {
    /// A signal that nobody has raised.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Waits until a partition that this was subscribed to moved. Returns at once when one moved since the last wait.
    /// Cancel safe.
    pub async fn raised(&self) {
        self.notify.notified().await;
    }

    /// Wakes the waiter, now or at its next wait.
    pub fn raise(&self) {
        self.notify.notify_one();
    }
}

/// The readers that wait for one partition. A subscription is used up by the first move; a reader that is gone is dropped.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    any: AtomicBool,
    signals: Mutex<Vec<Weak<ReadSignal>>>,
}

impl Waiters {
    /// Has `signal` raised at the next move. Subscribe first, then look at the offsets: so no move is missed.
    pub(crate) fn subscribe(&self, signal: &Arc<ReadSignal>) {
        let mut signals = self.signals.lock();
        // Readers whose connection died leave dead entries; sweep before the list would grow.
        if signals.len() == signals.capacity() {
            signals.retain(|waiting| waiting.strong_count() > 0);
        }
        signals.push(Arc::downgrade(signal));
        self.any.store(true, Ordering::SeqCst);
    }

    /// Raises every subscribed signal once. Costs one atomic read when nobody waits.
    pub(crate) fn wake(&self) {
        if !self.any.load(Ordering::SeqCst) {
            return;
        }
        let signals = {
            let mut signals = self.signals.lock();
            self.any.store(false, Ordering::SeqCst);
            std::mem::take(&mut *signals)
        };
        for signal in signals.iter().filter_map(Weak::upgrade) {
            signal.raise();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_move_before_the_wait_is_not_missed() {
        let (waiters, signal) = (Waiters::default(), ReadSignal::new());
        waiters.subscribe(&signal);
        waiters.wake();
        signal.raised().await;
    }

    #[test]
    fn readers_that_left_are_swept() {
        let waiters = Waiters::default();
        for _ in 0..10_000 {
            waiters.subscribe(&ReadSignal::new());
        }
        assert!(waiters.signals.lock().len() < 64);
    }
}
