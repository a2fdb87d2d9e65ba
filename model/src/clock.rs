//! Time as a seam: state machines take `now`, long-lived parts take a [`Clock`].

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where the time comes from.
pub trait Clock: Send + Sync + 'static {
    /// Wall-clock milliseconds since the Unix epoch. May jump.
    fn now_ms(&self) -> i64;
    /// A clock that never goes back; for measuring only.
    fn monotonic(&self) -> Instant;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map(|elapsed| i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
            .unwrap_or(0)
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    now_ms: AtomicI64,
    started: Instant,
}

impl ManualClock {
    /// A clock that shows `now_ms`.
    pub fn new(now_ms: i64) -> Self {
        Self { now_ms: AtomicI64::new(now_ms), started: Instant::now() }
    }

    /// Moves the wall clock by `delta_ms`, which may be negative.
    pub fn advance(&self, delta_ms: i64) {
        self.now_ms.fetch_add(delta_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Instant {
        self.started
    }
}
