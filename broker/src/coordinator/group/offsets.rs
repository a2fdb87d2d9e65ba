//! The offsets a group has committed.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A committed offset and what came with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset to read.
    pub offset: i64,
    /// The leader epoch of the record before it, when the client knew.
    pub leader_epoch: Option<i32>,
    /// The client's own text.
    pub metadata: Arc<str>,
    /// When it was committed.
    pub commit_wall_ms: i64,
    /// When it expires, if the commit itself said so (OffsetCommit v2-4).
    pub expires_wall_ms: Option<i64>,
}

/// A partition by name, as clients commit it.
pub(in crate::coordinator) type TopicPartition = (Arc<str>, i32);

/// The committed offsets of one group: the durable ones, and which have a write in flight.
#[derive(Debug, Clone, Default)]
pub(in crate::coordinator) struct Offsets {
    durable: BTreeMap<TopicPartition, CommittedOffset>,
    in_flight: BTreeMap<TopicPartition, usize>,
}

impl Offsets {
    pub(in crate::coordinator) fn get(&self, topic: &Arc<str>, partition: i32) -> Option<&CommittedOffset> {
        self.durable.get(&(topic.clone(), partition))
    }

    pub(in crate::coordinator) fn iter(&self) -> impl Iterator<Item = (&TopicPartition, &CommittedOffset)> {
        self.durable.iter()
    }

    /// No offset, and none on its way.
    pub(in crate::coordinator) fn is_empty(&self) -> bool {
        self.durable.is_empty() && self.in_flight.is_empty()
    }

    /// Every partition that has an offset or will have one: what a deletion has to remove.
    pub(in crate::coordinator) fn partitions(&self) -> Vec<TopicPartition> {
        let mut all: Vec<TopicPartition> = self.durable.keys().chain(self.in_flight.keys()).cloned().collect();
        all.sort();
        all.dedup();
        all
    }

    pub(in crate::coordinator) fn begin(&mut self, partition: &TopicPartition) {
        *self.in_flight.entry(partition.clone()).or_default() += 1;
    }

    /// A write that was begun is over, whatever became of it.
    pub(in crate::coordinator) fn finish(&mut self, partition: &TopicPartition) {
        if let Some(count) = self.in_flight.get_mut(partition) {
            *count -= 1;
            if *count == 0 {
                self.in_flight.remove(partition);
            }
        }
    }

    /// Takes a durable record in; `None` removes the offset.
    pub(in crate::coordinator) fn set(&mut self, partition: TopicPartition, value: Option<CommittedOffset>) {
        match value {
            Some(committed) => self.durable.insert(partition, committed),
            None => self.durable.remove(&partition),
        };
    }
}
