//! Columns of any offset: read from `.arrow` segments and the lake, decoded from batches elsewhere.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, RecordBatch, new_null_array};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Schema};
use weir_model::record_batch::{AssignedBatch, RecordIter};
use weir_model::{Isolation, Offset, PartitionId};
use weir_table::{TableSchema, decode_batch, seal_values};

use super::read::{Place, ReadError, Visible, blocking};
use super::{Partition, Segment};
use crate::cold::ColumnsRead;
use crate::rows::{RowsError, SystemCollector, column, plain_style};
use crate::segment::{ArrowSegment, LogSegment};
use crate::shared::{Counters, MAX_DECOMPRESSED_BYTES};

/// What the columns that are decoded from batches must tell of the values as produced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Nothing: only the user columns are wanted.
    Bare,
    /// The produced bytes of every row, for a reader that gets rows.
    Raw,
    /// Style or bytes, as they are stored (DESIGN 4.1).
    Sealed {
        /// Bytes for every row.
        keep_raw: bool,
    },
}

impl Partition {
    /// Columns of rows `from..to`, at most up to the last stable offset, from the tier that holds `from`; about `max_bytes`
    /// of Arrow memory. `projection` lists columns of the log schema by position, ascending; `None` is all. Read on at
    /// `next` until it reaches `to`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read_columns(
        &self,
        from: Offset,
        to: Offset,
        projection: Option<Vec<usize>>,
        max_bytes: usize,
    ) -> Result<ColumnsRead, ReadError> {
        let offsets = self.readable(from, Isolation::ReadCommitted)?;
        let end = to.min(offsets.last_stable());
        if from >= end {
            return Ok(ColumnsRead { batches: Vec::new(), next: from });
        }
        let topic = self.topic();
        let keep_raw = topic.config.weir_value_keep_raw == weir_model::config::KeepRaw::Always;
        let place = self.place(from, end, max_bytes, Isolation::ReadCommitted);
        self.columns_of(place, &topic.columns(), from, end, projection, max_bytes, Detail::Sealed { keep_raw }).await
    }

    #[allow(clippy::too_many_arguments, reason = "one read, described once; a struct of them would have one maker")]
    pub(super) async fn columns_of(
        &self,
        place: Place,
        schema: &Arc<TableSchema>,
        from: Offset,
        end: Offset,
        projection: Option<Vec<usize>>,
        max_bytes: usize,
        detail: Detail,
    ) -> Result<ColumnsRead, ReadError> {
        let wrap = |source| ReadError::Rows { partition: self.id(), source };
        let schema = Arc::clone(schema);
        let mut read = match place {
            Place::Nothing => ColumnsRead { batches: Vec::new(), next: from },
            Place::Tail(entries, visible) => {
                let next = entries.last().map_or(from, crate::tail::TailEntry::end);
                Counters::add(
                    &self.inner.shared.counters.tail_read_bytes,
                    entries.iter().map(|entry| entry.batch.size()).sum(),
                );
                blocking(move || {
                    let shown = entries.iter().filter(|entry| visible.shows(entry.batch.header()));
                    let run: Vec<_> = shown.map(|entry| (&entry.batch, entry.columns.as_ref())).collect();
                    let columns = project(columns_of_batches(&schema, &run, detail)?, projection.as_deref())?;
                    Ok(ColumnsRead { batches: vec![columns], next })
                })
                .await?
                .map_err(wrap)?
            }
            Place::Log(segment) => {
                self.log_columns(segment, None, &schema, (from, end), projection, max_bytes, detail).await?
            }
            Place::Undecided(segment, visible) => {
                self.log_columns(segment, Some(visible), &schema, (from, end), projection, max_bytes, detail).await?
            }
            Place::Arrow(segment) => {
                let shared = Arc::clone(&self.inner.shared);
                let partition = self.id();
                blocking(move || {
                    arrow_columns(partition, &segment, from, projection.as_deref(), max_bytes, &shared.counters)
                })
                .await??
            }
            Place::Cold(tiered_end) => {
                let cold = self.inner.shared.cold().ok_or(ReadError::NoLake { partition: self.id(), offset: from })?;
                Counters::add(&self.inner.shared.counters.cold_reads, 1);
                cold.read_columns(self.id(), &schema, from, end.min(tiered_end), projection.as_deref(), max_bytes)
                    .await?
            }
        };
        read.batches = read
            .batches
            .iter()
            .map(|columns| cut(columns, from, end))
            .collect::<Result<Vec<_>, _>>()
            .map_err(wrap)?
            .into_iter()
            .filter(|columns| columns.num_rows() > 0)
            .collect();
        read.next = read.next.min(end);
        Ok(read)
    }

    /// Columns decoded from the batches of a file, of those that `visible` shows.
    #[allow(clippy::too_many_arguments, reason = "as columns_of, of which it is a part")]
    async fn log_columns(
        &self,
        segment: Arc<LogSegment>,
        visible: Option<Visible>,
        schema: &Arc<TableSchema>,
        (from, end): (Offset, Offset),
        projection: Option<Vec<usize>>,
        max_bytes: usize,
        detail: Detail,
    ) -> Result<ColumnsRead, ReadError> {
        let (shared, schema, partition) = (Arc::clone(&self.inner.shared), Arc::clone(schema), self.id());
        blocking(move || {
            let (batches, next) = log_batches(&segment, from, end, max_bytes)?;
            let size = batches.iter().map(AssignedBatch::size).sum();
            Counters::add(&shared.counters.log_segment_read_bytes, size);
            let shown = |batch: &&AssignedBatch| visible.as_ref().is_none_or(|visible| visible.shows(batch.header()));
            let run: Vec<_> = batches.iter().filter(shown).map(|batch| (batch, None)).collect();
            columns_of_batches(&schema, &run, detail)
                .and_then(|columns| project(columns, projection.as_deref()))
                .map(|columns| ColumnsRead { batches: vec![columns], next })
                .map_err(|source| ReadError::Rows { partition, source })
        })
        .await?
    }

    /// The stretches below the tail, oldest first, and whether each is on this machine.
    pub fn segments(&self) -> Vec<(crate::segment::SegmentMeta, bool)> {
        let state = self.inner.state.lock();
        state.segments.values().map(|segment: &Segment| (segment.meta().clone(), segment.is_local())).collect()
    }
}

/// Whole batches of a `.log` segment from the one that holds `from`, about `max_bytes` of them, at least one.
fn log_batches(
    segment: &LogSegment,
    from: Offset,
    end: Offset,
    max_bytes: usize,
) -> Result<(Vec<AssignedBatch>, Offset), crate::segment::SegmentError> {
    let mut batches = Vec::new();
    let (mut bytes, mut next) = (0, segment.meta().range.end);
    for batch in segment.batches(from)? {
        let batch = batch?;
        let start = Offset::new(batch.header().base_offset).unwrap_or(Offset::ZERO);
        if start >= end || (bytes > 0 && bytes + batch.size() > max_bytes) {
            next = start;
            break;
        }
        bytes += batch.size();
        batches.push(batch);
    }
    Ok((batches, next))
}

fn arrow_columns(
    partition: PartitionId,
    segment: &ArrowSegment,
    from: Offset,
    projection: Option<&[usize]>,
    max_bytes: usize,
    counters: &Counters,
) -> Result<ColumnsRead, ReadError> {
    let mut read = ColumnsRead { batches: Vec::new(), next: segment.meta().range.end };
    let Some(first) = segment.find_block(from)? else { return Ok(read) };
    let mut bytes = 0;
    for (index, info) in segment.blocks()?.iter().enumerate().skip(first) {
        if bytes >= max_bytes {
            read.next = info.range.start;
            break;
        }
        let block = segment.read_block(index, projection)?;
        Counters::add(&counters.arrow_segment_read_bytes, usize::try_from(block.bytes_read).unwrap_or(0));
        bytes += block.batch.get_array_memory_size();
        read.batches.push(with_plain_style(block.batch).map_err(|source| ReadError::Rows { partition, source })?);
    }
    Ok(read)
}

/// Stored batches as log-schema columns. Each comes with its decoded user columns where someone has them.
pub(super) fn columns_of_batches(
    schema: &TableSchema,
    run: &[(&AssignedBatch, Option<&RecordBatch>)],
    detail: Detail,
) -> Result<RecordBatch, RowsError> {
    if run.is_empty() {
        return Ok(RecordBatch::new_empty(schema.log_schema()));
    }
    let records = run.iter().map(|(batch, _)| batch.records(MAX_DECOMPRESSED_BYTES)).collect::<Result<Vec<_>, _>>()?;
    let rows = run.iter().map(|(batch, _)| usize::try_from(batch.header().record_count).unwrap_or(0)).sum();
    let mut system = SystemCollector::new(rows);
    let mut values: Vec<Option<&[u8]>> = Vec::with_capacity(rows);
    for ((batch, _), records) in run.iter().zip(&records) {
        system.push_batch(batch, records, |value| values.push(value))?;
    }
    if schema.is_raw() {
        let value: ArrayRef = Arc::new(BinaryArray::from_iter(values));
        let rows = system.rows();
        let (style, raw) = (new_null_array(&DataType::Utf8, rows), new_null_array(&DataType::Binary, rows));
        return system.finish(schema, style, raw, vec![value]);
    }
    let user =
        run.iter().map(|(batch, columns)| user_columns(schema, batch, *columns)).collect::<Result<Vec<_>, _>>()?;
    let user = concat_batches(schema.arrow(), &user).map_err(|error| RowsError::Schema(error.to_string()))?;
    let (style, raw): (ArrayRef, ArrayRef) = match detail {
        Detail::Bare => (new_null_array(&DataType::Utf8, rows), new_null_array(&DataType::Binary, rows)),
        Detail::Raw => (new_null_array(&DataType::Utf8, rows), Arc::new(BinaryArray::from_iter(values))),
        Detail::Sealed { keep_raw } => {
            let values = values
                .iter()
                .map(|value| value.ok_or_else(|| RowsError::Schema("a row of the table has a null value".to_owned())))
                .collect::<Result<Vec<_>, _>>()?;
            let sealed = seal_values(schema, &user, &values, keep_raw);
            (sealed.style, Arc::new(sealed.raw))
        }
    };
    system.finish(schema, style, raw, user.columns().to_vec())
}

/// The user columns of a batch: as given, or decoded again. Every row was checked against the schema when it was produced.
fn user_columns(
    schema: &TableSchema,
    batch: &AssignedBatch,
    known: Option<&RecordBatch>,
) -> Result<RecordBatch, RowsError> {
    if let Some(columns) = known {
        return Ok(columns.clone());
    }
    let records = batch.records(MAX_DECOMPRESSED_BYTES)?;
    let mut values = Vec::with_capacity(usize::try_from(batch.header().record_count).unwrap_or(0));
    for record in RecordIter::new(&records, batch.header().record_count) {
        values.push(record?.value);
    }
    decode_batch(schema, values.into_iter()).map_err(|errors| {
        let first = errors.first().map(ToString::to_string).unwrap_or_default();
        RowsError::Schema(format!(
            "stored batch at offset {} does not fit its schema: {first}",
            batch.header().base_offset
        ))
    })
}

/// Rows of the log schema that keep their produced bytes.
pub(super) fn raw_row_count(columns: &RecordBatch) -> usize {
    let raw = columns.column(column::VALUE_RAW);
    raw.len() - raw.null_count()
}

/// The same columns with `_value_style` as text, as the log schema has it; segments keep it as a dictionary.
fn with_plain_style(columns: RecordBatch) -> Result<RecordBatch, RowsError> {
    let schema = columns.schema();
    let Some((at, field)) =
        schema.column_with_name("_value_style").filter(|(_, field)| field.data_type() != &DataType::Utf8)
    else {
        return Ok(columns);
    };
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    fields[at] = Arc::new(field.clone().with_data_type(DataType::Utf8));
    let mut arrays = columns.columns().to_vec();
    arrays[at] = plain_style(&arrays[at])?;
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(|error| RowsError::Schema(error.to_string()))
}

fn project(columns: RecordBatch, projection: Option<&[usize]>) -> Result<RecordBatch, RowsError> {
    match projection {
        None => Ok(columns),
        Some(wanted) => columns.project(wanted).map_err(|error| RowsError::Schema(error.to_string())),
    }
}

/// The rows inside `from..end`. Columns without `_offset` in front are left as they are: their reader did not ask to know.
fn cut(columns: &RecordBatch, from: Offset, end: Offset) -> Result<RecordBatch, RowsError> {
    if columns.schema_ref().fields().first().is_none_or(|field| field.name() != "_offset") {
        return Ok(columns.clone());
    }
    let offsets = crate::rows::offsets_of(columns)?.values();
    let start = offsets.partition_point(|offset| *offset < from.get());
    let stop = offsets.partition_point(|offset| *offset < end.get());
    Ok(columns.slice(start, stop.saturating_sub(start)))
}
