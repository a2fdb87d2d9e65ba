//! Reading rows: the one reader that joins lake, segments and tail (DESIGN 5). No caller knows the tiers.
//!
//! Each step reads from the one tier that holds the next offset, and the loop goes on where it ended. Whole batches only;
//! the first may begin before the offset asked for (S-47).

use std::fs::File;
use std::sync::Arc;

use arrow::array::RecordBatch;
use bytes::Bytes;
use weir_model::record_batch::{BatchBuilder, BatchHeader, Compression, gap_batch};
use weir_model::{Isolation, LogOffsets, Offset, PartitionId, TimestampType};
use weir_table::{ReadFormat, TableSchema, ValueEncoder};

use super::columns::Detail;
use super::{LEADER_EPOCH, Partition, Segment};
use crate::cold::ColdError;
use crate::producers::{AbortedTxn, Decided};
use crate::rows::{RowsError, SYSTEM_COLUMN_COUNT, build_batches, build_raw_batches, column, offsets_of};
use crate::segment::{ArrowSegment, LogSegment, SegmentError, ipc_stream};
use crate::shared::Counters;
use crate::tail::TailEntry;

/// How much to read.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// Stop before this many bytes of batches.
    pub max_bytes: usize,
    /// Give one batch even when it is larger than that (S-48).
    pub at_least_one: bool,
}

/// Which columns of a table, in which form. The broker made it from the client's read options and the schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowForm {
    /// Positions of user columns, ascending; `None` is all.
    pub columns: Option<Arc<[usize]>>,
    /// Rows, or one Arrow IPC stream per record.
    pub format: ReadFormat,
}

impl RowForm {
    /// Whether the stored bytes are what is wanted.
    pub fn is_plain(&self) -> bool {
        self.columns.is_none() && self.format == ReadFormat::Rows
    }
}

/// Bytes to send, in order.
#[derive(Clone, Debug)]
pub enum Chunk {
    /// From memory.
    Bytes(Bytes),
    /// From a file, for `sendfile`.
    File {
        /// Which file.
        file: Arc<File>,
        /// From where.
        position: u64,
        /// How many bytes.
        len: usize,
    },
}

impl Chunk {
    /// Its bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File { len, .. } => *len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Rows read.
#[derive(Clone, Debug)]
pub struct RowsRead {
    /// Whole Kafka batches.
    pub chunks: Vec<Chunk>,
    /// Bytes of all of them.
    pub bytes: usize,
    /// Where to read on.
    pub next: Offset,
    /// The offsets as they were when the read was planned.
    pub offsets: LogOffsets,
    /// For a reader of committed rows, the aborted transactions that have something in the stretch it got, by first offset
    /// (S-53). Empty for others, and where the rows were rebuilt from columns, which have no aborted ones.
    pub aborted: Vec<AbortedTxn>,
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Nothing can be read there.
    #[error("offset {requested} is outside {}..{}", offsets.log_start(), offsets.high_watermark())]
    OffsetOutOfRange {
        /// What was asked for.
        requested: i64,
        /// What there is.
        offsets: LogOffsets,
    },
    /// The topic was deleted.
    #[error("the topic was deleted")]
    Closed,
    /// A segment does not read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// Columns did not become rows.
    #[error("partition {partition}: {source}")]
    Rows {
        /// Whose.
        partition: PartitionId,
        /// What is wrong.
        source: RowsError,
    },
    /// The lake did not answer.
    #[error(transparent)]
    Cold(#[from] ColdError),
    /// The rows are in the lake, and no lake is configured now.
    #[error("offset {offset} of partition {partition} is only in the lake, and weir.lake.url names none; set it again")]
    NoLake {
        /// Whose.
        partition: PartitionId,
        /// Which offset.
        offset: Offset,
    },
    /// The broker is stopping.
    #[error("the broker is stopping")]
    Stopping,
}

/// Where the next offset is.
pub(super) enum Place {
    Nothing,
    Tail(Vec<TailEntry>, Visible),
    Log(Arc<LogSegment>),
    Arrow(Arc<ArrowSegment>),
    Undecided(Arc<LogSegment>, Visible),
    /// In the lake up to this offset at least.
    Cold(Offset),
}

/// What a reader may see of batches that were not sealed yet.
pub(super) struct Visible {
    isolation: Isolation,
    /// Taken under the same lock as the batches: a seal may forget aborted transactions right after.
    decided: Decided,
}

impl Visible {
    /// Whether a reader of columns sees the rows of this batch.
    pub(super) fn shows(&self, header: &BatchHeader) -> bool {
        self.decided.shows(header, self.isolation)
    }
}

/// One tier's answer.
#[derive(Default)]
struct Step {
    chunks: Vec<Chunk>,
    /// Where to read on; `None` when there was nothing.
    next: Option<Offset>,
    /// First offset after the last batch among `chunks`; `None` when there is none.
    given_end: Option<Offset>,
    aborted: Vec<AbortedTxn>,
}

impl Partition {
    /// Rows from `from` on, up to what `isolation` may see, as Kafka batches.
    ///
    /// Rows as produced come with the batches of aborted transactions and with control batches as long as they have not been
    /// sealed, to a reader of either isolation: the client leaves them out, helped by [`RowsRead::aborted`]. Chosen columns
    /// and Arrow never have control batches, and aborted or open rows only for who reads uncommitted, until they are sealed.
    ///
    /// An answer that ends in a gap (what was there was aborted, or a marker) has a control batch of nobody at the gap's last
    /// offset, so that a consumer gets to the end of what it may read (S-54).
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read_rows(
        &self,
        from: Offset,
        limits: ReadLimits,
        isolation: Isolation,
        form: &RowForm,
    ) -> Result<RowsRead, ReadError> {
        let offsets = self.readable(from, isolation)?;
        let end = offsets.read_end(isolation);
        let mut read = RowsRead { chunks: Vec::new(), bytes: 0, next: from, offsets, aborted: Vec::new() };
        let mut given_end = from;
        while read.next < end && (read.bytes < limits.max_bytes || (read.bytes == 0 && limits.at_least_one)) {
            let left = ReadLimits {
                max_bytes: limits.max_bytes.saturating_sub(read.bytes),
                at_least_one: limits.at_least_one && read.bytes == 0,
            };
            let step = self.step(read.next, end, left, isolation, form).await?;
            let next = step.next.unwrap_or(read.next);
            if next <= read.next {
                break;
            }
            read.next = next;
            given_end = step.given_end.unwrap_or(given_end);
            read.aborted.extend(step.aborted.into_iter().filter(|txn| txn.first_offset < next));
            for chunk in step.chunks {
                read.bytes += chunk.len();
                read.chunks.push(chunk);
            }
        }
        if read.next >= end && given_end < end {
            let gap = gap_batch(end.get() - 1, LEADER_EPOCH);
            read.bytes += gap.len();
            read.chunks.push(Chunk::Bytes(gap));
        }
        read.aborted.sort_unstable_by_key(|txn| (txn.first_offset, txn.producer_id));
        read.aborted.dedup();
        Ok(read)
    }

    /// Checks that `from` lies where a reader may be (S-50).
    pub(super) fn readable(&self, from: Offset, isolation: Isolation) -> Result<LogOffsets, ReadError> {
        if self.is_closed() {
            return Err(ReadError::Closed);
        }
        let offsets = self.offsets();
        if from < offsets.log_start() || from > offsets.high_watermark() {
            return Err(ReadError::OffsetOutOfRange { requested: from.get(), offsets });
        }
        debug_assert!(offsets.read_end(isolation) <= offsets.high_watermark(), "LOG-1");
        Ok(offsets)
    }

    async fn step(
        &self,
        from: Offset,
        end: Offset,
        limits: ReadLimits,
        isolation: Isolation,
        form: &RowForm,
    ) -> Result<Step, ReadError> {
        match self.place(from, end, limits.max_bytes, isolation) {
            Place::Nothing => Ok(Step::default()),
            Place::Tail(entries, visible) if form.is_plain() => Ok(self.tail_step(&entries, &visible, limits)),
            Place::Log(segment) if form.is_plain() => self.log_step(segment, from, end, limits).await,
            Place::Undecided(segment, visible) if form.is_plain() => {
                let step = self.log_step(segment, from, end, limits).await?;
                Ok(Step { aborted: visible.decided.aborted().collect(), ..step })
            }
            Place::Arrow(segment) => {
                let (partition, form) = (self.clone(), form.clone());
                blocking(move || partition.arrow_step(&segment, from, limits, &form)).await?
            }
            place @ (Place::Tail(..) | Place::Log(_) | Place::Undecided(..) | Place::Cold(_)) => {
                self.columns_step(place, from, end, limits, form).await
            }
        }
    }

    /// Batches of a file as they are: from the one that holds `from`, none at or beyond `end`.
    async fn log_step(
        &self,
        segment: Arc<LogSegment>,
        from: Offset,
        end: Offset,
        limits: ReadLimits,
    ) -> Result<Step, ReadError> {
        let shared = Arc::clone(&self.inner.shared);
        blocking(move || {
            let read = segment.read_below(from, end, limits.max_bytes, limits.at_least_one)?;
            // Nothing fitted: the step ends where it began, and so does the read.
            let mut step = Step { next: Some(read.next), ..Step::default() };
            if read.len > 0 {
                let at_end = read.next == segment.meta().range.end;
                step.given_end = Some(if at_end { segment.records_end()? } else { read.next });
                step.chunks.push(Chunk::File { file: read.file, position: read.position, len: read.len });
                Counters::add(&shared.counters.log_segment_read_bytes, read.len);
            }
            Ok(step)
        })
        .await?
    }

    pub(super) fn place(&self, from: Offset, end: Offset, max_bytes: usize, isolation: Isolation) -> Place {
        let state = self.inner.state.lock();
        let visible = |from, to| {
            let decided = match isolation {
                Isolation::ReadUncommitted => Decided::default(),
                Isolation::ReadCommitted => state.producers.decided(from, to),
            };
            Visible { isolation, decided }
        };
        if from >= state.record.sealed_end {
            let mut bytes = 0;
            let mut entries = Vec::new();
            for entry in state.tail.from(from).take_while(|entry| entry.end() <= end) {
                entries.push(entry.clone());
                bytes += entry.batch.size();
                if bytes >= max_bytes {
                    break;
                }
            }
            return match entries.last().map(TailEntry::end) {
                Some(to) => Place::Tail(entries, visible(from, to)),
                None => Place::Nothing,
            };
        }
        match state.segments.range(..=from).next_back() {
            Some((_, Segment::Log(segment))) => Place::Log(Arc::clone(segment)),
            Some((_, Segment::Arrow(segment))) => Place::Arrow(Arc::clone(segment)),
            Some((_, Segment::Undecided(segment))) => {
                let to = end.min(segment.meta().range.end);
                Place::Undecided(Arc::clone(segment), visible(from, to))
            }
            Some((_, Segment::Tiered(_))) => {
                let tiered_end = state
                    .segments
                    .range(from..)
                    .find(|(_, segment)| segment.is_local())
                    .map_or(state.record.sealed_end, |(start, _)| *start);
                Place::Cold(tiered_end)
            }
            None => Place::Nothing,
        }
    }

    /// Rows or Arrow records by way of columns: out of batches in memory or in a file, or out of the lake.
    async fn columns_step(
        &self,
        place: Place,
        from: Offset,
        end: Offset,
        limits: ReadLimits,
        form: &RowForm,
    ) -> Result<Step, ReadError> {
        let schema = self.topic().columns();
        let user_count = schema.arrow().fields().len();
        let (projection, detail) = match form.format {
            ReadFormat::Rows => (form.columns.as_deref().map(row_projection), Detail::Raw),
            ReadFormat::Arrow => {
                let mut columns = vec![column::OFFSET, column::TIMESTAMP];
                columns.extend(arrow_projection(form, SYSTEM_COLUMN_COUNT + user_count));
                (Some(columns), Detail::Bare)
            }
        };
        let bytes = limits.max_bytes.max(1);
        let read = self.columns_of(place, &schema, from, end, projection, bytes, detail).await?;
        let (partition, form) = (self.clone(), form.clone());
        blocking(move || {
            let mut step = Step { next: Some(read.next), ..Step::default() };
            let mut used = 0;
            for columns in &read.batches {
                let budget = limits.max_bytes.saturating_sub(used);
                if budget == 0 && !step.chunks.is_empty() {
                    break;
                }
                let (chunks, next) = match form.format {
                    ReadFormat::Rows => partition.build_rows(&schema, columns, from, budget, &form)?,
                    ReadFormat::Arrow => partition.arrow_chunk(columns, from)?,
                };
                used += chunks.iter().map(Chunk::len).sum::<usize>();
                if !chunks.is_empty() {
                    step.given_end = Some(next);
                }
                step.chunks.extend(chunks);
                // Everything was used only when the last batch was used up; `read.next` may lie beyond a gap after it.
                step.next = Some(next);
            }
            let all_used =
                read.batches.last().is_none_or(|last| last_offset(last).is_none_or(|last| step.next > Some(last)));
            if all_used {
                step.next = Some(read.next.max(step.next.unwrap_or(read.next)));
            }
            if used > limits.max_bytes && !limits.at_least_one {
                return Ok(Step::default());
            }
            Ok(step)
        })
        .await?
    }

    fn tail_step(&self, entries: &[TailEntry], visible: &Visible, limits: ReadLimits) -> Step {
        let mut step = Step { aborted: visible.decided.aborted().collect(), ..Step::default() };
        let mut bytes = 0;
        for entry in entries {
            let size = entry.batch.size();
            let first = step.chunks.is_empty();
            if bytes + size > limits.max_bytes && !(first && limits.at_least_one) {
                break;
            }
            step.chunks.push(Chunk::Bytes(Bytes::copy_from_slice(entry.batch.prefix())));
            step.chunks.push(Chunk::Bytes(entry.batch.body().clone()));
            step.next = Some(entry.end());
            step.given_end = step.next;
            bytes += size;
        }
        Counters::add(&self.inner.shared.counters.tail_read_bytes, bytes);
        step
    }

    /// Rows or Arrow records from one `.arrow` segment. Blocks.
    fn arrow_step(
        &self,
        segment: &ArrowSegment,
        from: Offset,
        limits: ReadLimits,
        form: &RowForm,
    ) -> Result<Step, ReadError> {
        let mut step = Step::default();
        let mut bytes = 0;
        let Some(mut block) = segment.find_block(from)? else {
            // Only a gap is left of this segment.
            step.next = Some(segment.meta().range.end);
            return Ok(step);
        };
        let mut at = from;
        while bytes < limits.max_bytes || (step.chunks.is_empty() && limits.at_least_one) {
            let budget = limits.max_bytes.saturating_sub(bytes);
            let (chunks, next) = match form.format {
                ReadFormat::Rows => self.rows_of_block(segment, block, at, budget, form)?,
                ReadFormat::Arrow => self.arrow_of_block(segment, block, at, form)?,
            };
            let size: usize = chunks.iter().map(Chunk::len).sum();
            // An Arrow record cannot be split by bytes, so it may turn out too large for what is left.
            if size > budget && !(step.chunks.is_empty() && limits.at_least_one) && form.format == ReadFormat::Arrow {
                break;
            }
            bytes += size;
            if !chunks.is_empty() {
                step.given_end = Some(next);
            }
            step.chunks.extend(chunks);
            if next >= segment.blocks()?[block].range.end {
                block += 1;
                let last = block == segment.blocks()?.len();
                step.next = Some(if last { segment.meta().range.end } else { next });
                if last {
                    break;
                }
            } else {
                step.next = Some(next);
            }
            at = next;
        }
        Ok(step)
    }

    fn rows_of_block(
        &self,
        segment: &ArrowSegment,
        block: usize,
        from: Offset,
        max_bytes: usize,
        form: &RowForm,
    ) -> Result<(Vec<Chunk>, Offset), ReadError> {
        let raw = form.columns.is_none() && segment.blocks()?[block].columns[column::VALUE_RAW].null_count == 0;
        let columns = self.block(segment, block, form, raw)?;
        let schema = self.topic().columns();
        self.build_rows(&schema, &columns, from, max_bytes, form)
    }

    /// A decoded block: whole ones through the cache, projected ones read anew, since they are cheap and all different. Of a
    /// block whose rows all kept their bytes, `raw`, only the columns that rows need.
    fn block(
        &self,
        segment: &ArrowSegment,
        block: usize,
        form: &RowForm,
        raw: bool,
    ) -> Result<Arc<RecordBatch>, ReadError> {
        let shared = &self.inner.shared;
        let key = (self.inner.id, segment.meta().name(), block);
        let projection = form.columns.as_deref().map(row_projection);
        if projection.is_none()
            && let Some(known) = shared.blocks.get(&key)
        {
            return Ok(known);
        }
        let read = match (&projection, raw) {
            (Some(wanted), _) => segment.read_block(block, Some(wanted))?,
            (None, true) => segment.read_block(block, Some(&RAW_ROW_COLUMNS))?,
            (None, false) => segment.read_block(block, None)?,
        };
        Counters::add(&shared.counters.arrow_segment_read_bytes, usize::try_from(read.bytes_read).unwrap_or(0));
        let columns = Arc::new(read.batch);
        if projection.is_none() {
            shared.blocks.put(key, Arc::clone(&columns));
        }
        Ok(columns)
    }

    pub(super) fn build_rows(
        &self,
        schema: &TableSchema,
        columns: &RecordBatch,
        from: Offset,
        max_bytes: usize,
        form: &RowForm,
    ) -> Result<(Vec<Chunk>, Offset), ReadError> {
        let wrap = |source| ReadError::Rows { partition: self.inner.id, source };
        let offsets = offsets_of(columns).map_err(wrap)?;
        let first_row = offsets.values().partition_point(|offset| *offset < from.get());
        let after_last = |row: usize| Offset::new(offsets.value(row)).expect("stored offsets are not negative").next();
        if first_row == offsets.len() {
            let next = if offsets.is_empty() { from } else { after_last(offsets.len() - 1).max(from) };
            return Ok((Vec::new(), next));
        }
        let built = if columns.num_columns() == RAW_ROW_COLUMNS.len() && form.columns.is_none() {
            build_raw_batches(columns, first_row, max_bytes).map_err(wrap)?
        } else {
            let mut encoder = ValueEncoder::new(schema, form.columns.as_deref());
            build_batches(&mut encoder, columns, first_row, max_bytes).map_err(wrap)?
        };
        let next = after_last(first_row + built.rows - 1);
        Ok((built.batches.into_iter().map(Chunk::Bytes).collect(), next))
    }

    /// One block as one record that holds an Arrow stream: the stored buffers as they are when the block is wanted whole,
    /// decoded and cut when reading starts inside it.
    fn arrow_of_block(
        &self,
        segment: &ArrowSegment,
        block: usize,
        from: Offset,
        form: &RowForm,
    ) -> Result<(Vec<Chunk>, Offset), ReadError> {
        let counters = &self.inner.shared.counters;
        let column_count = segment.column_count()?;
        let info = &segment.blocks()?[block];
        if from <= info.range.start {
            let projection = arrow_projection(form, column_count);
            let stream = segment.read_block_ipc(block, Some(&projection))?;
            Counters::add(&counters.arrow_segment_read_bytes, usize::try_from(stream.bytes_read).unwrap_or(0));
            let last = info.range.end.get() - 1;
            return Ok((vec![arrow_record(last, info.max_timestamp, &stream.bytes)], info.range.end));
        }
        let mut projection = vec![column::OFFSET, column::TIMESTAMP];
        projection.extend(arrow_projection(form, column_count));
        let read = segment.read_block(block, Some(&projection))?;
        Counters::add(&counters.arrow_segment_read_bytes, usize::try_from(read.bytes_read).unwrap_or(0));
        self.arrow_chunk(&read.batch, from)
    }

    /// Rows `from..` of columns that begin with `_offset` and `_timestamp`, as one Arrow record of the other columns.
    pub(super) fn arrow_chunk(&self, columns: &RecordBatch, from: Offset) -> Result<(Vec<Chunk>, Offset), ReadError> {
        let wrap = |source| ReadError::Rows { partition: self.inner.id, source };
        let offsets = offsets_of(columns).map_err(wrap)?;
        let first_row = offsets.values().partition_point(|offset| *offset < from.get());
        let Some(last) = offsets.values().last().copied().filter(|_| first_row < offsets.len()) else {
            return Ok((Vec::new(), from));
        };
        let max_timestamp = columns
            .column(1)
            .as_any()
            .downcast_ref::<arrow::array::Int64Array>()
            .and_then(arrow::compute::max)
            .unwrap_or(-1);
        let wanted: Vec<usize> = (2..columns.num_columns()).collect();
        let rows = columns
            .project(&wanted)
            .map_err(|error| wrap(RowsError::Schema(error.to_string())))?
            .slice(first_row, offsets.len() - first_row);
        let stream = ipc_stream(&rows)?;
        let next = Offset::new(last).expect("stored offsets are not negative").next();
        Ok((vec![arrow_record(last, max_timestamp, &stream)], next))
    }
}

/// Columns that rows are rebuilt from when every row kept its bytes. Fewer than any whole log schema has.
const RAW_ROW_COLUMNS: [usize; 6] =
    [column::OFFSET, column::TIMESTAMP, column::TIMESTAMP_TYPE, column::KEY, column::HEADERS, column::VALUE_RAW];

/// Columns that rows are rebuilt from: everything of the system, and the chosen user columns.
pub(super) fn row_projection(user: &[usize]) -> Vec<usize> {
    (0..SYSTEM_COLUMN_COUNT).chain(user.iter().map(|position| position + SYSTEM_COLUMN_COUNT)).collect()
}

/// Columns that an Arrow reader gets: the chosen user columns, or all of them.
pub(super) fn arrow_projection(form: &RowForm, column_count: usize) -> Vec<usize> {
    match &form.columns {
        Some(user) => user.iter().map(|position| position + SYSTEM_COLUMN_COUNT).collect(),
        None => (SYSTEM_COLUMN_COUNT..column_count).collect(),
    }
}

/// One Kafka batch of one record whose value is an Arrow stream. Its offset is that of the stream's last row, so a consumer
/// that commits it goes on exactly there.
fn arrow_record(last_offset: i64, timestamp: i64, stream: &[u8]) -> Chunk {
    let mut builder = BatchBuilder::new(last_offset, Compression::None, TimestampType::CreateTime);
    builder.push(last_offset, timestamp, None, Some(stream), None);
    Chunk::Bytes(builder.finish())
}

/// Runs file reads and decoding off the network threads.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ReadError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| ReadError::Stopping)
}

/// Offset of the last row of columns that begin with `_offset`.
fn last_offset(columns: &RecordBatch) -> Option<Offset> {
    offsets_of(columns).ok()?.values().last().copied().and_then(Offset::new)
}
