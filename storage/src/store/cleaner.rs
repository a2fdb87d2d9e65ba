//! When compacted topics are sealed and compacted (Kafka's `LogCleaner`), and the threads that do it.
//!
//! One thread, the *cleaner's clock*, looks at the partitions of compacted topics: it has a tail sealed that is older than
//! `segment.ms` or `max.compaction.lag.ms`, and has partitions compacted whose time has come. It looks at least every
//! `log.cleaner.backoff.ms`, and more often when a topic's own times are shorter. A topic that is not compacted costs it
//! nothing. `log.cleaner.threads` workers do the compacting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weir_model::config::{BrokerConfig, TopicConfig};
use weir_model::{Offset, PartitionId};

use super::{Inner, MERGE_RETRY, OpenError, Storage};
use crate::partition::{CompactionLimits, MergeError};
use crate::shared::{Counters, Shared, Work};
use crate::topics::TopicInfo;

/// However short a topic's times are, the clock looks no more often.
const LEAST_WAIT: Duration = Duration::from_millis(50);
/// Bytes between two looks at the throttle.
const THROTTLE_STEP_BYTES: u64 = 256 << 10;

/// The cleaner's threads, and what they share.
#[derive(Default)]
pub(super) struct Cleaner {
    threads: Mutex<Vec<JoinHandle<()>>>,
    workers: Mutex<usize>,
    /// Partitions with a damaged segment: every try would read up to it again.
    damaged: Mutex<BTreeSet<PartitionId>>,
    throttle: Mutex<Option<Instant>>,
}

/// Since when the oldest row of each tail has been there, as far as the clock saw: its offset, and milliseconds.
type Tails = BTreeMap<PartitionId, (Offset, i64)>;

impl Storage {
    pub(super) fn start_cleaner(&self) -> Result<(), OpenError> {
        let inner = Arc::downgrade(&self.inner);
        let shared = Arc::clone(&self.inner.shared);
        let clock = std::thread::Builder::new().name("weir-clean".to_owned());
        let handle = clock.spawn(move || tell_time(&inner, &shared)).map_err(OpenError::Thread)?;
        self.inner.cleaner.threads.lock().push(handle);
        Ok(())
    }
}

impl Cleaner {
    /// Waits for the threads, which were told to stop.
    pub(super) fn join(&self) {
        // The clock, which is the first, may start a worker until it has ended: then that one is waited for too, or it would
        // keep the directory from being opened again.
        loop {
            let threads = std::mem::take(&mut *self.threads.lock());
            if threads.is_empty() {
                return;
            }
            for thread in threads {
                if thread.join().is_err() {
                    tracing::error!("a thread of the cleaner had panicked");
                }
            }
        }
    }
}

/// The clock's thread.
fn tell_time(inner: &Weak<Inner>, shared: &Shared) {
    let mut tails = None;
    loop {
        let Some(strong) = inner.upgrade() else { return };
        strong.staff(inner);
        let wait = strong.look(&mut tails);
        drop(strong);
        if shared.cleaner_clock.next_within(wait) == Some(Work::Stop) {
            return;
        }
    }
}

/// A worker's thread.
fn work(inner: &Weak<Inner>, shared: &Shared, number: usize) {
    loop {
        let Work::Partition(id) = shared.compactor.next() else { return };
        let Some(inner) = inner.upgrade() else { return };
        if inner.leaves(number) {
            shared.compactor.ask(id);
            return;
        }
        if inner.cleaner.damaged.lock().contains(&id) {
            continue;
        }
        let compacted = inner.compact(id);
        match compacted {
            Ok(()) => {}
            Err(error @ MergeError::Store { .. }) => {
                // The next start finds out which of the two manifests holds; until then no second try.
                tracing::error!(%error, "compaction ends until the broker is restarted");
                shared.compactor.stop();
                return;
            }
            Err(MergeError::Segment(error)) if error.is_corrupt() => {
                Counters::add(&shared.counters.compaction_failures, 1);
                inner.cleaner.damaged.lock().insert(id);
                tracing::error!(partition = %id, %error, "the partition is not compacted until the broker is restarted");
            }
            Err(error) => {
                Counters::add(&shared.counters.compaction_failures, 1);
                tracing::warn!(partition = %id, %error, "a partition was not compacted and will be tried again");
                drop(inner);
                shared.compactor.pause(MERGE_RETRY);
            }
        }
    }
}

impl Inner {
    /// Starts the workers that `log.cleaner.threads` asks for and that are not there.
    fn staff(&self, inner: &Weak<Self>) {
        let config = self.config();
        let mut workers = self.cleaner.workers.lock();
        while config.log_cleaner_enable && *workers < wanted_workers(&config) {
            let (number, inner, shared) = (*workers, inner.clone(), Arc::clone(&self.shared));
            let worker = std::thread::Builder::new().name(format!("weir-clean-{number}"));
            match worker.spawn(move || work(&inner, &shared, number)) {
                Ok(handle) => self.cleaner.threads.lock().push(handle),
                Err(error) => {
                    tracing::warn!(%error, "a thread for compaction did not start; the next look tries again");
                    return;
                }
            }
            *workers += 1;
        }
    }

    /// Whether the newest worker is one too many.
    fn leaves(&self, number: usize) -> bool {
        let mut workers = self.cleaner.workers.lock();
        let leaves = number >= wanted_workers(&self.config()) && number + 1 == *workers;
        *workers -= usize::from(leaves);
        leaves
    }

    /// Has done what is due in compacted topics, and says when to look again. `tails` are those of the last look.
    fn look(&self, tails: &mut Option<Tails>) -> Duration {
        let config = self.config();
        let backoff = Duration::from_millis(config.log_cleaner_backoff_ms.unsigned_abs());
        if !config.log_cleaner_enable {
            return backoff;
        }
        let now_ms = self.shared.clock.now_ms();
        let topics = Arc::clone(&self.topics.read());
        let mut wait = backoff;
        let mut seen = Tails::new();
        for topic in topics.iter().filter(|topic| is_compacted(topic)) {
            let least_ms = roll_ms(&topic.config).min(topic.config.delete_retention_ms);
            wait = wait.min(Duration::from_millis(least_ms.unsigned_abs() / 2));
            for index in 0..topic.partitions() {
                let id = PartitionId { topic: topic.id(), index };
                let Some(partition) = self.partitions.get(&id).map(|entry| entry.value().clone()) else { continue };
                if let Some((start, timestamp_ms)) = partition.tail_start() {
                    let known = tails.as_ref().map(|tails| tails.get(&id));
                    let since_ms = match known {
                        Some(Some((known, since_ms))) if *known == start => *since_ms,
                        Some(_) => now_ms,
                        // At the first look the row may be there since before the start: its time is the best guess.
                        None if timestamp_ms > 0 => timestamp_ms.min(now_ms),
                        None => now_ms,
                    };
                    if now_ms.saturating_sub(since_ms) >= roll_ms(&topic.config) {
                        self.shared.sealer.ask(id);
                    }
                    seen.insert(id, (start, since_ms));
                }
                self.ask_for_compaction(&partition);
            }
        }
        *tails = Some(seen);
        wait.max(LEAST_WAIT)
    }

    /// Has a partition compacted if that is due.
    pub(super) fn ask_for_compaction(&self, partition: &crate::partition::Partition) {
        if self.config().log_cleaner_enable && is_compacted(&partition.topic()) && partition.compaction_is_due() {
            self.shared.compactor.ask(partition.id());
        }
    }

    /// Compacts a partition, and asks for the next pass when one is due already.
    fn compact(&self, id: PartitionId) -> Result<(), MergeError> {
        let Some(partition) = self.partitions.get(&id).map(|entry| entry.value().clone()) else { return Ok(()) };
        let config = self.config();
        let passed = std::cell::Cell::new(0);
        let throttle = |bytes| {
            let sum = passed.get() + bytes;
            passed.set(if sum < THROTTLE_STEP_BYTES { sum } else { 0 });
            if sum >= THROTTLE_STEP_BYTES {
                self.slow_down(sum);
            }
        };
        let limits = CompactionLimits {
            map_bytes: config.log_cleaner_dedupe_buffer_size.unsigned_abs() / wanted_workers(&config) as u64,
            load_factor: config.log_cleaner_io_buffer_load_factor,
            throttle: &throttle,
        };
        partition.compact(&limits)?;
        if !self.shared.compactor.is_stopped() {
            self.ask_for_compaction(&partition);
            self.ask_for_merge(&partition);
        }
        Ok(())
    }

    /// Waits so long that all workers together keep to `log.cleaner.io.max.bytes.per.second`.
    fn slow_down(&self, bytes: u64) {
        let rate = self.config().log_cleaner_io_max_bytes_per_second;
        let seconds = bytes as f64 / rate.max(1.0);
        if seconds < 1e-9 {
            return;
        }
        let now = Instant::now();
        let until = {
            let mut free_at = self.cleaner.throttle.lock();
            let until = free_at.unwrap_or(now).max(now) + Duration::from_secs_f64(seconds.min(60.0));
            *free_at = Some(until);
            until
        };
        self.shared.compactor.pause(until - now);
    }
}

fn wanted_workers(config: &BrokerConfig) -> usize {
    usize::try_from(config.log_cleaner_threads).unwrap_or(1).max(1)
}

/// Whether there is something to do for the cleaner. Tables are not compacted.
fn is_compacted(topic: &TopicInfo) -> bool {
    topic.config.cleanup_policy.compact && topic.table.is_none()
}

/// How old the first row of a compacted topic's tail may get (Kafka's `LogConfig.maxSegmentMs`).
fn roll_ms(config: &TopicConfig) -> i64 {
    config.segment_ms.min(config.max_compaction_lag_ms)
}
