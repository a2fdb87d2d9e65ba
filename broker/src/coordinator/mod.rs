//! The coordinators. Of transactions: [`transaction`]. Of groups, here: which group is where, and the way to it.
//!
//! Groups are spread over the partitions of `__consumer_offsets` by the hash Kafka uses, one [`shard`](group) task per
//! partition in use. A request is put into its shard's mailbox in the first stage of its handler, so requests of one
//! connection reach a group in their order; the answer comes later.

mod catalog;
pub mod errors;
pub mod group;
pub mod group_configs;
mod log;
pub mod transaction;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir_model::Clock;
use weir_model::config::BrokerConfig;
use weir_model::producer::{ProducerId, TxnMarker};
use weir_storage::{Storage, TxnGuard};

use crate::topics::Topics;
use catalog::StorageTopics;
use group::consumer::assignment::TopicSource;
use group::consumer::event::{ConsumerGroupDescription, ConsumerHeartbeat, HeartbeatAnswer};
use group::log::GroupLog;
use group::shard::{self, OffsetsDeleted, Request, ShardOptions};
use group::{GroupError, GroupSettings, Heartbeat, Join, JoinAnswer, LeaveAnswer, LeavingMember, Sync, SyncAnswer};
use group_configs::{GroupConfigError, GroupConfigs};
use log::{InternalTopic, StorageLog};
use transaction::Producer;

pub use group::shard::{Commit, FetchedTopic, GroupDescription, GroupListing, NotFound, OffsetToCommit};
pub use log::{GROUP_TOPIC, LogError, TRANSACTION_TOPIC};

/// Why the coordinator did not start.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// The topic that it keeps its state in has no partitions.
    #[error("{topic} has no partitions; run weir doctor on the data directory")]
    NoPartitions {
        /// Which.
        topic: &'static str,
    },
    /// The configs of groups do not read.
    #[error(transparent)]
    Configs(#[from] GroupConfigError),
}

/// An answer that is on its way. Dropping it gives up waiting; the request is carried out all the same (S-12).
#[derive(Debug)]
pub struct Answer<T>(Option<oneshot::Receiver<T>>);

impl<T> Answer<T> {
    /// Waits for it.
    ///
    /// # Errors
    /// `NotCoordinator` when the coordinator stops, or could not read the group, before it answered.
    pub async fn wait(self) -> Result<T, GroupError> {
        match self.0 {
            Some(receiver) => receiver.await.map_err(|_| GroupError::NotCoordinator),
            None => Err(GroupError::NotCoordinator),
        }
    }
}

/// Coordinates every group. Cheap to clone.
#[derive(Clone)]
pub struct GroupCoordinator {
    inner: Arc<Inner>,
}

struct Inner {
    shards: Vec<Mutex<Option<Shard>>>,
    log: Arc<dyn GroupLog>,
    topics: Arc<dyn TopicSource>,
    configs: Arc<GroupConfigs>,
    config: Arc<BrokerConfig>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
}

struct Shard {
    mailbox: mpsc::Sender<Request>,
    task: JoinHandle<()>,
}

impl GroupCoordinator {
    /// Starts the coordinator. Groups written before are loaded in the background; requests for them wait until then.
    ///
    /// # Errors
    /// [`CoordinatorError`].
    pub async fn start(
        storage: Storage,
        config: Arc<BrokerConfig>,
        clock: Arc<dyn Clock>,
        topics: Topics,
        stop: CancellationToken,
    ) -> Result<Self, CoordinatorError> {
        let source: Arc<dyn TopicSource> = Arc::new(StorageTopics::new(storage.clone()));
        let configs = Arc::new(GroupConfigs::load(Arc::clone(&config), storage.meta())?);
        let topic = InternalTopic { name: GROUP_TOPIC, partitions: config.offsets_topic_num_partitions };
        let log = StorageLog { storage, topics, clock: Arc::clone(&clock), topic };
        let count = usize::try_from(log.partition_count())
            .ok()
            .filter(|count| *count > 0)
            .ok_or(CoordinatorError::NoPartitions { topic: GROUP_TOPIC })?;
        let written = log.written_partitions();
        let coordinator = Self::with_log(Arc::new(log), source, configs, count, config, clock, stop);
        for partition in written {
            // Its offsets expire even if nobody asks for them.
            coordinator.mailbox(usize::try_from(partition).expect("partitions are not negative"));
        }
        Ok(coordinator)
    }

    fn with_log(
        log: Arc<dyn GroupLog>,
        topics: Arc<dyn TopicSource>,
        configs: Arc<GroupConfigs>,
        count: usize,
        config: Arc<BrokerConfig>,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) -> Self {
        let shards = (0..count).map(|_| Mutex::new(None)).collect();
        Self { inner: Arc::new(Inner { shards, log, topics, configs, config, clock, stop: stop.child_token() }) }
    }

    /// Stops every shard. What is parked is answered with NOT_COORDINATOR; what is being written is not taken back.
    pub async fn stop(&self) {
        self.inner.stop.cancel();
        let shards: Vec<Shard> = self.inner.shards.iter().filter_map(|slot| slot.lock().take()).collect();
        for shard in shards {
            drop(shard.mailbox);
            if shard.task.await.is_err() {
                tracing::error!("a group shard had panicked");
            }
        }
    }

    /// The partition of `__consumer_offsets` that a group is in.
    pub fn partition_of(&self, group: &str) -> i32 {
        i32::try_from(self.shard_of(group)).expect("the count of shards is an i32")
    }

    /// A member joins or rejoins.
    pub async fn join(&self, group: Arc<str>, join: Join) -> Answer<JoinAnswer> {
        if group.is_empty() {
            return now(JoinAnswer::refused(&join.member_id, GroupError::InvalidGroupId));
        }
        self.ask(&group.clone(), |reply| Request::Join { group, join, reply }).await
    }

    /// A member asks for its assignment.
    pub async fn sync(&self, group: Arc<str>, sync: Sync) -> Answer<SyncAnswer> {
        if group.is_empty() {
            return now(SyncAnswer::refused(GroupError::InvalidGroupId));
        }
        self.ask(&group.clone(), |reply| Request::Sync { group, sync, reply }).await
    }

    /// A member lives.
    pub async fn heartbeat(&self, group: Arc<str>, heartbeat: Heartbeat) -> Answer<Option<GroupError>> {
        if group.is_empty() {
            return now(Some(GroupError::InvalidGroupId));
        }
        self.ask(&group.clone(), |reply| Request::Heartbeat { group, heartbeat, reply }).await
    }

    /// Members leave.
    pub async fn leave(&self, group: Arc<str>, members: Vec<LeavingMember>) -> Answer<Vec<LeaveAnswer>> {
        self.ask(&group.clone(), |reply| Request::Leave { group, members, reply }).await
    }

    /// A member of a KIP-848 group lives, joins or leaves.
    pub async fn consumer_heartbeat(
        &self,
        group: Arc<str>,
        heartbeat: ConsumerHeartbeat,
    ) -> Answer<Result<HeartbeatAnswer, GroupError>> {
        self.ask(&group.clone(), |reply| Request::ConsumerHeartbeat { group, heartbeat, reply }).await
    }

    /// A KIP-848 group in full.
    pub async fn describe_consumer(&self, group: Arc<str>) -> Answer<Result<ConsumerGroupDescription, NotFound>> {
        self.ask(&group.clone(), |reply| Request::DescribeConsumer { group, reply }).await
    }

    /// What single groups set otherwise than the broker.
    pub fn configs(&self) -> &GroupConfigs {
        &self.inner.configs
    }

    /// Offsets are committed; answered when they are durable.
    pub async fn commit(&self, group: Arc<str>, commit: Commit) -> Answer<Result<(), GroupError>> {
        self.ask(&group.clone(), |reply| Request::Commit { group, commit, reply }).await
    }

    /// What to take before it is looked up whether a producer's transaction has the group; see [`Self::commit_in_transaction`].
    ///
    /// # Errors
    /// `CoordinatorNotAvailable` when the topic of groups cannot be made now.
    pub async fn guard(&self, group: &str, producer_id: ProducerId) -> Result<TxnGuard, GroupError> {
        self.inner.log.guard(self.partition_of(group), producer_id).await.map_err(|cause| {
            tracing::warn!(group, %cause, "offsets cannot be committed in a transaction now");
            GroupError::CoordinatorNotAvailable
        })
    }

    /// Offsets are committed in a transaction that was found to have the group after `guard` was taken; answered when they are durable. They count once the
    /// transaction is committed.
    pub async fn commit_in_transaction(
        &self,
        group: Arc<str>,
        commit: Commit,
        producer: Producer,
        guard: TxnGuard,
    ) -> Answer<Result<(), GroupError>> {
        self.ask(&group.clone(), |reply| Request::TransactionalCommit { group, commit, producer, guard, reply }).await
    }

    /// Ends a transaction in one partition of the log of groups: what it committed there counts from then on, or never did. Answered when that is durable.
    pub async fn end_transaction(&self, partition: i32, marker: TxnMarker) -> Answer<Result<(), GroupError>> {
        let shard = usize::try_from(partition).ok().filter(|shard| *shard < self.inner.shards.len());
        let Some(shard) = shard else { return now(Err(GroupError::UnknownTopicOrPartition)) };
        self.ask_shard(shard, |reply| Request::EndTransaction { marker, reply }).await
    }

    /// The committed offsets of some partitions, or of all. `member`: the member of a KIP-848 group that asks, and its epoch.
    pub async fn fetch(
        &self,
        group: Arc<str>,
        wanted: Option<Vec<(Arc<str>, Vec<i32>)>>,
        member: Option<(Arc<str>, i32)>,
    ) -> Answer<Result<Vec<FetchedTopic>, GroupError>> {
        self.ask(&group.clone(), |reply| Request::Fetch { group, wanted, member, reply }).await
    }

    /// A classic group in full.
    pub async fn describe(&self, group: Arc<str>) -> Answer<Result<GroupDescription, NotFound>> {
        self.ask(&group.clone(), |reply| Request::Describe { group, reply }).await
    }

    /// Deletes an empty group with its offsets; answered when that is durable.
    pub async fn delete(&self, group: Arc<str>) -> Answer<Result<(), GroupError>> {
        self.ask(&group.clone(), |reply| Request::Delete { group, reply }).await
    }

    /// Deletes committed offsets; answered when that is durable.
    pub async fn delete_offsets(&self, group: Arc<str>, partitions: Vec<(Arc<str>, i32)>) -> Answer<OffsetsDeleted> {
        self.ask(&group.clone(), |reply| Request::DeleteOffsets { group, partitions, reply }).await
    }

    /// Every group there is, by shard and then by name.
    ///
    /// # Errors
    /// `NotCoordinator` when the coordinator stops meanwhile.
    pub async fn list(&self) -> Result<Vec<GroupListing>, GroupError> {
        let mut groups = Vec::new();
        for mailbox in self.running() {
            let (reply, answer) = oneshot::channel();
            mailbox.send(Request::List { reply }).await.map_err(|_| GroupError::NotCoordinator)?;
            groups.extend(answer.await.map_err(|_| GroupError::NotCoordinator)?);
        }
        Ok(groups)
    }

    /// Forgets the offsets committed for a topic that was deleted, so that a topic made later under its name starts
    /// afresh. Returns when that is durable, or cannot be.
    pub async fn topic_deleted(&self, topic: &str) {
        let mut answers = Vec::new();
        for mailbox in self.running() {
            let (reply, answer) = oneshot::channel();
            if mailbox.send(Request::TopicDeleted { topic: Arc::from(topic), reply }).await.is_ok() {
                answers.push(answer);
            }
        }
        for answer in answers {
            if answer.await.is_err() {
                tracing::warn!(topic, "the offsets of a deleted topic were not removed: the coordinator is stopping");
            }
        }
    }

    async fn ask<T>(&self, group: &str, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Answer<T> {
        self.ask_shard(self.shard_of(group), request).await
    }

    async fn ask_shard<T>(&self, shard: usize, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Answer<T> {
        let Some(mailbox) = self.mailbox(shard) else { return Answer(None) };
        let (reply, answer) = oneshot::channel();
        match mailbox.send(request(reply)).await {
            Ok(()) => Answer(Some(answer)),
            Err(_) => Answer(None),
        }
    }

    fn shard_of(&self, group: &str) -> usize {
        shard_of(group, self.inner.shards.len())
    }

    /// The mailbox of a shard, which starts with the first use; `None` once the coordinator has stopped.
    fn mailbox(&self, shard: usize) -> Option<mpsc::Sender<Request>> {
        if self.inner.stop.is_cancelled() {
            return None;
        }
        let mut slot = self.inner.shards[shard].lock();
        let running = slot.get_or_insert_with(|| {
            let config = &self.inner.config;
            let (mailbox, task) = shard::spawn(ShardOptions {
                partition: i32::try_from(shard).expect("the count of shards is an i32"),
                log: Arc::clone(&self.inner.log),
                clock: Arc::clone(&self.inner.clock),
                settings: settings(config),
                topics: Arc::clone(&self.inner.topics),
                configs: Arc::clone(&self.inner.configs),
                offsets_retention_ms: i64::from(config.offsets_retention_minutes) * 60_000,
                expiry_interval: Duration::from_millis(config.offsets_retention_check_interval_ms.unsigned_abs()),
                stop: self.inner.stop.clone(),
            });
            Shard { mailbox, task }
        });
        Some(running.mailbox.clone())
    }

    fn running(&self) -> Vec<mpsc::Sender<Request>> {
        self.inner.shards.iter().filter_map(|slot| slot.lock().as_ref().map(|shard| shard.mailbox.clone())).collect()
    }
}

fn settings(config: &BrokerConfig) -> GroupSettings {
    GroupSettings {
        initial_rebalance_delay_ms: i64::from(config.group_initial_rebalance_delay_ms),
        min_session_timeout_ms: i64::from(config.group_min_session_timeout_ms),
        max_session_timeout_ms: i64::from(config.group_max_session_timeout_ms),
        max_size: usize::try_from(config.group_max_size).unwrap_or(usize::MAX),
    }
}

/// The partition of a group or of a transactional id, Kafka's `partitionFor`: the absolute value of Java's `String.hashCode`, which works on UTF-16 units, modulo the count.
fn shard_of(id: &str, count: usize) -> usize {
    let hash = id.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    // Kafka's Utils.abs answers 0 for the one value whose absolute value is none.
    let positive = hash.checked_abs().unwrap_or(0);
    usize::try_from(positive).expect("not negative") % count
}

fn now<T>(answer: T) -> Answer<T> {
    let (reply, receiver) = oneshot::channel();
    // The receiver is right here.
    let _ = reply.send(answer);
    Answer(Some(receiver))
}
