//! What all partitions of a broker share: the WAL, the metadata store, the tail's budget, the queues of the background threads.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;
use weir_model::{Clock, PartitionId};

use crate::block_cache::BlockCache;
use crate::cold::ColdTier;
use crate::meta::MetaStore;
use crate::wal::Wal;

/// Largest record section that a stored batch may decompress to. Batches were held to it when they were produced.
pub const MAX_DECOMPRESSED_BYTES: usize = 256 << 20;

pub(crate) struct Shared {
    pub(crate) wal: Wal,
    pub(crate) meta: Arc<dyn MetaStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) segments_directory: PathBuf,
    pub(crate) tail_bytes: TailBudget,
    pub(crate) blocks: BlockCache,
    pub(crate) counters: Counters,
    pub(crate) sealer: WorkQueue,
    /// Set while sealing fails for lack of space: writers are then refused rather than left to wait.
    pub(crate) sealing_stuck: AtomicBool,
    pub(crate) merger: WorkQueue,
    /// Partitions to compact.
    pub(crate) compactor: WorkQueue,
    /// Has the cleaner look at the compacted topics before its time.
    pub(crate) cleaner_clock: WorkQueue,
    cold: Mutex<Option<Arc<dyn ColdTier>>>,
}

impl Shared {
    pub(crate) fn new(
        wal: Wal,
        meta: Arc<dyn MetaStore>,
        clock: Arc<dyn Clock>,
        segments_directory: PathBuf,
        tail_budget: usize,
    ) -> Self {
        Self {
            wal,
            meta,
            clock,
            segments_directory,
            tail_bytes: TailBudget::new(tail_budget),
            blocks: BlockCache::new(BLOCK_CACHE_BYTES),
            counters: Counters::default(),
            sealer: WorkQueue::default(),
            sealing_stuck: AtomicBool::new(false),
            merger: WorkQueue::default(),
            compactor: WorkQueue::default(),
            cleaner_clock: WorkQueue::default(),
            cold: Mutex::new(None),
        }
    }

    pub(crate) fn cold(&self) -> Option<Arc<dyn ColdTier>> {
        self.cold.lock().clone()
    }

    pub(crate) fn set_cold(&self, cold: Arc<dyn ColdTier>) {
        *self.cold.lock() = Some(cold);
    }

    /// Takes note that a partition's tail grew by `grown` to `tail_size` bytes, and asks for a seal when it is due.
    pub(crate) fn tail_grew(&self, partition: PartitionId, grown: usize, tail_size: usize, seal_bytes: usize) {
        let over_budget = self.tail_bytes.add(grown);
        if tail_size >= seal_bytes {
            self.sealer.ask(partition);
        } else if over_budget {
            self.sealer.relieve();
        }
    }
}

/// Decoded blocks of `.arrow` segments kept for readers that take less than a block at a time.
const BLOCK_CACHE_BYTES: usize = 64 << 20;

/// Counts of what the storage did, for metrics. Bytes and rows since the start.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "each field is named for what it counts")]
pub struct Counters {
    pub tail_read_bytes: AtomicU64,
    pub log_segment_read_bytes: AtomicU64,
    pub arrow_segment_read_bytes: AtomicU64,
    pub cold_reads: AtomicU64,
    pub sealed_segments: AtomicU64,
    pub sealed_rows: AtomicU64,
    pub sealed_raw_rows: AtomicU64,
    pub sealed_bytes: AtomicU64,
    pub seal_failures: AtomicU64,
    pub merged_segments: AtomicU64,
    pub merged_bytes: AtomicU64,
    pub merge_failures: AtomicU64,
    pub compactions: AtomicU64,
    pub compacted_rows: AtomicU64,
    pub compaction_failures: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, amount: usize) {
        counter.fetch_add(amount as u64, Ordering::Relaxed);
    }
}

/// The broker-wide budget of tail memory (`weir.tail.bytes`). Past it the sealer works; at half as much again writers wait.
#[derive(Debug)]
pub(crate) struct TailBudget {
    used: AtomicUsize,
    budget: usize,
    room: Notify,
}

impl TailBudget {
    fn new(budget: usize) -> Self {
        Self { used: AtomicUsize::new(0), budget, room: Notify::new() }
    }

    /// Counts `bytes` in; says whether the budget is passed.
    pub(crate) fn add(&self, bytes: usize) -> bool {
        self.used.fetch_add(bytes, Ordering::AcqRel) + bytes > self.budget
    }

    pub(crate) fn sub(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::AcqRel);
        assert!(before >= bytes, "LIM-1: the tail's budget would go below zero");
        if bytes > 0 {
            self.room.notify_waiters();
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// What the sealer brings it down to: an eighth below the budget, so that many small tails are sealed at a time.
    pub(crate) fn relieved(&self) -> usize {
        self.budget - self.budget / 8
    }

    pub(crate) fn is_over(&self) -> bool {
        self.used() > self.budget
    }

    /// Where writers wait.
    fn limit(&self) -> usize {
        self.budget + self.budget / 2
    }

    /// Whether writers have to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.used() > self.limit()
    }

    /// Waits until there is room again. Cancel safe.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // Registered before the look, so that a change in between is not missed.
            room.as_mut().enable();
            if !self.is_full() {
                return;
            }
            room.await;
        }
    }
}

/// What a background thread, such as the sealer or the merger, has been asked to do. A set of partitions, so it never holds more than there are.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    asked: Mutex<Asked>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Asked {
    partitions: BTreeSet<PartitionId>,
    relieve: bool,
    stop: bool,
}

impl Asked {
    fn take(&mut self) -> Option<Work> {
        if self.stop {
            return Some(Work::Stop);
        }
        if let Some(partition) = self.partitions.pop_first() {
            return Some(Work::Partition(partition));
        }
        std::mem::take(&mut self.relieve).then_some(Work::Relieve)
    }
}

/// One thing to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Seal this partition, or merge or compact its segments.
    Partition(PartitionId),
    /// Bring memory or the WAL back under its limit, for the sealer; look now, for the cleaner's clock.
    Relieve,
    /// End.
    Stop,
}

impl WorkQueue {
    pub(crate) fn ask(&self, partition: PartitionId) {
        let mut asked = self.asked.lock();
        if asked.partitions.insert(partition) {
            // One of several threads may be waiting out a pause.
            self.wake.notify_all();
        }
    }

    pub(crate) fn relieve(&self) {
        let mut asked = self.asked.lock();
        if !asked.relieve {
            asked.relieve = true;
            self.wake.notify_one();
        }
    }

    pub(crate) fn stop(&self) {
        self.asked.lock().stop = true;
        self.wake.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.asked.lock().stop
    }

    /// Waits for work.
    pub(crate) fn next(&self) -> Work {
        let mut asked = self.asked.lock();
        loop {
            if let Some(work) = asked.take() {
                return work;
            }
            self.wake.wait(&mut asked);
        }
    }

    /// Waits for work, so long at most.
    pub(crate) fn next_within(&self, wait: std::time::Duration) -> Option<Work> {
        let mut asked = self.asked.lock();
        let until = std::time::Instant::now() + wait;
        loop {
            let work = asked.take();
            if work.is_some() || self.wake.wait_until(&mut asked, until).timed_out() {
                return work.or_else(|| asked.take());
            }
        }
    }

    /// Waits out a pause after a failure, or less when told to stop.
    pub(crate) fn pause(&self, pause: std::time::Duration) {
        let mut asked = self.asked.lock();
        let until = std::time::Instant::now() + pause;
        while !asked.stop && !self.wake.wait_until(&mut asked, until).timed_out() {}
    }
}
