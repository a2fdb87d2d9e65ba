//! A log in memory, a lake in memory, and what must hold between them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use iceberg::io::FileIO;
use iceberg::spec::{
    MAIN_BRANCH, ManifestListWriter, ManifestWriterBuilder, Operation, Snapshot, SnapshotReference, SnapshotRetention,
    Summary,
};
use iceberg::{TableRequirement, TableUpdate};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use weir_model::{ManualClock, SystemClock};
use weir_storage::ColdTier;

use super::super::*;
use super::faults::{Faults, FaultyCatalog, FaultyObjects, FaultyStore, Moment};
use crate::catalog::TableChange;
use crate::cold::{ColdOptions, ColdReader};
use crate::commit::snapshot::current_manifests;
use crate::convert::test_system_columns;
use crate::store::MemoryLakeStore;
use crate::write::data_file;
use crate::{EmbeddedCatalog, MetaLakeStore};

const ROOT: &str = "memory:///lake";
const PARTITIONS: i32 = 2;

/// A topic `orders`.
pub(super) struct MemoryLog {
    state: Mutex<LogState>,
    reads: AtomicUsize,
}

struct LogState {
    id: TopicId,
    schema: TableSchema,
    rows: Vec<Vec<RecordBatch>>,
    ends: Vec<i64>,
    poured: BTreeMap<i32, Offset>,
}

impl MemoryLog {
    fn new() -> Arc<Self> {
        let schema = TableSchema::parse_sql("id BIGINT NOT NULL, item STRING, a STRING, b STRING, c STRING");
        Arc::new(Self {
            state: Mutex::new(LogState {
                id: TopicId::random(),
                schema: schema.expect("a schema"),
                rows: vec![Vec::new(); usize::try_from(PARTITIONS).expect("small")],
                ends: vec![0; usize::try_from(PARTITIONS).expect("small")],
                poured: BTreeMap::new(),
            }),
            reads: AtomicUsize::new(0),
        })
    }

    pub(super) fn append(&self, partition: usize, rows: usize) {
        let mut state = self.state.lock();
        let start = state.ends[partition];
        let mut columns = test_system_columns(start, rows);
        let ids = start..start + i64::try_from(rows).expect("small");
        let text = |salt: i64| -> ArrayRef {
            Arc::new(StringArray::from_iter(ids.clone().map(|id| {
                let noise = id.wrapping_mul(0x9E37_79B9_7F4A_7C15u64.cast_signed()).rotate_left(17) ^ salt;
                (id % 7 != 0).then(|| format!("{noise:x}"))
            })))
        };
        columns.push(Arc::new(Int64Array::from_iter_values(ids.clone())));
        columns.extend((1..=4).map(text));
        let log = state.schema.log_schema();
        for field in log.fields().iter().skip(columns.len()) {
            columns
                .push(Arc::new(StringArray::from_iter_values(ids.clone().map(|id| format!("{}{id}", field.name())))));
        }
        let batch = RecordBatch::try_new(log, columns).expect("a batch");
        state.rows[partition].push(batch);
        state.ends[partition] = ids.end;
    }

    /// Offsets without rows: aborted ones, and markers.
    pub(super) fn append_gap(&self, partition: usize, offsets: i64) {
        self.state.lock().ends[partition] += offsets;
    }

    pub(super) fn make_again(&self) {
        let mut state = self.state.lock();
        state.id = TopicId::random();
        state.rows.iter_mut().for_each(Vec::clear);
        state.ends.iter_mut().for_each(|end| *end = 0);
        state.poured.clear();
    }

    pub(super) fn add_column(&self) {
        let mut state = self.state.lock();
        let sql = format!("{}, note STRING NOT NULL", state.schema.to_sql());
        state.schema = TableSchema::parse_sql(&sql).expect("a schema");
    }

    pub(super) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    fn all(&self, partition: usize) -> Option<RecordBatch> {
        let state = self.state.lock();
        let first = state.rows[partition].first()?;
        Some(concat_batches(&first.schema(), &state.rows[partition]).expect("one schema"))
    }
}

#[async_trait]
impl TierSource for MemoryLog {
    fn topic(&self, topic: TopicId) -> Option<TierTopic> {
        self.topic_named("orders").filter(|found| found.id == topic)
    }

    fn topic_named(&self, name: &str) -> Option<TierTopic> {
        let state = self.state.lock();
        (name == "orders").then(|| TierTopic {
            id: state.id,
            name: TopicName::new("orders").expect("a legal name"),
            schema: state.schema.clone(),
            partitions: PARTITIONS,
        })
    }

    fn bounds(&self, partition: PartitionId) -> Option<TierBounds> {
        let index = usize::try_from(partition.index).ok()?;
        let end = *self.state.lock().ends.get(index)?;
        Some(TierBounds { log_start: Offset::ZERO, last_stable: Offset::new(end)? })
    }

    async fn read_columns(
        &self,
        partition: PartitionId,
        from: Offset,
        to: Offset,
        max_bytes: usize,
    ) -> Result<ColumnsRead, LakeError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let index = usize::try_from(partition.index).expect("a partition");
        let state = self.state.lock();
        let (mut batches, mut next) = (Vec::new(), to.get());
        for batch in &state.rows[index] {
            let offsets = batch.column(0).as_primitive::<Int64Type>();
            let start = offsets.values().partition_point(|&offset| offset < from.get());
            let end = offsets.values().partition_point(|&offset| offset < to.get());
            if start < end {
                // About 300 bytes each.
                let count = (end - start).min((max_bytes / 300).max(1));
                batches.push(batch.slice(start, count));
                next = offsets.value(start + count - 1) + 1;
                break;
            }
        }
        Ok(ColumnsRead { batches, next: Offset::new(next).expect("an offset") })
    }

    fn poured(&self, _topic: TopicId, ends: &BTreeMap<i32, Offset>) {
        let mut state = self.state.lock();
        for (&partition, &end) in ends {
            let log_end = state.ends[usize::try_from(partition).expect("a partition")];
            assert!(end.get() <= log_end, "LAKE-2: {end} was read back where the log ends at {log_end}");
            let known = state.poured.insert(partition, end);
            assert!(known.is_none_or(|known| known <= end), "an end went back");
        }
    }
}

/// The parts of a broker around one lake.
pub(super) struct World {
    pub(super) log: Arc<MemoryLog>,
    pub(super) storage: LakeStorage,
    pub(super) catalog: Arc<dyn LakeCatalog>,
    pub(super) faults: Arc<Faults>,
    pub(super) clock: Arc<ManualClock>,
    objects: Arc<dyn ObjectStore>,
    pub(super) store: Arc<dyn LakeStore>,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::over(LakeStorage::with_store(Arc::new(InMemory::new()), ROOT)).await
    }

    /// A world whose lake is `storage`.
    pub(super) async fn over(storage: LakeStorage) -> Self {
        let objects = Arc::clone(storage.store());
        let store: Arc<dyn LakeStore> = Arc::new(MemoryLakeStore::default());
        let catalog = EmbeddedCatalog::open(Arc::clone(&store), storage.clone()).await.expect("opens");
        let faults = Faults::new(i64::MAX, Moment::Before, false);
        let clock = Arc::new(ManualClock::new(SystemClock.now_ms()));
        Self { log: MemoryLog::new(), storage, catalog: Arc::new(catalog), faults, clock, objects, store }
    }

    /// Another process over the same stores that dies at its `at`th operation.
    pub(super) async fn dying_at(&self, at: i64, moment: Moment) -> Self {
        self.faulty(Faults::new(at, moment, true)).await
    }

    /// Another process over the same stores, one of whose operations fails.
    pub(super) async fn failing_once_at(&self, at: i64, moment: Moment) -> Self {
        self.faulty(Faults::new(at, moment, false)).await
    }

    async fn faulty(&self, faults: Arc<Faults>) -> Self {
        let objects: Arc<dyn ObjectStore> = Arc::new(FaultyObjects(Arc::clone(&self.objects), Arc::clone(&faults)));
        let storage = LakeStorage::with_store(Arc::clone(&objects), ROOT);
        let quiet = EmbeddedCatalog::open(Arc::clone(&self.store), storage.clone()).await.expect("opens");
        let catalog = FaultyCatalog(Arc::new(quiet), Arc::clone(&faults));
        let store = FaultyStore(Arc::clone(&self.store), Arc::clone(&faults));
        Self {
            log: Arc::clone(&self.log),
            storage,
            catalog: Arc::new(catalog),
            faults,
            clock: Arc::clone(&self.clock),
            objects,
            store: Arc::new(store),
        }
    }

    pub(super) fn topic(&self) -> TopicId {
        self.log.topic_named("orders").expect("the topic").id
    }

    pub(super) fn tierer(&self) -> Tierer {
        self.tierer_with(TierOptions::default())
    }

    pub(super) fn tierer_with(&self, options: TierOptions) -> Tierer {
        Tierer::new(
            Arc::clone(&self.catalog),
            Arc::clone(&self.store),
            self.storage.clone(),
            Arc::clone(&self.clock) as Arc<dyn Clock>,
            Arc::clone(&self.log) as Arc<dyn TierSource>,
            options,
        )
    }

    pub(super) fn reader(&self) -> ColdReader {
        // Small, so that every test crosses windows.
        self.reader_with(ColdOptions { window_bytes: 256 << 10, ..ColdOptions::default() })
    }

    fn reader_with(&self, options: ColdOptions) -> ColdReader {
        let names = |_: TopicId| Some(topic_table("orders"));
        ColdReader::new(Arc::clone(&self.catalog), self.storage.clone(), Arc::new(names), options)
    }

    pub(super) async fn table(&self) -> LoadedTable {
        self.catalog.load(&topic_table("orders")).await.expect("the table")
    }

    fn schema(&self) -> TableSchema {
        self.log.topic_named("orders").expect("the topic").schema
    }

    async fn read(
        &self,
        reader: &ColdReader,
        partition: i32,
        (from, to): (i64, i64),
        projection: Option<&[usize]>,
        max_bytes: usize,
    ) -> Vec<RecordBatch> {
        let partition = PartitionId { topic: self.topic(), index: partition };
        let (mut at, to) = (Offset::new(from).expect("an offset"), Offset::new(to).expect("an offset"));
        let mut batches = Vec::new();
        while at < to {
            let read = reader
                .read_columns(partition, &self.schema(), at, to, projection, max_bytes)
                .await
                .expect("reads from the lake");
            assert!(read.next > at, "no progress at {at}");
            at = read.next;
            batches.extend(read.batches);
        }
        batches
    }

    pub(super) async fn read_all(&self, partition: i32, to: i64) -> RecordBatch {
        let batches = self.read(&self.reader(), partition, (0, to), None, 32 << 10).await;
        let nullable = |field: &arrow::datatypes::FieldRef| field.as_ref().clone().with_nullable(true);
        let fields: Vec<_> = self.schema().log_schema().fields().iter().map(nullable).collect();
        concat_batches(&Arc::new(arrow::datatypes::Schema::new(fields)), &batches).expect("one schema")
    }

    /// Reads every partition back in small and in large steps; both must be the log, each row once.
    pub(super) async fn expect_same_as_log(&self, rows: &[usize]) {
        for (partition, &count) in rows.iter().enumerate() {
            let index = i32::try_from(partition).expect("small");
            let end = i64::try_from(count).expect("small");
            let expected = self.log.all(partition);
            for max_bytes in [4 << 10, 8 << 20] {
                let batches = self.read(&self.reader(), index, (0, end), None, max_bytes).await;
                let found = concat_batches(&self.schema().log_schema(), &batches).expect("one schema");
                assert_eq!(found.num_rows(), count, "rows of partition {partition}");
                if let Some(expected) = &expected {
                    assert_eq!(&found, expected);
                }
            }
        }
        // The table says the same: no file counts twice.
        let table = self.table().await;
        let mut total = 0;
        for manifest in current_manifests(&self.storage.file_io(), &table.metadata).await.expect("manifests") {
            total += manifest.added_rows_count.unwrap_or(0) + manifest.existing_rows_count.unwrap_or(0);
        }
        assert_eq!(total, u64::try_from(rows.iter().sum::<usize>()).expect("small"), "LAKE-1");
    }

    /// Every data file and manifest in the lake is named by a snapshot.
    pub(super) async fn expect_no_orphans(&self) {
        let io = self.storage.file_io();
        let table = self.table().await;
        let mut named = BTreeSet::new();
        for snapshot in table.metadata.snapshots() {
            named.insert(snapshot.manifest_list().to_owned());
            let bytes = io.new_input(snapshot.manifest_list()).expect("input").read().await.expect("the list");
            let list = iceberg::spec::ManifestList::parse_with_version(&bytes, table.metadata.format_version());
            for manifest in list.expect("a list").entries() {
                named.insert(manifest.manifest_path.clone());
                for entry in manifest.load_manifest(&io).await.expect("a manifest").entries() {
                    named.insert(entry.file_path().to_owned());
                }
            }
        }
        let files = self.storage.list(table.metadata.location()).await.expect("lists");
        let orphans: Vec<_> =
            files.iter().filter(|file| !file.ends_with(".metadata.json") && !named.contains(*file)).collect();
        assert!(orphans.is_empty(), "orphans: {orphans:?}");
    }

    pub(super) async fn bytes_of_a_scan(&self, projection: Option<&[usize]>) -> u64 {
        let end = self.log.state.lock().ends[0];
        self.bytes_of_reads(0, end, projection, 4 << 20).await
    }

    pub(super) async fn bytes_of_reads(
        &self,
        from: i64,
        to: i64,
        projection: Option<&[usize]>,
        max_bytes: usize,
    ) -> u64 {
        let reader = self.reader_with(ColdOptions::default());
        // Metadata and footers are read once and kept; what is measured is the data.
        self.read(&reader, 0, (from, from + 1), Some(&[0]), 1).await;
        let before = self.storage.bytes_read();
        self.read(&reader, 0, (from, to), projection, max_bytes).await;
        self.storage.bytes_read() - before
    }

    /// What a compaction by somebody else does: all rows in one file, partitions mixed and out of order.
    pub(super) async fn rewrite_all_files_into_one(&self) {
        let io = self.storage.file_io();
        let table = self.table().await;
        let metadata = &table.metadata;
        let mut batches = Vec::new();
        for manifest in current_manifests(&io, metadata).await.expect("manifests") {
            for entry in manifest.load_manifest(&io).await.expect("a manifest").entries() {
                let bytes = self.storage.read(entry.file_path()).await.expect("a data file");
                let reader =
                    ParquetRecordBatchReaderBuilder::try_new(bytes).expect("parquet").build().expect("parquet");
                batches.extend(reader.map(|batch| batch.expect("rows")));
            }
        }
        batches.rotate_left(1);
        let schema = batches.first().expect("rows").schema();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, schema, None).expect("a writer");
        batches.iter().for_each(|batch| writer.write(batch).expect("writes"));
        let footer = writer.close().expect("a footer");
        let location = format!("{}/data/compacted.parquet", metadata.location());
        let size = u64::try_from(bytes.len()).expect("small");
        io.new_output(&location).expect("output").write(bytes.into()).await.expect("writes");
        let file = data_file(metadata.current_schema(), &footer, location, size).expect("a data file");
        let snapshot = self.replacing_snapshot(&io, &table, file).await;
        let snapshot_id = snapshot.snapshot_id();
        let updates = vec![
            TableUpdate::AddSnapshot { snapshot },
            TableUpdate::SetSnapshotRef {
                ref_name: MAIN_BRANCH.to_owned(),
                reference: SnapshotReference::new(
                    snapshot_id,
                    SnapshotRetention::Branch {
                        min_snapshots_to_keep: None,
                        max_snapshot_age_ms: None,
                        max_ref_age_ms: None,
                    },
                ),
            },
        ];
        crate::catalog::ownership::check_foreign(&table.ident, metadata, &updates, &io)
            .await
            .expect("compaction is allowed");
        let requirements = vec![TableRequirement::UuidMatch { uuid: metadata.uuid() }];
        let change = TableChange { ident: table.ident.clone(), requirements, updates };
        self.catalog.commit(vec![change]).await.expect("commits");
    }

    async fn replacing_snapshot(&self, io: &FileIO, table: &LoadedTable, file: iceberg::spec::DataFile) -> Snapshot {
        let metadata = &table.metadata;
        let snapshot_id = 4711;
        let output = io.new_output(format!("{}/metadata/compacted-m0.avro", metadata.location())).expect("output");
        let spec = metadata.default_partition_spec().as_ref().clone();
        let mut writer = ManifestWriterBuilder::new(output, Some(snapshot_id), metadata.current_schema().clone(), spec)
            .build_v2_data();
        writer.add_file(file, -1).expect("adds");
        let manifest = writer.write_manifest_file().await.expect("a manifest");
        let list = format!("{}/metadata/compacted-list.avro", metadata.location());
        let sequence = metadata.next_sequence_number();
        let output = io.new_output(&list).expect("output").writer().await.expect("a writer");
        let mut writer = ManifestListWriter::v2(output, snapshot_id, metadata.current_snapshot_id(), sequence);
        writer.add_manifests(std::iter::once(manifest)).expect("adds");
        writer.close().await.expect("a list");
        Snapshot::builder()
            .with_snapshot_id(snapshot_id)
            .with_parent_snapshot_id(metadata.current_snapshot_id())
            .with_sequence_number(sequence)
            .with_timestamp_ms(metadata.last_updated_ms())
            .with_manifest_list(list)
            .with_summary(Summary { operation: Operation::Replace, additional_properties: HashMap::new() })
            .with_schema_id(metadata.current_schema_id())
            .build()
    }
}

/// Keeps the adapter in the tests' sight: the broker runs on it.
#[tokio::test]
async fn the_catalog_runs_on_the_brokers_metadata_store() {
    let meta = Arc::new(weir_storage::meta::MemoryMetaStore::default());
    let store: Arc<dyn LakeStore> = Arc::new(MetaLakeStore::new(meta));
    let storage = LakeStorage::with_store(Arc::new(InMemory::new()), ROOT);
    let catalog = EmbeddedCatalog::open(store, storage).await.expect("opens");
    let namespaces = catalog.list_namespaces().await.expect("lists");
    assert_eq!(namespaces.len(), 1);
}
