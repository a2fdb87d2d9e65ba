//! [`ColdReader`]: the log's view of its table.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::{concat, concat_batches, filter, filter_record_batch, sort_to_indices, take, take_record_batch};
use arrow::datatypes::{Int64Type, SchemaRef};
use async_trait::async_trait;
use iceberg::TableIdent;
use parquet::arrow::ParquetRecordBatchStreamBuilder;
use weir_model::{Offset, PartitionId, TopicId};
use weir_storage::{ColdError, ColdTier, ColumnsRead};
use weir_table::TableSchema;

use super::footer::{FooterCache, LakeFile};
use super::index::{IndexCache, SnapshotIndex};
use super::window::{FileRead, OpenedFile, Wanted, cut};
use crate::cache::BoundedCache;
use crate::catalog::LakeCatalog;
use crate::catalog::ownership::owner;
use crate::commit::Marker;
use crate::convert::{TableMapping, positions};
use crate::schema::{LOG_TIMESTAMP, TableKind};
use crate::{LakeError, LakeStorage};

/// Limits of what a [`ColdReader`] keeps in memory (LIM-1).
#[derive(Clone, Copy, Debug)]
pub struct ColdOptions {
    /// Footers of Parquet files.
    pub footer_bytes: usize,
    /// Lists of files.
    pub index_bytes: usize,
    /// Rows decoded and not yet asked for, over all readers.
    pub ahead_bytes: usize,
    /// Rows decoded at once for one reader, in bytes before compression.
    pub window_bytes: usize,
}

impl Default for ColdOptions {
    fn default() -> Self {
        Self { footer_bytes: 64 << 20, index_bytes: 64 << 20, ahead_bytes: 128 << 20, window_bytes: 4 << 20 }
    }
}

/// Says which table holds a topic's rows.
pub trait TableNames: Send + Sync + 'static {
    /// The table of a topic; `None` for a topic that is not known.
    fn table_of(&self, topic: TopicId) -> Option<TableIdent>;
}

impl<F: Fn(TopicId) -> Option<TableIdent> + Send + Sync + 'static> TableNames for F {
    fn table_of(&self, topic: TopicId) -> Option<TableIdent> {
        self(topic)
    }
}

/// Reads old offsets back from the lake. Shared by every reader; see the module for what it keeps.
pub struct ColdReader {
    catalog: Arc<dyn LakeCatalog>,
    storage: LakeStorage,
    names: Arc<dyn TableNames>,
    options: ColdOptions,
    indexes: IndexCache,
    footers: FooterCache,
    ahead: BoundedCache<AheadKey, Ahead>,
}

/// Where a reader will read on, and what it wants there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AheadKey {
    partition: PartitionId,
    next: i64,
    columns: Option<Vec<usize>>,
}

/// Rows decoded beyond what was asked. They are valid for ever: an offset always reads the same (LOG-3).
#[derive(Clone, Debug)]
struct Ahead {
    runs: VecDeque<Rows>,
    /// Every offset below was looked at.
    end: i64,
}

/// Rows in offset order; `batch` need not have the offsets as a column.
#[derive(Clone, Debug)]
struct Rows {
    offsets: Int64Array,
    batch: RecordBatch,
    bytes_per_row: usize,
}

impl Rows {
    fn bytes(&self) -> usize {
        self.offsets.len() * self.bytes_per_row
    }

    fn slice(&self, at: usize, rows: usize) -> Self {
        Self {
            offsets: self.offsets.slice(at, rows),
            batch: self.batch.slice(at, rows),
            bytes_per_row: self.bytes_per_row,
        }
    }
}

/// A table, ready to be read.
struct Table {
    mapping: Arc<TableMapping>,
    index: Arc<SnapshotIndex>,
    /// End of the partition that is read, as the marker has it.
    end: i64,
}

impl ColdReader {
    /// A reader of the tables of one catalog.
    pub fn new(
        catalog: Arc<dyn LakeCatalog>,
        storage: LakeStorage,
        names: Arc<dyn TableNames>,
        options: ColdOptions,
    ) -> Self {
        Self {
            catalog,
            storage,
            names,
            options,
            indexes: IndexCache::new(options.index_bytes),
            footers: FooterCache::new(options.footer_bytes),
            ahead: BoundedCache::new(options.ahead_bytes),
        }
    }

    /// Bytes read from the lake's files since it was opened, footers and metadata included.
    pub fn bytes_read(&self) -> u64 {
        self.storage.bytes_read()
    }

    async fn read(
        &self,
        partition: PartitionId,
        schema: &TableSchema,
        from: i64,
        to: i64,
        projection: Option<&[usize]>,
        max_bytes: usize,
    ) -> Result<ColumnsRead, LakeError> {
        let columns = projection.map(<[usize]>::to_vec);
        let mut at = from;
        let mut ahead = self.ahead.take(&AheadKey { partition, next: from, columns: columns.clone() });
        let mut table = None;
        loop {
            let rows = match ahead.take() {
                Some(rows) => rows,
                None => {
                    if table.is_none() {
                        table = Some(self.open(partition, schema).await?);
                    }
                    let table = table.as_ref().expect("the table was just opened");
                    let to = to.min(table.end);
                    if at >= to {
                        return Ok(ColumnsRead { batches: Vec::new(), next: offset(at) });
                    }
                    let wanted = Wanted { partition: partition.index, from: at, to, min_timestamp_ms: i64::MIN };
                    self.window(table, &wanted, table.mapping.project(projection)?, max_bytes).await?
                }
            };
            let (batches, next, rest) = deal(rows, to, max_bytes);
            if let Some(rest) = rest {
                let weight = rest.runs.iter().map(Rows::bytes).sum();
                self.ahead.put(AheadKey { partition, next, columns: columns.clone() }, rest, weight);
            }
            if !batches.is_empty() || next >= to {
                return Ok(ColumnsRead { batches, next: offset(next.max(at)) });
            }
            at = next;
        }
    }

    async fn find_timestamp(
        &self,
        partition: PartitionId,
        from: i64,
        to: i64,
        timestamp_ms: i64,
    ) -> Result<Option<(Offset, i64)>, LakeError> {
        // The user's columns are not read, so any schema of the table's kind does.
        let table = self.open(partition, &TableSchema::raw()).await?;
        let position = table.mapping.log().index_of(LOG_TIMESTAMP)?;
        let projected = table.mapping.project(Some(&[position]))?;
        let to = to.min(table.end);
        let mut at = from;
        while at < to {
            let wanted = Wanted { partition: partition.index, from: at, to, min_timestamp_ms: timestamp_ms };
            let rows = self.window(&table, &wanted, Arc::clone(&projected), self.options.window_bytes).await?;
            for run in &rows.runs {
                let timestamps = run.batch.column(0).as_primitive::<Int64Type>();
                if let Some(row) = timestamps.values().iter().position(|&found| found >= timestamp_ms) {
                    return Ok(Some((offset(run.offsets.value(row)), timestamps.value(row))));
                }
            }
            at = rows.end.max(at + 1);
        }
        Ok(None)
    }

    async fn open(&self, partition: PartitionId, schema: &TableSchema) -> Result<Table, LakeError> {
        let ident = self.names.table_of(partition.topic).ok_or_else(|| {
            LakeError::Source(format!("topic id {} is not known, so its table is not either", partition.topic))
        })?;
        let table = self.catalog.load(&ident).await?;
        match owner(&table.metadata) {
            Some(found) if found == partition.topic => {}
            Some(found) => return Err(LakeError::OtherTopic { table: ident, found, expected: partition.topic }),
            None => {
                return Err(LakeError::NotOurs { table: ident, property: crate::catalog::ownership::TOPIC_ID });
            }
        }
        let marker = Marker::read(&ident, &table.metadata)?;
        let kind = if schema.is_raw() { TableKind::Raw } else { TableKind::Columns };
        let log = schema.log_schema();
        let mapping = TableMapping::new(&ident.name, kind, table.metadata.current_schema(), &log)?;
        let index = self.indexes.current(&self.storage, &table.metadata).await?;
        let end = marker.ends.get(&partition.index).copied().unwrap_or(0);
        Ok(Table { mapping: Arc::new(mapping), index, end })
    }

    /// Decodes the next window. Its end lies beyond `wanted.from`, also when no row lies in it.
    async fn window(
        &self,
        table: &Table,
        wanted: &Wanted,
        projected: SchemaRef,
        max_bytes: usize,
    ) -> Result<Ahead, LakeError> {
        let mut files = table.index.files(wanted.partition, wanted.from, wanted.to);
        files.retain(|file| file.max_timestamp_ms >= wanted.min_timestamp_ms);
        let Some(first) = files.first() else { return Ok(Ahead { runs: VecDeque::new(), end: wanted.to }) };
        // Files that overlap the first one are read together; the window ends before those that do not.
        let reach = first.offsets.1;
        let together = files.iter().take_while(|file| file.offsets.0 <= reach).count();
        let barrier = files.get(together).map_or(i64::MAX, |file| file.offsets.0);
        let leaves = table.mapping.leaves_of(&projected);
        let mut opened = Vec::with_capacity(together);
        for file in files.drain(..together) {
            let footer = self.footers.get(&self.storage, &file).await?;
            opened.push(OpenedFile::new(file, footer, &leaves)?);
        }
        let window = cut(&opened, wanted, barrier, self.options.window_bytes.max(max_bytes));
        let inside = Wanted { to: window.end, ..*wanted };
        let mut runs = Vec::new();
        for (index, read) in window.reads {
            self.read_file(&opened[index], read, table, &inside, &projected, &mut runs).await?;
        }
        let sorted = tokio::task::spawn_blocking(move || in_order(runs)).await??;
        Ok(Ahead { runs: sorted.into(), end: window.end })
    }

    async fn read_file(
        &self,
        opened: &OpenedFile,
        read: FileRead,
        table: &Table,
        inside: &Wanted,
        projected: &SchemaRef,
        runs: &mut Vec<Rows>,
    ) -> Result<(), LakeError> {
        let input = LakeFile::new(&self.storage, &opened.file.location);
        let mut stream = ParquetRecordBatchStreamBuilder::new_with_metadata(input, opened.footer.clone())
            .with_projection(read.mask)
            .with_row_groups(read.row_groups)
            .with_row_selection(read.selection)
            .build()?;
        // The bytes come here; decompressing and decoding them is for the blocking pool.
        while let Some(decoder) = stream.next_row_group().await? {
            let (mapping, projected, inside) = (Arc::clone(&table.mapping), Arc::clone(projected), *inside);
            let decoded = tokio::task::spawn_blocking(move || {
                decoder
                    .map(|batch| rows_of(&mapping, &projected, &inside, &batch?))
                    .collect::<Result<Vec<Option<Rows>>, LakeError>>()
            });
            runs.extend(decoded.await??.into_iter().flatten());
        }
        Ok(())
    }
}

/// The wanted rows of a batch as it comes from a file.
fn rows_of(
    mapping: &TableMapping,
    projected: &SchemaRef,
    inside: &Wanted,
    batch: &RecordBatch,
) -> Result<Option<Rows>, LakeError> {
    let (partitions, offsets) = positions(batch)?;
    let fits = |row: usize| {
        partitions.value(row) == inside.partition && (inside.from..inside.to).contains(&offsets.value(row))
    };
    let mask: BooleanArray = (0..batch.num_rows()).map(|row| Some(fits(row))).collect();
    let kept = mask.true_count();
    if kept == 0 {
        return Ok(None);
    }
    let (batch, offsets) = if kept == batch.num_rows() {
        (batch.clone(), offsets)
    } else {
        let offsets = filter(&offsets, &mask)?.as_primitive::<Int64Type>().clone();
        (filter_record_batch(batch, &mask)?, offsets)
    };
    let batch = mapping.to_log(&batch, projected)?;
    let bytes_per_row = batch.get_array_memory_size() / kept + 1;
    Ok(Some(Rows { offsets, batch, bytes_per_row }))
}

/// Rows of a window in offset order. Our own files come that way; compacted ones may not.
fn in_order(runs: Vec<Rows>) -> Result<Vec<Rows>, LakeError> {
    let all = runs.iter().flat_map(|run| run.offsets.values().iter());
    if all.is_sorted() {
        return Ok(runs);
    }
    let Some(first) = runs.first() else { return Ok(runs) };
    let columns: Vec<&dyn Array> = runs.iter().map(|run| &run.offsets as &dyn Array).collect();
    let offsets = concat(&columns)?;
    let batch = concat_batches(&first.batch.schema(), runs.iter().map(|run| &run.batch))?;
    let order = sort_to_indices(&offsets, None, None)?;
    let offsets = take(&offsets, &order, None)?.as_primitive::<Int64Type>().clone();
    let batch = take_record_batch(&batch, &order)?;
    let bytes_per_row = batch.get_array_memory_size() / offsets.len().max(1) + 1;
    Ok(vec![Rows { offsets, batch, bytes_per_row }])
}

/// Hands out rows below `to` until about `max_bytes` are out: the batches, where to read on, and what is left.
fn deal(mut rows: Ahead, to: i64, max_bytes: usize) -> (Vec<RecordBatch>, i64, Option<Ahead>) {
    let mut batches = Vec::new();
    let mut left = max_bytes.max(1);
    while let Some(run) = rows.runs.pop_front() {
        let below = run.offsets.values().partition_point(|&found| found < to);
        let affordable = (left / run.bytes_per_row).max(usize::from(batches.is_empty()));
        let count = below.min(affordable);
        if count > 0 {
            left = left.saturating_sub(count * run.bytes_per_row);
            batches.push(run.slice(0, count).batch);
        }
        if count < run.offsets.len() {
            let rest = run.slice(count, run.offsets.len() - count);
            let next = if count == below { to } else { rest.offsets.value(0) };
            rows.runs.push_front(rest);
            return (batches, next, Some(rows));
        }
    }
    (batches, rows.end.min(to), None)
}

fn offset(value: i64) -> Offset {
    Offset::new(value).unwrap_or(Offset::ZERO)
}

#[async_trait]
impl ColdTier for ColdReader {
    async fn read_columns(
        &self,
        partition: PartitionId,
        schema: &TableSchema,
        from: Offset,
        to: Offset,
        projection: Option<&[usize]>,
        max_bytes: usize,
    ) -> Result<ColumnsRead, ColdError> {
        let read = self.read(partition, schema, from.get(), to.get(), projection, max_bytes).await;
        read.map_err(|error| ColdError { partition, offset: from, reason: error.to_string() })
    }

    async fn offset_for_timestamp(
        &self,
        partition: PartitionId,
        from: Offset,
        to: Offset,
        timestamp_ms: i64,
    ) -> Result<Option<(Offset, i64)>, ColdError> {
        let found = self.find_timestamp(partition, from.get(), to.get(), timestamp_ms).await;
        found.map_err(|error| ColdError { partition, offset: from, reason: error.to_string() })
    }
}
