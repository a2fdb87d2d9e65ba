//! Offsets committed in transactions that have not ended: known, durable, and not counted yet.
//!
//! A transactional commit is a batch of the group's log like any other, with the producer's id and the transactional bit. Its offsets count from the marker
//! that commits the transaction on, and never when it is aborted. Where a plain commit (or a removal) of the same partition came later in the log than the
//! transactional one, the later one stands, whenever the marker comes: Kafka's `OffsetMetadataManager` compares the offsets of the records.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;
use weir_model::producer::{ProducerId, TxnMarker, TxnOutcome};
use weir_storage::TxnGuard;

use super::request::{Commit, OffsetToCommit};
use super::state::{Scope, ShardState, Then};
use crate::coordinator::group::event::{GroupError, Now};
use crate::coordinator::group::offsets::{CommittedOffset, TopicPartition};
use crate::coordinator::group::records::{Record, RecordKey, RecordValue};
use crate::coordinator::transaction::Producer;

/// A partition of a group.
type GroupPartition = (Arc<str>, TopicPartition);

/// What transactions that are open committed to the groups of a shard.
#[derive(Debug, Default)]
pub(super) struct PendingOffsets {
    producers: BTreeMap<ProducerId, BTreeMap<GroupPartition, Pending>>,
    /// How many transactions have an offset for each partition of a group.
    counts: BTreeMap<Arc<str>, BTreeMap<TopicPartition, usize>>,
}

#[derive(Debug)]
struct Pending {
    committed: CommittedOffset,
    /// A later record of the log is about the same partition.
    overtaken: bool,
}

impl PendingOffsets {
    /// A transactional commit is durable.
    pub(super) fn add(
        &mut self,
        producer_id: ProducerId,
        group: &Arc<str>,
        partition: TopicPartition,
        committed: CommittedOffset,
    ) {
        let of_producer = self.producers.entry(producer_id).or_default();
        let pending = Pending { committed, overtaken: false };
        if of_producer.insert((group.clone(), partition.clone()), pending).is_none() {
            *self.counts.entry(group.clone()).or_default().entry(partition).or_default() += 1;
        }
    }

    /// A plain record about a partition is durable.
    pub(super) fn overtake(&mut self, group: &Arc<str>, partition: &TopicPartition) {
        if !self.has(group, partition) {
            return;
        }
        let key = (group.clone(), partition.clone());
        for pending in self.producers.values_mut().filter_map(|of_producer| of_producer.get_mut(&key)) {
            pending.overtaken = true;
        }
    }

    /// The transaction ended: what counts from now on, when it was committed.
    pub(super) fn end(
        &mut self,
        producer_id: ProducerId,
        outcome: TxnOutcome,
    ) -> Vec<(GroupPartition, CommittedOffset)> {
        let of_producer = self.producers.remove(&producer_id).unwrap_or_default();
        for (group, partition) in of_producer.keys() {
            if let Some(counts) = self.counts.get_mut(group) {
                if let Some(count) = counts.get_mut(partition) {
                    *count -= 1;
                }
                counts.retain(|_, count| *count > 0);
                if counts.is_empty() {
                    self.counts.remove(group);
                }
            }
        }
        let counted = of_producer.into_iter().filter(|(_, pending)| !pending.overtaken);
        match outcome {
            TxnOutcome::Commit => counted.map(|(partition, pending)| (partition, pending.committed)).collect(),
            TxnOutcome::Abort => Vec::new(),
        }
    }

    /// Whether an open transaction committed an offset of this partition.
    pub(super) fn has(&self, group: &Arc<str>, partition: &TopicPartition) -> bool {
        self.counts.get(group).is_some_and(|counts| counts.contains_key(partition))
    }

    /// Whether an open transaction committed an offset of the group.
    pub(super) fn has_any(&self, group: &Arc<str>) -> bool {
        self.counts.contains_key(group)
    }

    /// The partitions of a group that open transactions committed.
    pub(super) fn partitions(&self, group: &Arc<str>) -> impl Iterator<Item = &TopicPartition> {
        self.counts.get(group).into_iter().flat_map(BTreeMap::keys)
    }

    /// The groups that open transactions committed to.
    pub(super) fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        self.counts.keys()
    }

    /// The producers of open transactions.
    pub(super) fn producers(&self) -> impl Iterator<Item = ProducerId> {
        self.producers.keys().copied()
    }
}

impl ShardState {
    /// Takes a transactional record of the log in.
    pub(in crate::coordinator) fn replay_transactional(&mut self, producer_id: ProducerId, record: Record) {
        if let (RecordKey::Offset { group, topic, partition }, Some(RecordValue::Offset(committed))) =
            (record.key, record.value)
        {
            self.pending.add(producer_id, &group, (topic, partition), committed);
        }
    }

    /// Takes the end of a transaction in: from the log, or because it is durable now.
    pub(in crate::coordinator) fn take_marker(&mut self, marker: &TxnMarker) {
        for ((group, partition), committed) in self.pending.end(marker.producer_id, marker.outcome) {
            self.set_offset(&group, partition, committed);
        }
    }

    /// The producers of open transactions.
    pub(in crate::coordinator) fn open_producers(&self) -> Vec<ProducerId> {
        self.pending.producers().collect()
    }

    pub(super) fn commit_in_transaction(
        &mut self,
        now: Now,
        id: &Arc<str>,
        commit: Commit,
        (producer, guard): (Producer, TxnGuard),
        reply: oneshot::Sender<Result<(), GroupError>>,
    ) {
        let checked = self.check_transactional_commit(now, id, &commit);
        if checked.is_err() || commit.offsets.is_empty() {
            // A requester that is gone needs no answer (S-12).
            let _ = reply.send(checked);
            self.settle(id);
            return;
        }
        let record = |new: OffsetToCommit| {
            let committed = CommittedOffset {
                offset: new.offset,
                leader_epoch: new.leader_epoch,
                metadata: new.metadata,
                commit_wall_ms: now.wall_ms,
                expires_wall_ms: None,
            };
            Record::offset(id, &new.topic, new.partition, committed)
        };
        let records = commit.offsets.into_iter().map(record).collect();
        let scope = Scope::Transactional { producer, guard };
        self.write_scoped(records, Then::Committed { reply }, scope);
        self.settle(id);
    }

    pub(super) fn end_transaction(&mut self, marker: TxnMarker, reply: oneshot::Sender<Result<(), GroupError>>) {
        self.write_scoped(Vec::new(), Then::Committed { reply }, Scope::Marker(marker));
    }
}
