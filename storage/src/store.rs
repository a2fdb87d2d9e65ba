//! The storage of one broker: opens what is there, hands out partitions, makes and removes topics, and runs the sealer,
//! the merger, the cleaner and retention in the background.

mod broker_configs;
mod cleaner;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use dashmap::DashMap;
use parking_lot::{Mutex, RwLock};
use weir_model::config::{BrokerConfig, WalSync};
use weir_model::record_batch::{AssignedBatch, BatchError};
use weir_model::{Clock, PartitionId, TopicId};

use crate::cold::ColdTier;
use crate::disk::{Disk, RealDisk};
use crate::manifest::{self, DecodeError, PartitionRecord, SegmentRecord};
use crate::meta::{MetaBatch, MetaError, MetaStore, RocksMetaStore};
use crate::partition::{
    Merge, MergeError, Partition, RecoverError, Recovered, RetainError, SealError, Stretch, seal_together,
    topic_directory,
};
use crate::shared::{Counters, Shared, Work};
use crate::topics::{TopicError, TopicInfo, TopicRecord, TopicSpec, Topics};
use crate::wal::{Admission, OnFatal, SyncPolicy, Wal, WalConfig, WalError, WalSeq, WalStats};

pub use self::broker_configs::BrokerConfigs;

/// Producer ids are handed out from blocks of this many, so that a new producer costs no commit of its own.
const PRODUCER_ID_BLOCK: i64 = 1_000;
/// The WAL is kept under this many times the tail's budget by sealing the partition that pins its oldest file: what is in
/// the WAL has to be read at the next start, and 1 GB takes about two seconds.
const WAL_TAIL_RATIO: u64 = 2;
/// Partitions sealed with one commit of the metadata store. Their segments' buffers are in memory one at a time; their rows
/// stay in the tail until the commit.
const SEAL_TOGETHER: usize = 128;
/// Pause after a seal that failed.
const SEAL_RETRY: Duration = Duration::from_secs(1);
/// Pause after a merge that failed. What fails is most likely a full disk, and that is not mended in a second.
const MERGE_RETRY: Duration = Duration::from_secs(30);
/// Most partitions of one topic, so that a slip of the finger does not fill the metadata store.
const MAX_PARTITIONS: i32 = 100_000;

/// What storage needs to open.
pub struct StorageOptions {
    /// The data directory. Storage owns `meta/`, `wal/` and `segments/` in it.
    pub directory: PathBuf,
    /// Broker configs.
    pub config: Arc<BrokerConfig>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The disk under the WAL.
    pub disk: Arc<dyn Disk>,
    /// What to do when the WAL fails (LOG-5); `None` aborts the process.
    pub on_fatal: Option<OnFatal>,
}

impl StorageOptions {
    /// On the machine's own disk, with its own clock.
    pub fn new(directory: PathBuf, config: Arc<BrokerConfig>, clock: Arc<dyn Clock>) -> Self {
        Self { directory, config, clock, disk: Arc::new(RealDisk::new()), on_fatal: None }
    }
}

/// Why storage did not open. Nothing was changed on its account.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A directory could not be made.
    #[error("cannot create {directory}: {source}")]
    Directory {
        /// Which.
        directory: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The metadata store.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// A value in it.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The WAL.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// A batch in the WAL.
    #[error("a batch in the WAL does not read: {0}; run weir doctor")]
    Batch(#[from] BatchError),
    /// A topic whose configs are no longer accepted.
    #[error("topic '{name}' cannot be opened: {source}")]
    Topic {
        /// Which.
        name: String,
        /// Why.
        source: Box<TopicError>,
    },
    /// A partition.
    #[error(transparent)]
    Partition(#[from] RecoverError),
    /// The sealer's thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// Why nothing may be appended now.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    /// The WAL has no room, or has ended.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The tail is full and cannot be sealed.
    #[error("the tail is full and cannot be sealed, because the disk is full; free space or shorten retention")]
    SealingStuck,
}

impl AdmitError {
    /// Whether a later try may succeed by itself.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::SealingStuck | Self::Wal(WalError::DiskFull { .. }))
    }
}

/// The storage of one broker. Cheap to clone.
#[derive(Clone)]
pub struct Storage {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    configs: RwLock<Arc<BrokerConfigs>>,
    topics: RwLock<Arc<Topics>>,
    partitions: DashMap<PartitionId, Partition>,
    /// Serialises topic changes and producer id blocks.
    change: Mutex<ProducerIds>,
    cluster_id: String,
    sealer: Mutex<Option<JoinHandle<()>>>,
    merger: Mutex<Option<JoinHandle<()>>>,
    cleaner: cleaner::Cleaner,
}

#[derive(Default)]
struct ProducerIds {
    next: i64,
    block_end: i64,
}

impl Storage {
    /// Opens the data directory, or makes it, and replays the WAL. Blocks.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(options: StorageOptions) -> Result<Self, OpenError> {
        let StorageOptions { directory, config, clock, disk, on_fatal } = options;
        std::fs::create_dir_all(&directory)
            .map_err(|source| OpenError::Directory { directory: directory.clone(), source })?;
        let meta: Arc<dyn MetaStore> = Arc::new(RocksMetaStore::open(directory.join("meta"))?);
        let configs = BrokerConfigs::load(&*meta, config)?;
        let config = Arc::clone(&configs.config);
        let topics = load_topics(&*meta, &config)?;

        let mut replayed: HashMap<PartitionId, Vec<(WalSeq, AssignedBatch)>> = HashMap::new();
        let mut unreadable = None;
        let wal_config = wal_config(&config, on_fatal);
        let wal = Wal::open(disk, directory.join("wal"), wal_config, &mut |seq, partition, bytes| {
            // A topic that was deleted leaves entries behind; they go with their file.
            if topics.get(partition.topic).is_none() {
                return;
            }
            // The entry's own CRC was checked, so the batch's is not checked again.
            match AssignedBatch::from_stored(bytes, false) {
                Ok(batch) => replayed.entry(partition).or_default().push((seq, batch)),
                Err(error) => unreadable = unreadable.take().or(Some(error)),
            }
        })?;
        if let Some(error) = unreadable {
            return Err(error.into());
        }
        let tail_budget = usize::try_from(config.weir_tail_bytes).unwrap_or(usize::MAX);
        let cluster_id = cluster_id(&*meta)?;
        let shared = Arc::new(Shared::new(wal, meta, clock, directory.join("segments"), tail_budget));

        let partitions = DashMap::new();
        let mut manifests = load_manifests(&*shared.meta)?;
        for topic in topics.iter() {
            for index in 0..topic.partitions() {
                let id = PartitionId { topic: topic.id(), index };
                let recovered = manifests.remove(&id).unwrap_or_else(Recovered::new_partition);
                let batches = replayed.remove(&id).unwrap_or_default();
                let partition = Partition::recover(Arc::clone(&shared), Arc::clone(topic), id, recovered, batches)?;
                if let Err(error) = partition.remove_leftovers() {
                    tracing::warn!(partition = %id, %error, "what was left over stays until the next start");
                }
                partitions.insert(id, partition);
            }
        }
        let storage = Self {
            inner: Arc::new(Inner {
                shared,
                configs: RwLock::new(Arc::new(configs)),
                topics: RwLock::new(Arc::new(topics)),
                partitions,
                change: Mutex::default(),
                cluster_id,
                sealer: Mutex::new(None),
                merger: Mutex::new(None),
                cleaner: cleaner::Cleaner::default(),
            }),
        };
        storage.start_sealer()?;
        storage.start_merger()?;
        storage.start_cleaner()?;
        Ok(storage)
    }

    fn start_sealer(&self) -> Result<(), OpenError> {
        // The thread holds the inner part weakly, or it would keep itself alive.
        let inner = Arc::downgrade(&self.inner);
        let shared = Arc::clone(&self.inner.shared);
        let handle = std::thread::Builder::new()
            .name("weir-seal".to_owned())
            .spawn(move || {
                loop {
                    let work = shared.sealer.next();
                    let Some(inner) = inner.upgrade() else { return };
                    let sealed = match work {
                        Work::Stop => return,
                        Work::Partition(id) => inner.look_after(id),
                        Work::Relieve => inner.relieve(),
                    };
                    drop(inner);
                    if !sealed {
                        shared.sealer.pause(SEAL_RETRY);
                    }
                }
            })
            .map_err(OpenError::Thread)?;
        *self.inner.sealer.lock() = Some(handle);
        self.inner.shared.sealer.relieve();
        Ok(())
    }

    /// The merger is a thread of its own, because a merge takes seconds and sealing must not wait for it.
    fn start_merger(&self) -> Result<(), OpenError> {
        let inner = Arc::downgrade(&self.inner);
        let shared = Arc::clone(&self.inner.shared);
        let handle = std::thread::Builder::new()
            .name("weir-merge".to_owned())
            .spawn(move || {
                // Partitions with a damaged segment: every try would read up to it again.
                let mut damaged = BTreeSet::new();
                loop {
                    let Work::Partition(id) = shared.merger.next() else { return };
                    if damaged.contains(&id) {
                        continue;
                    }
                    let Some(inner) = inner.upgrade() else { return };
                    let merged = inner.merge(id);
                    drop(inner);
                    match merged {
                        Ok(()) => {}
                        Err(error @ MergeError::Store { .. }) => {
                            // The next start finds out which of the two manifests holds; until then no second try.
                            tracing::error!(%error, "merging ends until the broker is restarted");
                            return;
                        }
                        Err(MergeError::Segment(error)) if error.is_corrupt() => {
                            Counters::add(&shared.counters.merge_failures, 1);
                            damaged.insert(id);
                            tracing::error!(partition = %id, %error, "the partition is not merged until the broker is restarted");
                        }
                        Err(error) => {
                            Counters::add(&shared.counters.merge_failures, 1);
                            tracing::warn!(%error, "small segments were not merged; the next seal of the partition tries again");
                            shared.merger.pause(MERGE_RETRY);
                        }
                    }
                }
            })
            .map_err(OpenError::Thread)?;
        *self.inner.merger.lock() = Some(handle);
        for entry in &self.inner.partitions {
            self.inner.ask_for_merge(entry.value());
            if entry.value().has_undecided() {
                self.inner.shared.sealer.ask(*entry.key());
            }
        }
        Ok(())
    }

    /// Hands in the reader of old offsets, once the lake is up.
    pub fn set_cold_tier(&self, cold: Arc<dyn ColdTier>) {
        self.inner.shared.set_cold(cold);
    }

    /// The cluster's id: 22 characters, made with the data directory.
    pub fn cluster_id(&self) -> &str {
        &self.inner.cluster_id
    }

    /// The metadata store, for the parts above that keep their own keys in it.
    pub fn meta(&self) -> Arc<dyn MetaStore> {
        Arc::clone(&self.inner.shared.meta)
    }

    /// What storage did since it was opened.
    pub fn counters(&self) -> &Counters {
        &self.inner.shared.counters
    }

    /// What the WAL did since it was opened, and the bytes of its files.
    pub fn wal_stats(&self) -> (WalStats, u64) {
        (self.inner.shared.wal.stats(), self.inner.shared.wal.size_bytes())
    }

    /// Memory in all tails, in bytes.
    pub fn tail_bytes(&self) -> usize {
        self.inner.shared.tail_bytes.used()
    }

    /// All topics now.
    pub fn topics(&self) -> Arc<Topics> {
        Arc::clone(&self.inner.topics.read())
    }

    /// A partition.
    pub fn partition(&self, id: PartitionId) -> Option<Partition> {
        self.inner.partitions.get(&id).map(|entry| entry.value().clone())
    }

    /// The partitions of a topic, by number.
    pub fn partitions(&self, topic: &TopicInfo) -> Vec<Partition> {
        (0..topic.partitions()).filter_map(|index| self.partition(PartitionId { topic: topic.id(), index })).collect()
    }

    /// Waits until batches whose bodies have these many bytes may be appended: room in the tail, room in flight, and disk
    /// space reserved. Cancel safe.
    ///
    /// # Errors
    /// [`AdmitError`]; nothing was ordered.
    pub async fn admit(&self, body_sizes: impl IntoIterator<Item = usize>) -> Result<Admission, AdmitError> {
        let shared = &self.inner.shared;
        if shared.tail_bytes.is_full() {
            if shared.sealing_stuck.load(Ordering::Acquire) {
                return Err(AdmitError::SealingStuck);
            }
            shared.sealer.relieve();
            // Sealing that gets stuck while we wait must not leave the writer waiting for ever.
            while tokio::time::timeout(SEAL_RETRY, shared.tail_bytes.wait_for_room()).await.is_err() {
                if shared.sealing_stuck.load(Ordering::Acquire) {
                    return Err(AdmitError::SealingStuck);
                }
                shared.sealer.relieve();
            }
        }
        let bytes = body_sizes.into_iter().map(Wal::entry_bytes).sum();
        Ok(shared.wal.admit(bytes).await?)
    }

    /// Resolves when a WAL entry is durable (LOG-2). Cancel safe.
    ///
    /// # Errors
    /// When the WAL failed; then nothing may be acknowledged.
    pub fn durable(&self, seq: WalSeq) -> impl Future<Output = Result<(), WalError>> + Send + 'static + use<> {
        self.inner.shared.wal.durable(seq)
    }

    /// Makes a topic. It is usable when this returns, and there after a crash. Blocks.
    ///
    /// # Errors
    /// [`TopicError`].
    pub fn create_topic(&self, spec: TopicSpec) -> Result<Arc<TopicInfo>, TopicError> {
        check_partition_count(spec.partitions, 1)?;
        let _change = self.inner.change.lock();
        if self.topics().by_name(spec.name.as_str()).is_some() {
            return Err(TopicError::Exists(spec.name));
        }
        let record = TopicRecord {
            id: TopicId::random(),
            name: spec.name,
            partitions: spec.partitions,
            configs: spec.configs,
            internal: spec.internal,
            created_ms: self.inner.shared.clock.now_ms(),
        };
        let topic = Arc::new(TopicInfo::resolve(record, &self.inner.config())?);
        let batch = MetaBatch::new().put(manifest::topic_key(topic.id()), manifest::encode(&topic.record));
        self.inner.shared.meta.commit(batch)?;
        self.add_partitions(&topic, 0);
        self.publish(|topics| topics.with(Arc::clone(&topic)));
        // Its times may be shorter than the next look of the cleaner is away.
        self.inner.shared.cleaner_clock.relieve();
        Ok(topic)
    }

    /// Gives a topic more partitions. Blocks.
    ///
    /// # Errors
    /// [`TopicError::Partitions`] when there would not be more.
    pub fn create_partitions(&self, topic: TopicId, count: i32) -> Result<Arc<TopicInfo>, TopicError> {
        let _change = self.inner.change.lock();
        let known = self.topics().get(topic).cloned().ok_or(TopicError::Unknown(topic))?;
        check_partition_count(count, known.partitions() + 1)?;
        let record = TopicRecord { partitions: count, ..known.record.clone() };
        self.change_topic(record, known.partitions())
    }

    /// Replaces the configs set on a topic. They take effect at once. Blocks.
    ///
    /// # Errors
    /// [`TopicError::Config`] and [`TopicError::Schema`]; nothing changed then.
    pub fn alter_configs(
        &self,
        topic: TopicId,
        configs: BTreeMap<String, String>,
    ) -> Result<Arc<TopicInfo>, TopicError> {
        let _change = self.inner.change.lock();
        let known = self.topics().get(topic).cloned().ok_or(TopicError::Unknown(topic))?;
        if known.record.configs.get("weir.schema") != configs.get("weir.schema") {
            return Err(TopicError::SchemaChange(known.name().clone()));
        }
        let record = TopicRecord { configs, ..known.record.clone() };
        self.change_topic(record, known.partitions())
    }

    /// The change lock is held by the caller.
    fn change_topic(&self, record: TopicRecord, partitions_before: i32) -> Result<Arc<TopicInfo>, TopicError> {
        let topic = Arc::new(TopicInfo::resolve(record, &self.inner.config())?);
        let batch = MetaBatch::new().put(manifest::topic_key(topic.id()), manifest::encode(&topic.record));
        self.inner.shared.meta.commit(batch)?;
        for partition in self.partitions(&topic) {
            partition.set_topic(Arc::clone(&topic));
        }
        self.add_partitions(&topic, partitions_before);
        self.publish(|topics| topics.with(Arc::clone(&topic)));
        // Its times may be shorter than the next look of the cleaner is away.
        self.inner.shared.cleaner_clock.relieve();
        Ok(topic)
    }

    fn add_partitions(&self, topic: &Arc<TopicInfo>, first: i32) {
        for index in first..topic.partitions() {
            let id = PartitionId { topic: topic.id(), index };
            let recovered = Recovered::new_partition();
            let partition =
                Partition::recover(Arc::clone(&self.inner.shared), Arc::clone(topic), id, recovered, Vec::new())
                    .expect("a partition without segments has nothing that could fail to open");
            self.inner.partitions.insert(id, partition);
        }
    }

    fn publish(&self, change: impl FnOnce(&Topics) -> Topics) {
        let mut topics = self.inner.topics.write();
        *topics = Arc::new(change(&topics));
    }

    /// Deletes a topic and its data. Appends on their way are refused, parked readers wake. Blocks.
    ///
    /// # Errors
    /// [`TopicError::Unknown`]; [`TopicError::Io`] when files stay behind that nobody names any more.
    pub fn delete_topic(&self, topic: TopicId) -> Result<(), TopicError> {
        let _change = self.inner.change.lock();
        let known = self.topics().get(topic).cloned().ok_or(TopicError::Unknown(topic))?;
        let mut batch = MetaBatch::new().delete(manifest::topic_key(topic));
        for prefix in manifest::topic_prefixes(topic) {
            for (key, _) in self.inner.shared.meta.scan_prefix(prefix.as_bytes())? {
                batch = batch.delete(key);
            }
        }
        self.inner.shared.meta.commit(batch)?;
        self.publish(|topics| topics.without(topic));
        for index in 0..known.partitions() {
            if let Some((_, partition)) = self.inner.partitions.remove(&PartitionId { topic, index }) {
                partition.close();
            }
        }
        match std::fs::remove_dir_all(topic_directory(&self.inner.shared, &known)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// A producer id that nobody had before and nobody will have again. Blocks once per thousand.
    ///
    /// # Errors
    /// [`MetaError`] when the block could not be stored.
    pub fn next_producer_id(&self) -> Result<i64, MetaError> {
        let mut ids = self.inner.change.lock();
        if ids.next == ids.block_end {
            let meta = &self.inner.shared.meta;
            let stored = meta.get(manifest::PRODUCER_IDS.as_bytes())?;
            let start = stored.and_then(|value| std::str::from_utf8(&value).ok()?.parse::<i64>().ok()).unwrap_or(0);
            let end = start + PRODUCER_ID_BLOCK;
            meta.commit(MetaBatch::new().put(manifest::PRODUCER_IDS, end.to_string()))?;
            *ids = ProducerIds { next: start, block_end: end };
        }
        ids.next += 1;
        Ok(ids.next - 1)
    }

    /// Seals every partition of a topic now. Blocks.
    ///
    /// # Errors
    /// [`SealError`] of the first partition that could not be sealed.
    pub fn seal_topic(&self, topic: &TopicInfo) -> Result<usize, SealError> {
        let mut sealed = 0;
        for partition in self.partitions(topic) {
            sealed += usize::from(partition.seal()?.is_some());
            self.inner.ask_for_compaction(&partition);
            self.inner.ask_for_merge(&partition);
        }
        self.inner.trim_wal();
        Ok(sealed)
    }

    /// One pass of retention over every partition. A partition that fails is reported and does not keep the others. Blocks.
    pub fn retain(&self) {
        let partitions: Vec<Partition> = self.inner.partitions.iter().map(|entry| entry.value().clone()).collect();
        self.retain_partitions(&partitions);
    }

    /// One pass of retention over a topic's partitions. Blocks.
    pub fn retain_topic(&self, topic: &TopicInfo) {
        self.retain_partitions(&self.partitions(topic));
    }

    fn retain_partitions(&self, partitions: &[Partition]) {
        let producers_before = self.inner.shared.clock.now_ms() - self.inner.config().producer_id_expiration_ms;
        for partition in partitions {
            partition.expire_producers(producers_before);
            match partition.retain() {
                Ok(done) if done.deleted + done.dropped_local > 0 => {
                    tracing::info!(
                        topic = %partition.topic().name(), partition = partition.id().index,
                        deleted = done.deleted, dropped_local = done.dropped_local, "retention"
                    );
                }
                Ok(_) => {}
                Err(RetainError::Segment(error)) => {
                    tracing::warn!(%error, "a file that is no longer named stays behind")
                }
                Err(error) => tracing::warn!(partition = %partition.id(), %error, "retention will try again"),
            }
        }
        self.inner.trim_wal();
    }

    /// Stops the merger and the cleaner, which drop what they are at, and the sealer, and syncs the WAL. Seals nothing. Blocks.
    ///
    /// # Errors
    /// When the WAL failed.
    pub fn close(&self) -> Result<(), WalError> {
        let shared = &self.inner.shared;
        for queue in [&shared.merger, &shared.cleaner_clock, &shared.compactor, &shared.sealer] {
            queue.stop();
        }
        self.inner.cleaner.join();
        for (name, thread) in [("merger", &self.inner.merger), ("sealer", &self.inner.sealer)] {
            if let Some(handle) = thread.lock().take()
                && handle.join().is_err()
            {
                tracing::error!("the {name} had panicked");
            }
        }
        self.inner.shared.wal.close()
    }
}

impl Inner {
    /// Settles what a partition had set aside, and seals its tail. When it was only asked to settle, the tail is left: it is
    /// not to be sealed in small pieces on that account. Says whether all went well.
    fn look_after(&self, id: PartitionId) -> bool {
        let Some(partition) = self.partitions.get(&id).map(|entry| entry.value().clone()) else { return true };
        let stuck = self.shared.sealing_stuck.load(Ordering::Acquire);
        let only_settles = partition.has_undecided() && !partition.is_large() && !stuck;
        let settled = self.settle(&partition);
        (only_settles || self.seal(&[id], Stretch::Decided)) && settled
    }

    /// Settles what a partition had set aside, as far as it is decided; says whether that went well.
    fn settle(&self, partition: &Partition) -> bool {
        match partition.settle() {
            Ok(settled) => {
                if settled > 0 {
                    self.ask_for_merge(partition);
                }
                true
            }
            Err(SealError::Segment(error)) if error.is_corrupt() => {
                // Every try would read up to the damage again. The next marker, or the next start, tries it once more.
                Counters::add(&self.shared.counters.seal_failures, 1);
                tracing::error!(partition = %partition.id(), %error, "a stretch that was set aside is damaged; it stays as it is");
                true
            }
            Err(error) => {
                Counters::add(&self.shared.counters.seal_failures, 1);
                tracing::warn!(%error, "what a transaction held up was not settled and will be tried again");
                self.shared.sealer.ask(partition.id());
                false
            }
        }
    }

    /// Seals partitions together; says whether that went well.
    fn seal(&self, ids: &[PartitionId], stretch: Stretch) -> bool {
        let known = ids.iter().filter_map(|id| self.partitions.get(id).map(|entry| entry.value().clone()));
        let partitions: Vec<Partition> = known.collect();
        let sealed = seal_together(&self.shared, &partitions, stretch);
        self.trim_wal();
        for partition in &partitions {
            self.ask_for_compaction(partition);
            self.ask_for_merge(partition);
        }
        let Err(error) = sealed else {
            self.shared.sealing_stuck.store(false, Ordering::Release);
            return true;
        };
        Counters::add(&self.shared.counters.seal_failures, 1);
        self.shared.sealing_stuck.store(true, Ordering::Release);
        tracing::warn!(%error, "sealing failed and will be tried again; the rows stay in the WAL");
        ids.iter().for_each(|id| self.shared.sealer.ask(*id));
        false
    }

    fn ask_for_merge(&self, partition: &Partition) {
        if partition.merge_is_due() {
            self.shared.merger.ask(partition.id());
        }
    }

    /// Merges one run of a partition's segments, and asks for the next.
    fn merge(&self, id: PartitionId) -> Result<(), MergeError> {
        let Some(partition) = self.partitions.get(&id).map(|entry| entry.value().clone()) else { return Ok(()) };
        match partition.merge()? {
            Merge::Done(_) | Merge::Overtaken => self.ask_for_merge(&partition),
            Merge::NotDue => {}
        }
        Ok(())
    }

    /// Brings the tail back under its budget, the largest partitions first, and the WAL under its limit, the partitions that
    /// pin its oldest files first.
    fn relieve(&self) -> bool {
        while self.shared.tail_bytes.is_over() {
            let before = self.shared.tail_bytes.used();
            let largest = self.largest(before.saturating_sub(self.shared.tail_bytes.relieved()));
            if !self.seal(&largest, Stretch::Decided) {
                return false;
            }
            if self.shared.tail_bytes.used() >= before && !self.seal(&largest, Stretch::HeldUp) {
                return false;
            }
            // Nothing durable to write yet: the writers that are in flight will ask again.
            if self.shared.tail_bytes.used() >= before {
                break;
            }
        }
        let limit = self.wal_limit();
        while self.shared.wal.size_bytes() > limit {
            let before = self.shared.wal.oldest_seq();
            let oldest = self.oldest();
            if oldest.is_empty() {
                break;
            }
            if !self.seal(&oldest, Stretch::Decided) {
                return false;
            }
            if self.shared.wal.oldest_seq() <= before && !self.seal(&oldest, Stretch::HeldUp) {
                return false;
            }
            if self.shared.wal.oldest_seq() <= before {
                break;
            }
        }
        true
    }

    fn wal_limit(&self) -> u64 {
        let config = self.config();
        let by_tail = config.weir_tail_bytes.unsigned_abs() * WAL_TAIL_RATIO;
        by_tail.max(config.weir_wal_segment_bytes.unsigned_abs() * 4)
    }

    /// The partitions with the largest tails, as many as hold `bytes` together, at most one commit's worth.
    fn largest(&self, bytes: usize) -> Vec<PartitionId> {
        let mut tails: Vec<(usize, PartitionId)> = self
            .partitions
            .iter()
            .map(|entry| (entry.value().tail_size(), *entry.key()))
            .filter(|tail| tail.0 > 0)
            .collect();
        tails.sort_unstable_by(|one, other| other.cmp(one));
        let mut held = 0;
        let enough = |(size, _): &(usize, PartitionId)| {
            let more = held < bytes;
            held += size;
            more
        };
        tails.into_iter().take(SEAL_TOGETHER).take_while(enough).map(|(_, id)| id).collect()
    }

    /// The partitions whose unsealed rows lie in the oldest part of the WAL, at most one commit's worth.
    fn oldest(&self) -> Vec<PartitionId> {
        let unsealed =
            self.partitions.iter().filter_map(|entry| entry.value().oldest_unsealed().map(|seq| (seq, *entry.key())));
        let mut unsealed: Vec<(WalSeq, PartitionId)> = unsealed.collect();
        unsealed.sort_unstable();
        unsealed.into_iter().take(SEAL_TOGETHER).map(|(_, id)| id).collect()
    }

    /// Gives up the WAL below the oldest entry that only a tail holds.
    fn trim_wal(&self) {
        // Taken first: an entry pushed after it is above it, one pushed before is in its partition's tail once that
        // partition's lock was had.
        let mut below = self.shared.wal.next_seq();
        for entry in &self.partitions {
            if let Some(seq) = entry.value().oldest_unsealed() {
                below = below.min(seq);
            }
        }
        if let Err(error) = self.shared.wal.trim(below) {
            tracing::warn!(%error, "a WAL file stays behind; the next trim tries again");
        }
    }
}

fn check_partition_count(asked: i32, least: i32) -> Result<(), TopicError> {
    if (least..=MAX_PARTITIONS).contains(&asked) {
        Ok(())
    } else {
        Err(TopicError::Partitions { asked, least, most: MAX_PARTITIONS })
    }
}

fn wal_config(config: &BrokerConfig, on_fatal: Option<OnFatal>) -> WalConfig {
    let sync = match config.weir_wal_sync {
        WalSync::Group => SyncPolicy::Group,
        WalSync::Interval => SyncPolicy::Interval(config.weir_wal_sync_interval_ms.unsigned_abs()),
        WalSync::None => SyncPolicy::None,
    };
    let defaults = WalConfig::default();
    WalConfig {
        segment_bytes: config.weir_wal_segment_bytes.unsigned_abs(),
        sync,
        on_fatal: on_fatal.unwrap_or_else(|| Arc::clone(&defaults.on_fatal)),
        ..defaults
    }
}

fn load_topics(meta: &dyn MetaStore, config: &BrokerConfig) -> Result<Topics, OpenError> {
    let mut topics = Topics::default();
    for (key, value) in meta.scan_prefix(manifest::TOPICS.as_bytes())? {
        let record: TopicRecord = manifest::decode(&String::from_utf8_lossy(&key), &value)?;
        let name = record.name.to_string();
        let topic =
            TopicInfo::resolve(record, config).map_err(|source| OpenError::Topic { name, source: Box::new(source) })?;
        topics = topics.with(Arc::new(topic));
    }
    Ok(topics)
}

/// Everything the store says of partitions, in three scans rather than three look-ups per partition.
fn load_manifests(meta: &dyn MetaStore) -> Result<HashMap<PartitionId, Recovered>, OpenError> {
    let mut manifests: HashMap<PartitionId, Recovered> = HashMap::new();
    for (key, value) in meta.scan_prefix(b"partition/")? {
        let (id, key) = partition_of(&key)?;
        let record: PartitionRecord = manifest::decode(&key, &value)?;
        manifests.entry(id).or_insert_with(Recovered::new_partition).record = record;
    }
    for (key, value) in meta.scan_prefix(b"segment/")? {
        let (id, key) = partition_of(&key)?;
        let record: SegmentRecord = manifest::decode(&key, &value)?;
        manifests.entry(id).or_insert_with(Recovered::new_partition).segments.push(record);
    }
    for (key, value) in meta.scan_prefix(b"producers/")? {
        let (id, key) = partition_of(&key)?;
        manifests.entry(id).or_insert_with(Recovered::new_partition).producers = manifest::decode(&key, &value)?;
    }
    Ok(manifests)
}

/// The partition that a key of the form `<kind>/<topic id>/<index>...` speaks of.
fn partition_of(key: &[u8]) -> Result<(PartitionId, String), DecodeError> {
    let text = String::from_utf8_lossy(key).into_owned();
    match manifest::partition_of(&text) {
        Some(id) => Ok((id, text)),
        None => Err(DecodeError { key: text, reason: "it names no partition".to_owned() }),
    }
}

fn cluster_id(meta: &dyn MetaStore) -> Result<String, OpenError> {
    if let Some(known) = meta.get(manifest::CLUSTER.as_bytes())? {
        return Ok(String::from_utf8_lossy(&known).into_owned());
    }
    let fresh = TopicId::random().to_string();
    meta.commit(MetaBatch::new().put(manifest::CLUSTER, fresh.clone()))?;
    Ok(fresh)
}
