//! Waiting for rows: the long poll of Fetch (S-47 to S-49).
//!
//! A poll reads what there is; when that is not enough it is subscribed to its partitions and reads on where it stopped as they move. It never reads the same
//! bytes twice, and a partition that did not move costs one look at its offsets.

pub mod codecs;

use std::time::Duration;

use tokio::time::Instant;
use weir_model::{Isolation, Offset};
use weir_storage::{Partition, ReadError, ReadLimits, ReadSignal, RowForm, RowsRead};

/// One partition to read.
pub struct Target {
    /// Which.
    pub partition: Partition,
    /// From where; whether it can be read is the partition's to say.
    pub offset: Offset,
    /// The client's limit for this partition.
    pub max_bytes: usize,
    /// Rows or columns.
    pub form: RowForm,
}

/// What was read of a target, so far.
pub type TargetRead = Result<RowsRead, ReadError>;

/// A fetch: what to read, and how long to wait for how much.
pub struct LongPoll {
    /// In request order, which is the order in which the size limit is used up.
    pub targets: Vec<Target>,
    /// How far a reader may see.
    pub isolation: Isolation,
    /// Enough, over all targets.
    pub min_bytes: usize,
    /// The most, over all targets; the first batch is answered even when it is larger.
    pub max_bytes: usize,
    /// How long to wait for `min_bytes`, counted from `received`.
    pub max_wait: Duration,
    /// When the request was read.
    pub received: std::time::Instant,
}

impl LongPoll {
    /// Reads. Returns one result per target, in order, once there are `min_bytes`, a target failed, a target cannot hold more, or time is up.
    ///
    /// Cancel safe: nothing outlives the future.
    pub async fn run(&self) -> Vec<TargetRead> {
        let mut poll = Poll {
            fetch: self,
            reads: Vec::with_capacity(self.targets.len()),
            total: 0,
            is_done: self.targets.is_empty(),
        };
        poll.first_pass().await;
        let deadline = Instant::from_std(self.received) + self.max_wait;
        while !poll.is_done && poll.total < self.min_bytes && Instant::now() < deadline {
            // A fresh signal each time: which subscriptions a wake used up is not known, and those of a dropped signal are swept.
            let signal = ReadSignal::new();
            // Subscribed before the look, so that a move in between is not missed.
            for target in &self.targets {
                target.partition.subscribe(&signal);
            }
            if poll.read_on().await {
                continue;
            }
            if tokio::time::timeout_at(deadline, signal.raised()).await.is_err() {
                break;
            }
            poll.read_on().await;
        }
        poll.reads
    }
}

struct Poll<'a> {
    fetch: &'a LongPoll,
    reads: Vec<TargetRead>,
    total: usize,
    /// Waiting can bring nothing more, or must not go on.
    is_done: bool,
}

impl Poll<'_> {
    async fn first_pass(&mut self) {
        for target in &self.fetch.targets {
            let read = self.read(target, target.offset, target.max_bytes).await;
            match &read {
                Ok(read) => self.count(read.bytes, read.next, &read.offsets),
                Err(_) => self.is_done = true,
            }
            self.reads.push(read);
        }
    }

    /// Reads the targets whose partitions moved since they were read last. Says whether anything changed.
    async fn read_on(&mut self) -> bool {
        let mut changed = false;
        for index in 0..self.fetch.targets.len() {
            let target = &self.fetch.targets[index];
            let Ok(so_far) = &self.reads[index] else { continue };
            let end = so_far.offsets.read_end(self.fetch.isolation);
            if target.partition.offsets().read_end(self.fetch.isolation) == end && !target.partition.is_closed() {
                continue;
            }
            changed = true;
            let (next, left) = (so_far.next, target.max_bytes.saturating_sub(so_far.bytes));
            let more = self.read(target, next, left).await;
            match more {
                Ok(more) => {
                    self.count(more.bytes, more.next, &more.offsets);
                    if let Ok(so_far) = &mut self.reads[index] {
                        so_far.chunks.extend(more.chunks);
                        // One transaction may have rows in both.
                        so_far.aborted.extend(more.aborted);
                        so_far.aborted.sort_unstable_by_key(|txn| (txn.first_offset, txn.producer_id));
                        so_far.aborted.dedup();
                        so_far.bytes += more.bytes;
                        so_far.next = more.next;
                        so_far.offsets = more.offsets;
                    }
                }
                Err(error) => {
                    self.is_done = true;
                    self.reads[index] = Err(error);
                }
            }
        }
        changed
    }

    async fn read(&self, target: &Target, from: Offset, max_bytes: usize) -> TargetRead {
        let limits = ReadLimits {
            max_bytes: max_bytes.min(self.fetch.max_bytes.saturating_sub(self.total)),
            // Only the first batch of a whole answer may pass the limits: so a client always gets on, and never gets two of them (S-48).
            at_least_one: self.total == 0,
        };
        target.partition.read_rows(from, limits, self.fetch.isolation, &target.form).await
    }

    fn count(&mut self, bytes: usize, next: Offset, offsets: &weir_model::LogOffsets) {
        self.total += bytes;
        // There is more than fits: waiting would not bring it (S-49).
        if next < offsets.read_end(self.fetch.isolation) {
            self.is_done = true;
        }
    }
}
