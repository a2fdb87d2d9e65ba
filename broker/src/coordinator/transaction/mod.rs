//! The transaction coordinator: what a transactional id may do, made durable before it counts.
//!
//! Ids are spread over the partitions of `__transaction_state` by the hash Kafka uses. [`machine`] says what may follow what, [`records`] how it is stored,
//! [`markers`] ends transactions where they wrote. Here they are joined:
//!
//! ```text
//!   EndTxn --> Prepare* durable --> answered --> markers durable in every partition --> Complete* durable
//! ```
//!
//! A restart at any step goes on with what the last durable record says: what was prepared is completed, what was open stays open until its producer ends it
//! or its time is up. A step that was begun is carried out whoever asked for it is gone (S-12): each runs in a task of the coordinator.

mod log;
mod machine;
mod markers;
pub mod records;
mod state;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use weir_model::Clock;
use weir_model::config::BrokerConfig;
use weir_model::producer::{ProducerId, TxnMarker, TxnOutcome};
use weir_storage::Storage;
use weir_storage::partition::LEADER_EPOCH;

pub use machine::TransactionMetadata;
pub use markers::MarkersError;
pub use state::{ClientVersion, Partitions, Producer, TransactionError, TransactionState};

use super::log::{InternalTopic, LogError, StorageLog, TRANSACTION_TOPIC, blocking};
use super::{CoordinatorError, GroupCoordinator, shard_of};
use crate::topics::Topics;
use log::TransactionLog;
use machine::{Prepared, Transaction, Transition};
use markers::{Markers, PartitionMarkers};
use records::TransactionRecord;

/// Pause before markers, or the record of their completion, are written again. Doubled up to [`LONGEST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// Longest such pause.
const LONGEST_RETRY: Duration = Duration::from_secs(5);
/// Pause after the log could not be read.
const LOAD_RETRY: Duration = Duration::from_secs(5);

/// Gives out producer ids, none twice.
#[async_trait]
trait ProducerIds: Send + Sync + 'static {
    async fn next(&self) -> Option<ProducerId>;
}

/// Ids from the blocks that storage makes durable.
struct StorageProducerIds(Storage);

#[async_trait]
impl ProducerIds for StorageProducerIds {
    async fn next(&self) -> Option<ProducerId> {
        let storage = self.0.clone();
        // Once per thousand ids this writes to the metadata store.
        match blocking(move || storage.next_producer_id()).await {
            Ok(id) => Some(id),
            Err(cause) => {
                error!(%cause, "no producer id could be allocated");
                None
            }
        }
    }
}

/// Which transactional ids are listed.
#[derive(Debug, Clone, Default)]
pub struct TransactionFilter {
    /// Only these states; `None` for all.
    pub states: Option<Vec<TransactionState>>,
    /// Only these producers; empty for all.
    pub producer_ids: Vec<ProducerId>,
    /// Only those whose transaction has been open longer than this; negative for all.
    pub duration_ms: i64,
}

/// Coordinates every transactional id. Cheap to clone.
#[derive(Clone)]
pub struct TransactionCoordinator {
    inner: Arc<Inner>,
}

struct Inner {
    shards: Vec<Shard>,
    log: Arc<dyn TransactionLog>,
    markers: Arc<dyn Markers>,
    producer_ids: Arc<dyn ProducerIds>,
    config: Arc<BrokerConfig>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    /// Steps that were begun, and the loops.
    tasks: Mutex<JoinSet<()>>,
    /// Transactional ids over all shards.
    count: AtomicUsize,
}

/// The ids of one partition of `__transaction_state`; `None` until they have been read.
struct Shard(Mutex<Option<BTreeMap<Arc<str>, Arc<Entry>>>>);

/// What a step came to.
struct Done {
    /// The producer to go on with.
    producer: Producer,
    /// The state it led to; `None` when nothing changed.
    state: Option<TransactionState>,
}

struct Entry {
    id: Arc<str>,
    partition: usize,
    transaction: Mutex<Transaction>,
    /// Raised when a transaction has been completed.
    completed: Notify,
}

impl TransactionCoordinator {
    /// Starts the coordinator. Ids written before are loaded in the background; requests for them are answered COORDINATOR_LOAD_IN_PROGRESS until then.
    ///
    /// # Errors
    /// [`CoordinatorError`].
    pub fn start(
        storage: Storage,
        config: Arc<BrokerConfig>,
        clock: Arc<dyn Clock>,
        topics: Topics,
        groups: GroupCoordinator,
        stop: &CancellationToken,
    ) -> Result<Self, CoordinatorError> {
        let topic = InternalTopic { name: TRANSACTION_TOPIC, partitions: config.transaction_state_log_num_partitions };
        let log = StorageLog { storage: storage.clone(), topics, clock: Arc::clone(&clock), topic };
        let count = usize::try_from(log.partition_count())
            .ok()
            .filter(|count| *count > 0)
            .ok_or(CoordinatorError::NoPartitions { topic: TRANSACTION_TOPIC })?;
        let written = log.written_partitions().into_iter().filter_map(|partition| usize::try_from(partition).ok());
        let written = written.collect();
        let markers = PartitionMarkers { storage: storage.clone(), groups, clock: Arc::clone(&clock) };
        Ok(Self::with_parts(
            Arc::new(log),
            Arc::new(markers),
            Arc::new(StorageProducerIds(storage)),
            (count, written),
            config,
            clock,
            stop,
        ))
    }

    fn with_parts(
        log: Arc<dyn TransactionLog>,
        markers: Arc<dyn Markers>,
        producer_ids: Arc<dyn ProducerIds>,
        (count, written): (usize, Vec<usize>),
        config: Arc<BrokerConfig>,
        clock: Arc<dyn Clock>,
        stop: &CancellationToken,
    ) -> Self {
        let ids = |partition| (!written.contains(&partition)).then(BTreeMap::new);
        let shards = (0..count).map(|partition| Shard(Mutex::new(ids(partition)))).collect();
        let stop = stop.child_token();
        let (tasks, count) = (Mutex::new(JoinSet::new()), AtomicUsize::new(0));
        let inner = Arc::new(Inner { shards, log, markers, producer_ids, config, clock, stop, tasks, count });
        let coordinator = Self { inner };
        if !written.is_empty() {
            coordinator.spawn(Self::load_all(coordinator.clone(), written));
        }
        coordinator.spawn(Self::keep_time(coordinator.clone()));
        coordinator
    }

    /// Stops. What is being written is not taken back; markers that are not durable are written after the next start.
    pub async fn stop(&self) {
        self.inner.stop.cancel();
        let mut tasks = std::mem::take(&mut *self.inner.tasks.lock());
        while let Some(ended) = tasks.join_next().await {
            if let Err(cause) = ended {
                error!(%cause, "a task of the transaction coordinator had panicked");
            }
        }
    }

    /// The partition of `__transaction_state` that an id is in.
    pub fn partition_of(&self, id: &str) -> i32 {
        i32::try_from(self.shard_of(id)).expect("the count of shards is an i32")
    }

    /// InitProducerId with a transactional id. `expected` is what a producer that recovers believes itself to be (KIP-360).
    ///
    /// # Errors
    /// [`TransactionError`]; `ConcurrentTransactions` also when an open transaction was found, which is being aborted now: ask again.
    pub async fn init(
        &self,
        id: &str,
        timeout_ms: i32,
        expected: Option<Producer>,
    ) -> Result<Producer, TransactionError> {
        check_id(id)?;
        if timeout_ms <= 0 || timeout_ms > self.inner.config.transaction_max_timeout_ms {
            return Err(TransactionError::InvalidTimeout);
        }
        let (this, id) = (self.clone(), Arc::from(id));
        self.run(async move {
            let entry = match this.entry(&id)? {
                Some(entry) => entry,
                None => this.new_entry(id, timeout_ms).await?,
            };
            let prepare =
                |transaction: &mut Transaction, now, fresh| transaction.init(now, timeout_ms, expected, fresh);
            let done = this.carry_out(&entry, prepare).await?;
            // It was not the way to a new epoch but the end of what was open.
            let is_ending = done.state == Some(TransactionState::PrepareAbort);
            if is_ending { Err(TransactionError::ConcurrentTransactions) } else { Ok(done.producer) }
        })
        .await
    }

    /// Adds partitions to the transaction, and begins one when none is open. Durable when it returns.
    ///
    /// # Errors
    /// [`TransactionError`].
    pub async fn add_partitions(
        &self,
        id: &str,
        producer: Producer,
        partitions: Partitions,
        version: ClientVersion,
    ) -> Result<(), TransactionError> {
        check_id(id)?;
        let entry = self.entry(id)?.ok_or(TransactionError::InvalidProducerIdMapping)?;
        let this = self.clone();
        self.run(async move {
            let prepare =
                |transaction: &mut Transaction, now, _| transaction.add_partitions(now, producer, &partitions, version);
            this.carry_out(&entry, prepare).await.map(|_done| ())
        })
        .await
    }

    /// As [`Self::add_partitions`] under the second version, for a write that adds its partition. The end of the transaction before is waited for a little,
    /// since a client may begin the next one as soon as EndTxn was answered.
    ///
    /// # Errors
    /// [`TransactionError`].
    pub async fn add_by_writing(
        &self,
        id: &str,
        producer: Producer,
        partitions: Partitions,
    ) -> Result<(), TransactionError> {
        check_id(id)?;
        let entry = self.entry(id)?.ok_or(TransactionError::InvalidProducerIdMapping)?;
        let patience = self.inner.config.add_partitions_to_txn_retry_backoff_max_ms;
        let deadline = tokio::time::Instant::now() + Duration::from_millis(patience.unsigned_abs().into());
        loop {
            let completed = entry.completed.notified();
            let added = self.add_partitions(id, producer, partitions.clone(), ClientVersion::V2).await;
            let is_busy = matches!(added, Err(TransactionError::ConcurrentTransactions));
            if !is_busy || tokio::time::timeout_at(deadline, completed).await.is_err() {
                return added;
            }
        }
    }

    /// Whether each of these partitions was added to the producer's transaction, in their order.
    ///
    /// # Errors
    /// What holds for all of them.
    pub fn verify(
        &self,
        id: &str,
        producer: Producer,
        partitions: &[(Arc<str>, i32)],
    ) -> Result<Vec<Result<(), TransactionError>>, TransactionError> {
        check_id(id)?;
        let entry = self.entry(id)?.ok_or(TransactionError::InvalidProducerIdMapping)?;
        let transaction = entry.transaction.lock();
        let verified = partitions.iter().map(|(topic, partition)| transaction.verify(producer, topic, *partition));
        Ok(verified.collect())
    }

    /// EndTxn. Returns once the decision is durable; the markers follow. The producer to go on with, which under the second version has another epoch.
    ///
    /// # Errors
    /// [`TransactionError`].
    pub async fn end(
        &self,
        id: &str,
        producer: Producer,
        outcome: TxnOutcome,
        version: ClientVersion,
    ) -> Result<Producer, TransactionError> {
        check_id(id)?;
        let entry = self.entry(id)?.ok_or(TransactionError::InvalidProducerIdMapping)?;
        let this = self.clone();
        self.run(async move {
            let prepare =
                |transaction: &mut Transaction, now, fresh| transaction.end(now, producer, outcome, version, fresh);
            this.carry_out(&entry, prepare).await.map(|done| done.producer)
        })
        .await
    }

    /// An id in full.
    ///
    /// # Errors
    /// `TransactionalIdNotFound`, or that the coordinator cannot say.
    pub fn describe(&self, id: &str) -> Result<TransactionMetadata, TransactionError> {
        check_id(id)?;
        let entry = self.entry(id)?.ok_or(TransactionError::TransactionalIdNotFound)?;
        let transaction = entry.transaction.lock();
        Ok(transaction.current().clone())
    }

    /// The ids that a filter lets through, by shard and then by name.
    ///
    /// # Errors
    /// `LoadInProgress` while any shard is being read, `NotCoordinator` once stopped.
    pub fn list(
        &self,
        filter: &TransactionFilter,
    ) -> Result<Vec<(Arc<str>, ProducerId, TransactionState)>, TransactionError> {
        if self.inner.stop.is_cancelled() {
            return Err(TransactionError::NotCoordinator);
        }
        let now_ms = self.inner.clock.now_ms();
        let mut listed = Vec::new();
        for shard in &self.inner.shards {
            let ids = shard.0.lock();
            for (id, entry) in ids.as_ref().ok_or(TransactionError::LoadInProgress)? {
                let transaction = entry.transaction.lock();
                let current = transaction.current();
                if filter.lets_through(current, now_ms) {
                    listed.push((id.clone(), current.producer_id, current.state));
                }
            }
        }
        Ok(listed)
    }

    /// Prepares a change, makes it durable, takes it in, and has markers written when it was the end of a transaction.
    async fn carry_out(
        &self,
        entry: &Arc<Entry>,
        mut prepare: impl FnMut(&mut Transaction, i64, Option<ProducerId>) -> Result<Prepared, TransactionError>,
    ) -> Result<Done, TransactionError> {
        let mut fresh = None;
        loop {
            let prepared = prepare(&mut entry.transaction.lock(), self.inner.clock.now_ms(), fresh)?;
            match prepared {
                Prepared::Nothing(producer) => return Ok(Done { producer, state: None }),
                Prepared::Log(transition) => return self.make_durable(entry, transition).await,
                Prepared::NeedsProducerId => {
                    fresh = Some(self.inner.producer_ids.next().await.ok_or(TransactionError::NotAvailable)?);
                }
            }
        }
    }

    async fn make_durable(&self, entry: &Arc<Entry>, transition: Transition) -> Result<Done, TransactionError> {
        let state = transition.metadata.state;
        let written = self.write(entry, Some(transition.metadata.clone())).await;
        let mut transaction = entry.transaction.lock();
        if let Err(cause) = written {
            transaction.give_up();
            warn!(transactional_id = %entry.id, %cause, "a transaction's state was not written; its client will try again");
            return Err(TransactionError::NotAvailable);
        }
        transaction.finish(transition);
        let producer = transaction.next_producer();
        drop(transaction);
        if state.prepared().is_some() {
            self.spawn(self.clone().complete(Arc::clone(entry)));
        }
        Ok(Done { producer, state: Some(state) })
    }

    async fn write(&self, entry: &Entry, metadata: Option<TransactionMetadata>) -> Result<(), LogError> {
        let record = TransactionRecord { id: entry.id.clone(), metadata };
        let partition = i32::try_from(entry.partition).expect("the count of shards is an i32");
        self.inner.log.append(partition, record).await?.await
    }

    /// Writes the markers of a prepared transaction, and then that it is complete. Goes on until both are durable, or the broker stops.
    fn complete(self, entry: Arc<Entry>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.complete_now(&entry).await })
    }

    async fn complete_now(&self, entry: &Arc<Entry>) {
        let current = entry.transaction.lock().current().clone();
        let Some(outcome) = current.state.prepared() else { return };
        let marker = TxnMarker {
            producer_id: current.producer_id,
            producer_epoch: current.producer_epoch,
            outcome,
            // Of the partition of the log, as in Kafka. With one broker it never changes.
            coordinator_epoch: LEADER_EPOCH,
            timestamp_ms: self.inner.clock.now_ms(),
        };
        let mut pause = FIRST_RETRY;
        while let Err(cause) = self.inner.markers.write(marker, &current.partitions).await {
            warn!(transactional_id = %entry.id, %cause, "a transaction's markers are not all durable; trying again");
            if self.pause(&mut pause).await {
                return;
            }
        }
        let mut pause = FIRST_RETRY;
        loop {
            let Some(transition) = entry.transaction.lock().complete(self.inner.clock.now_ms()) else { return };
            if self.make_durable(entry, transition).await.is_ok() {
                break;
            }
            if self.pause(&mut pause).await {
                return;
            }
        }
        entry.completed.notify_waiters();
    }

    /// Waits, longer each time. Says whether the coordinator was stopped meanwhile.
    async fn pause(&self, pause: &mut Duration) -> bool {
        let stopped = self.sleep(*pause).await;
        *pause = (*pause * 2).min(LONGEST_RETRY);
        stopped
    }

    async fn sleep(&self, time: Duration) -> bool {
        tokio::select! {
            () = self.inner.stop.cancelled() => true,
            () = tokio::time::sleep(time) => false,
        }
    }

    /// Ends transactions that are open too long, and forgets ids that nobody uses.
    async fn keep_time(self) {
        let config = Arc::clone(&self.inner.config);
        let every = |ms: i32| Duration::from_millis(ms.unsigned_abs().max(1).into());
        let mut abort =
            tokio::time::interval(every(config.transaction_abort_timed_out_transaction_cleanup_interval_ms));
        let mut expire =
            tokio::time::interval(every(config.transaction_remove_expired_transaction_cleanup_interval_ms));
        for interval in [&mut abort, &mut expire] {
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        }
        loop {
            tokio::select! {
                () = self.inner.stop.cancelled() => return,
                _ = abort.tick() => self.abort_timed_out().await,
                _ = expire.tick() => self.remove_expired().await,
            }
        }
    }

    async fn abort_timed_out(&self) {
        for entry in self.entries() {
            let now_ms = self.inner.clock.now_ms();
            let due = entry.transaction.lock().time_out(now_ms);
            if let Some(transition) = due {
                info!(transactional_id = %entry.id, "a transaction is open too long and is aborted");
                // What cannot be written now is due again at the next turn.
                let _ = self.make_durable(&entry, transition).await;
            }
        }
    }

    async fn remove_expired(&self) {
        let expiration_ms = i64::from(self.inner.config.transactional_id_expiration_ms);
        for entry in self.entries() {
            let now_ms = self.inner.clock.now_ms();
            if !entry.transaction.lock().expire(now_ms, expiration_ms) {
                continue;
            }
            match self.write(&entry, None).await {
                Ok(()) => {
                    if let Some(ids) = self.inner.shards[entry.partition].0.lock().as_mut()
                        && ids.remove(&entry.id).is_some()
                    {
                        self.inner.count.fetch_sub(1, Ordering::Relaxed);
                    }
                }
                Err(cause) => {
                    entry.transaction.lock().give_up();
                    warn!(transactional_id = %entry.id, %cause, "an idle transactional id was not removed; it is tried again");
                }
            }
        }
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        let of_shard =
            |shard: &Shard| -> Vec<Arc<Entry>> { shard.0.lock().iter().flat_map(BTreeMap::values).cloned().collect() };
        self.inner.shards.iter().flat_map(of_shard).collect()
    }

    fn shard_of(&self, id: &str) -> usize {
        shard_of(id, self.inner.shards.len())
    }

    fn entry(&self, id: &str) -> Result<Option<Arc<Entry>>, TransactionError> {
        if self.inner.stop.is_cancelled() {
            return Err(TransactionError::NotCoordinator);
        }
        let ids = self.inner.shards[self.shard_of(id)].0.lock();
        Ok(ids.as_ref().ok_or(TransactionError::LoadInProgress)?.get(id).cloned())
    }

    async fn new_entry(&self, id: Arc<str>, timeout_ms: i32) -> Result<Arc<Entry>, TransactionError> {
        let most = usize::try_from(self.inner.config.weir_transactional_ids_max).unwrap_or(usize::MAX);
        if self.inner.count.load(Ordering::Relaxed) >= most {
            warn!(transactional_id = %id, most, "no more transactional ids are kept, see weir.transactional.ids.max");
            return Err(TransactionError::TooManyIds);
        }
        let producer_id = self.inner.producer_ids.next().await.ok_or(TransactionError::NotAvailable)?;
        let partition = self.shard_of(&id);
        let mut ids = self.inner.shards[partition].0.lock();
        let ids = ids.as_mut().ok_or(TransactionError::LoadInProgress)?;
        let transaction = Transaction::new(producer_id, timeout_ms, self.inner.clock.now_ms());
        // Another request may have been first.
        let entry = ids.entry(id.clone()).or_insert_with(|| {
            self.inner.count.fetch_add(1, Ordering::Relaxed);
            Entry::new(id, partition, transaction)
        });
        Ok(Arc::clone(entry))
    }

    /// Reads the partitions that were written before, one after the other.
    async fn load_all(self, partitions: Vec<usize>) {
        for partition in partitions {
            while let Err(cause) = self.load(partition).await {
                error!(partition, %cause, "transactional ids cannot be loaded; trying again");
                if self.sleep(LOAD_RETRY).await {
                    return;
                }
            }
            if self.inner.stop.is_cancelled() {
                return;
            }
        }
    }

    async fn load(&self, partition: usize) -> Result<(), LogError> {
        let begun = std::time::Instant::now();
        let index = i32::try_from(partition).expect("the count of shards is an i32");
        let (mut from, mut records, mut ids) = (None, 0, BTreeMap::new());
        while let Some(read) = self.inner.log.read(index, from).await? {
            records += read.entries.len();
            for record in read.entries {
                match record.metadata {
                    Some(metadata) => ids.insert(record.id, metadata),
                    None => ids.remove(&record.id),
                };
            }
            from = Some(read.next);
        }
        let entry =
            |(id, metadata): (Arc<str>, _)| (id.clone(), Entry::new(id, partition, Transaction::replayed(metadata)));
        let ids: BTreeMap<Arc<str>, Arc<Entry>> = ids.into_iter().map(entry).collect();
        let prepared = ids.values().filter(|entry| entry.transaction.lock().current().state.prepared().is_some());
        let prepared: Vec<Arc<Entry>> = prepared.cloned().collect();
        info!(
            partition,
            records,
            ids = ids.len(),
            to_complete = prepared.len(),
            elapsed_ms = begun.elapsed().as_millis(),
            "transactional ids loaded"
        );
        self.inner.count.fetch_add(ids.len(), Ordering::Relaxed);
        *self.inner.shards[partition].0.lock() = Some(ids);
        for entry in prepared {
            self.spawn(self.clone().complete(entry));
        }
        Ok(())
    }

    /// Carries `work` out whether or not its caller waits for it.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, TransactionError>> + Send + 'static,
    ) -> Result<T, TransactionError> {
        let (reply, answer) = oneshot::channel();
        self.spawn(async move {
            // A requester that is gone needs no answer.
            let _ = reply.send(work.await);
        });
        answer.await.unwrap_or(Err(TransactionError::NotCoordinator))
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.inner.tasks.lock();
        while let Some(ended) = tasks.try_join_next() {
            if let Err(cause) = ended {
                error!(%cause, "a task of the transaction coordinator had panicked");
            }
        }
        // Once stopped, nobody joins any more: then nothing is begun.
        if !self.inner.stop.is_cancelled() {
            tasks.spawn(work);
        }
    }
}

impl Entry {
    fn new(id: Arc<str>, partition: usize, transaction: Transaction) -> Arc<Self> {
        Arc::new(Self { id, partition, transaction: Mutex::new(transaction), completed: Notify::new() })
    }
}

impl TransactionFilter {
    fn lets_through(&self, current: &TransactionMetadata, now_ms: i64) -> bool {
        // Kafka counts from -1 where no transaction was ever begun, so such ids are always old enough.
        let age_ms = now_ms.saturating_sub(current.started_wall_ms.unwrap_or(-1));
        let is_old = self.duration_ms < 0 || age_ms > self.duration_ms;
        let has_state = self.states.as_ref().is_none_or(|states| states.contains(&current.state));
        is_old
            && has_state
            && (self.producer_ids.is_empty() || self.producer_ids.contains(&current.producer_id))
            && current.state != TransactionState::Dead
    }
}

fn check_id(id: &str) -> Result<(), TransactionError> {
    if id.is_empty() { Err(TransactionError::InvalidRequest) } else { Ok(()) }
}
