//! One client's use of its rate.

use std::time::{Duration, Instant};

/// What may be used at once after a rest, in seconds of the rate.
const BURST_SECONDS: f64 = 1.0;

/// The longest throttle that is answered at once: Kafka's default quota window (`quota.window.num` x `quota.window.size.seconds`). What is owed beyond it is kept.
const LONGEST: Duration = Duration::from_secs(11);

/// A leaky bucket: fills with what is used, drains at the rate.
pub struct Bucket {
    /// Bytes per second.
    rate: f64,
    /// Bytes.
    level: f64,
    as_of: Instant,
}

impl Bucket {
    /// An empty one.
    pub fn new(rate: f64, now: Instant) -> Self {
        Self { rate, level: 0.0, as_of: now }
    }

    /// Adds what was used, and answers how long until the level is within the burst again.
    pub fn fill(&mut self, bytes: usize, now: Instant) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "a request is far below 2^53 bytes")]
        let bytes = bytes as f64;
        self.level = self.level_at(now) + bytes;
        self.as_of = now;
        let over = self.level - self.rate * BURST_SECONDS;
        if over <= 0.0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64((over / self.rate).min(LONGEST.as_secs_f64()))
        }
    }

    /// Whether it is as good as new.
    pub fn is_drained(&self, now: Instant) -> bool {
        self.level_at(now) <= 0.0
    }

    fn level_at(&self, now: Instant) -> f64 {
        let drained = self.rate * now.saturating_duration_since(self.as_of).as_secs_f64();
        (self.level - drained).max(0.0)
    }
}
