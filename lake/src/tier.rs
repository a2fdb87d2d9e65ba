//! Tiering: pouring what a topic has below its last stable offset into its table.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use async_trait::async_trait;
use iceberg::TableIdent;
use iceberg::spec::DataFile;
use parking_lot::Mutex;
use weir_model::{Clock, Offset, PartitionId, TopicId, TopicName};
use weir_storage::ColumnsRead;
use weir_table::TableSchema;

use crate::catalog::rest::CatalogHooks;
use crate::catalog::{CatalogError, LakeCatalog, LoadedTable, NAMESPACE, topic_table};
use crate::commit::{Committer, Marker, PlannedRange};
use crate::convert::TableMapping;
use crate::schema::{LOG_OFFSET, TableKind};
use crate::store::LakeStore;
use crate::write::{PartitionWriter, WriteOptions};
use crate::{LakeError, LakeStorage};

/// A topic whose rows go to the lake.
#[derive(Clone, Debug)]
pub struct TierTopic {
    /// Its incarnation.
    pub id: TopicId,
    /// Its name, which is the table's too.
    pub name: TopicName,
    /// Its columns.
    pub schema: TableSchema,
    /// Number of partitions.
    pub partitions: i32,
}

/// What can be poured of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierBounds {
    /// First offset of the log. Rows below it are gone by the user's wish and are not poured.
    pub log_start: Offset,
    /// First offset that must not be poured yet (TXN-1).
    pub last_stable: Offset,
}

/// The log, as tiering sees it.
#[async_trait]
pub trait TierSource: Send + Sync + 'static {
    /// A topic that is to be tiered; `None` when it is unknown, deleted, or not for the lake.
    fn topic(&self, topic: TopicId) -> Option<TierTopic>;

    /// The topic of this name, as [`Self::topic`].
    fn topic_named(&self, name: &str) -> Option<TierTopic>;

    /// What can be poured of a partition; `None` when it is gone.
    fn bounds(&self, partition: PartitionId) -> Option<TierBounds>;

    /// Rows of the log schema from `from`, about `max_bytes` of them, none at or beyond `to`. Offsets rise; gaps are legal.
    ///
    /// # Errors
    /// [`LakeError::Source`].
    async fn read_columns(
        &self,
        partition: PartitionId,
        from: Offset,
        to: Offset,
        max_bytes: usize,
    ) -> Result<ColumnsRead, LakeError>;

    /// The table now holds every row below `ends`: committed, and read back (LAKE-2). Local copies may go.
    fn poured(&self, topic: TopicId, ends: &BTreeMap<i32, Offset>);
}

/// How much is poured at once.
#[derive(Clone, Copy, Debug)]
pub struct TierOptions {
    /// How files are cut.
    pub write: WriteOptions,
    /// Rows asked of the log at once, in bytes of Arrow.
    pub read_bytes: usize,
    /// Rows in one commit at most, in bytes of Arrow; a larger backlog takes several commits.
    pub commit_bytes: usize,
}

impl Default for TierOptions {
    fn default() -> Self {
        Self { write: WriteOptions::default(), read_bytes: 8 << 20, commit_bytes: 2 << 30 }
    }
}

/// What a call of [`Tierer::pour`] led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierReport {
    /// End offset of each partition in the table. Empty before the first row.
    pub ends: BTreeMap<i32, Offset>,
    /// Rows that this call added.
    pub rows: u64,
    /// Commits that this call made.
    pub commits: u32,
}

/// Pours topics into their tables. One per broker; calls for one topic run one after the other.
pub struct Tierer {
    catalog: Arc<dyn LakeCatalog>,
    store: Arc<dyn LakeStore>,
    storage: LakeStorage,
    clock: Arc<dyn Clock>,
    source: Arc<dyn TierSource>,
    options: TierOptions,
    /// Never grows beyond the topics there are: a topic that is gone leaves with [`Self::forget`].
    lanes: Mutex<HashMap<TopicId, Arc<Lane>>>,
}

/// One topic's turn-taking.
#[derive(Default)]
struct Lane {
    committer: tokio::sync::Mutex<Option<Committer>>,
    /// Number of the last pour that began.
    begun: AtomicU64,
    /// Number of the last pour that ended well.
    ended: AtomicU64,
}

impl Tierer {
    /// A tierer of these topics into this catalog.
    pub fn new(
        catalog: Arc<dyn LakeCatalog>,
        store: Arc<dyn LakeStore>,
        storage: LakeStorage,
        clock: Arc<dyn Clock>,
        source: Arc<dyn TierSource>,
        options: TierOptions,
    ) -> Self {
        Self { catalog, store, storage, clock, source, options, lanes: Mutex::default() }
    }

    /// Pours everything that lies below the last stable offsets when the call begins, and returns when it can be read from
    /// the table. Cancel safe: the next call settles what a dropped one left.
    ///
    /// # Errors
    /// Any [`LakeError`]; rows stay in the log until a later call succeeds.
    pub async fn pour(&self, topic: TopicId) -> Result<TierReport, LakeError> {
        let lane = self.lane(topic);
        let mut committer = lane.committer.lock().await;
        self.pour_in(&lane, &mut committer, topic).await
    }

    /// As [`Self::pour`], but satisfied by another call's pour if that began after this call: a thousand readers that load a
    /// table at once cause one commit or two.
    ///
    /// # Errors
    /// As [`Self::pour`].
    pub async fn pour_fresh(&self, topic: TopicId) -> Result<(), LakeError> {
        let lane = self.lane(topic);
        let seen = lane.begun.load(Ordering::SeqCst);
        let mut committer = lane.committer.lock().await;
        if lane.ended.load(Ordering::SeqCst) > seen {
            return Ok(());
        }
        self.pour_in(&lane, &mut committer, topic).await.map(|_| ())
    }

    /// Forgets a topic that is gone. Its table stays.
    pub fn forget(&self, topic: TopicId) {
        self.lanes.lock().remove(&topic);
    }

    fn lane(&self, topic: TopicId) -> Arc<Lane> {
        Arc::clone(self.lanes.lock().entry(topic).or_default())
    }

    async fn pour_in(
        &self,
        lane: &Lane,
        committer: &mut Option<Committer>,
        id: TopicId,
    ) -> Result<TierReport, LakeError> {
        let number = lane.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let Some(topic) = self.source.topic(id) else {
            self.forget(id);
            return Ok(TierReport::default());
        };
        if committer.is_none() {
            let opened = Committer::open(
                Arc::clone(&self.catalog),
                Arc::clone(&self.store),
                self.storage.clone(),
                Arc::clone(&self.clock),
                topic_table(topic.name.as_str()),
                id,
            );
            *committer = Some(opened.await?);
        }
        let committer = committer.as_ref().expect("the committer was just opened");
        let targets: Vec<(i32, TierBounds)> = (0..topic.partitions)
            .filter_map(|index| Some((index, self.source.bounds(PartitionId { topic: id, index })?)))
            .collect();
        let mut report = TierReport::default();
        loop {
            committer.settle().await?;
            let step = self.step(committer, &topic, &targets).await?;
            report.ends = step.ends;
            report.rows += step.rows;
            report.commits += u32::from(step.committed);
            self.source.poured(id, &report.ends);
            if !step.more {
                break;
            }
        }
        lane.ended.store(number, Ordering::SeqCst);
        Ok(report)
    }

    /// One commit, if there is anything to commit.
    async fn step(
        &self,
        committer: &Committer,
        topic: &TierTopic,
        targets: &[(i32, TierBounds)],
    ) -> Result<Step, LakeError> {
        let kind = if topic.schema.is_raw() { TableKind::Raw } else { TableKind::Columns };
        let log = topic.schema.log_schema();
        let (table, marker) = committer.prepare(kind, &log).await?;
        let todo: Vec<Todo> =
            targets.iter().filter_map(|(partition, bounds)| Todo::of(*partition, bounds, &marker)).collect();
        if todo.is_empty() {
            return Ok(Step { ends: to_offsets(&marker.ends), ..Step::default() });
        }
        let schema = table.metadata.current_schema();
        let mapping = Arc::new(TableMapping::new(topic.name.as_str(), kind, schema, &log)?);
        let pending = committer.begin(&table).await?;
        let folder = pending.data_folder();
        let mut budget = self.options.commit_bytes;
        let (mut ranges, mut files, mut more) = (Vec::new(), Vec::new(), false);
        for todo in todo {
            if budget == 0 {
                more = true;
                break;
            }
            let written = self.write_partition(topic, &table, &mapping, &folder, &todo, &mut budget).await?;
            more |= written.end < todo.target;
            ranges.push(PlannedRange { partition: todo.partition, start: todo.start, end: written.end });
            files.extend(written.files);
        }
        // A stretch that has no rows (its transactions were aborted, or empty) is committed like any other: the marker is
        // where the next stretch begins, and until it moves the topic lags behind for ever.
        let rows = files.iter().map(DataFile::record_count).sum();
        match committer.commit(pending, &table, &marker, ranges, files).await? {
            Some(poured) => {
                tracing::info!(topic = topic.name.as_str(), rows, snapshot_id = poured.snapshot_id, "poured");
                Ok(Step { ends: to_offsets(&poured.ends), rows, committed: true, more })
            }
            None => Ok(Step { ends: to_offsets(&marker.ends), rows: 0, committed: false, more: true }),
        }
    }

    async fn write_partition(
        &self,
        topic: &TierTopic,
        table: &LoadedTable,
        mapping: &Arc<TableMapping>,
        folder: &str,
        todo: &Todo,
        budget: &mut usize,
    ) -> Result<WrittenPartition, LakeError> {
        let partition = PartitionId { topic: topic.id, index: todo.partition };
        let mut writer = PartitionWriter::new(
            self.storage.clone(),
            Arc::clone(mapping),
            table.metadata.current_schema().clone(),
            folder,
            todo.partition,
            self.options.write,
        );
        let mut at = todo.read_from;
        while at < todo.target && *budget > 0 {
            let (from, to) = (to_offset(at), to_offset(todo.target));
            let read = self.source.read_columns(partition, from, to, self.options.read_bytes).await?;
            for batch in &read.batches {
                at = check_order(partition, batch, at, todo.target)?;
                writer.write(batch).await?;
                *budget = budget.saturating_sub(batch.get_array_memory_size().max(1));
            }
            let next = read.next.get().min(todo.target);
            if next <= from.get() || next < at {
                return Err(LakeError::Source(format!(
                    "partition {} stopped at offset {at} below {}, which its log says it has",
                    todo.partition, todo.target
                )));
            }
            at = next;
        }
        Ok(WrittenPartition { end: at, files: writer.finish().await? })
    }
}

/// A stretch to pour: the range begins where the table ends; rows begin where the log does.
struct Todo {
    partition: i32,
    start: i64,
    read_from: i64,
    target: i64,
}

impl Todo {
    fn of(partition: i32, bounds: &TierBounds, marker: &Marker) -> Option<Self> {
        let (log_start, target) = (bounds.log_start.get(), bounds.last_stable.get());
        let start = marker.ends.get(&partition).copied().unwrap_or(log_start);
        let read_from = start.max(log_start);
        (read_from < target).then_some(Self { partition, start, read_from, target })
    }
}

struct WrittenPartition {
    end: i64,
    files: Vec<DataFile>,
}

#[derive(Default)]
struct Step {
    ends: BTreeMap<i32, Offset>,
    rows: u64,
    committed: bool,
    more: bool,
}

/// Checks on the way in what the reader will rely on: rows in order, inside the range (LAKE-1). Returns the next offset.
fn check_order(partition: PartitionId, batch: &RecordBatch, from: i64, to: i64) -> Result<i64, LakeError> {
    let offsets = batch.column_by_name(LOG_OFFSET).and_then(|column| column.as_primitive_opt::<Int64Type>());
    let Some(offsets) = offsets else {
        return Err(LakeError::Source(format!("rows of partition {} have no offsets", partition.index)));
    };
    let values = offsets.values();
    let rises = values.windows(2).all(|pair| pair[0] < pair[1]);
    match (values.first(), values.last()) {
        (Some(&first), Some(&last)) if rises && offsets.null_count() == 0 && first >= from && last < to => Ok(last + 1),
        (None, _) => Ok(from),
        (first, last) => Err(LakeError::Source(format!(
            "LAKE-1: rows {first:?} to {last:?} of partition {}, where {from}..{to} was asked in order",
            partition.index
        ))),
    }
}

fn to_offset(value: i64) -> Offset {
    Offset::new(value).unwrap_or(Offset::ZERO)
}

fn to_offsets(ends: &BTreeMap<i32, i64>) -> BTreeMap<i32, Offset> {
    ends.iter().map(|(&partition, &end)| (partition, to_offset(end))).collect()
}

/// Pours a topic before its table is loaded through the catalog, so that every engine reads rows that are seconds old.
pub struct PourOnLoad {
    tierer: Arc<Tierer>,
    limit: Duration,
}

impl PourOnLoad {
    /// Loads wait for the pour at most this long, and then show what was committed before.
    pub fn new(tierer: Arc<Tierer>, limit: Duration) -> Self {
        Self { tierer, limit }
    }
}

#[async_trait]
impl CatalogHooks for PourOnLoad {
    async fn before_load(&self, table: &TableIdent) -> Result<(), CatalogError> {
        if table.namespace.as_ref().as_slice() != [NAMESPACE] {
            return Ok(());
        }
        let Some(topic) = self.tierer.source.topic_named(&table.name) else { return Ok(()) };
        let tierer = Arc::clone(&self.tierer);
        // Its own task: a load that gives up must not waste a half-written pour.
        let pour = tokio::spawn(async move { tierer.pour_fresh(topic.id).await });
        match tokio::time::timeout(self.limit, pour).await {
            Ok(Ok(Ok(()))) => {}
            // Rows of a topic that is gone must not pass for those of the one that has its name now.
            Ok(Ok(Err(error @ LakeError::OtherTopic { .. }))) => return Err(CatalogError::Refused(error.to_string())),
            Ok(Ok(Err(error))) => tracing::warn!(%table, %error, "rows produced lately are missing from this load"),
            Ok(Err(error)) => tracing::error!(%table, %error, "a pour ended early"),
            Err(_) => tracing::info!(%table, "a load went on without the rows produced lately; the pour goes on"),
        }
        Ok(())
    }

    fn is_live(&self, topic: TopicId) -> bool {
        self.tierer.source.topic(topic).is_some()
    }
}

#[cfg(test)]
mod tests;
