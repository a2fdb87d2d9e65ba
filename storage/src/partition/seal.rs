//! Sealing: a decided stretch of the tail becomes a segment (DESIGN 4, step 6). Rows of aborted transactions and control
//! batches end here, and committed batches lose their transactional bit, so that whoever reads a segment need not know of
//! transactions; offsets keep their gaps. What an open transaction holds up is set aside instead when memory or the WAL
//! need it ([`super::undecided`]).
//!
//! The order is what makes it safe: the segment is written and synced; one commit of the metadata store names it, moves the
//! sealed end and stores the producers as of there; only then does the tail let go. A crash in between leaves an unnamed file.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use parking_lot::MutexGuard;
use weir_model::config::KeepRaw;
use weir_model::record_batch::{AssignedBatch, ControlError};
use weir_model::{Isolation, Offset, OffsetRange, PartitionId};
use weir_table::TableSchema;

use super::columns::{Detail, columns_of_batches, raw_row_count};
use super::{Inner, Partition, Segment};
use crate::disk::{Disk, RealDisk};
use crate::manifest::{self, PartitionRecord, SegmentRecord};
use crate::meta::{MetaBatch, MetaError};
use crate::producers::ProducerTable;
use crate::rows::RowsError;
use crate::segment::{
    ArrowCompression, ArrowSegment, ArrowSegmentInfo, ArrowSegmentWriter, LogSegment, LogSegmentWriter, SegmentError,
    SegmentMeta, SegmentName,
};
use crate::shared::{Counters, Shared};
use crate::tail::TailEntry;
use crate::topics::TopicInfo;

/// A batch on its way into a segment, with its decoded user columns where someone has them.
pub(super) type Sealing = Result<(AssignedBatch, Option<RecordBatch>), SegmentError>;

/// Rows whose values are compared with their re-encoding at a time. Styles are found once per such run, and a run's
/// values, columns and encodings are in memory together: at 200 B a row, some 10 MB.
const RUN_ROWS: usize = 16_384;

/// Space left alone for the metadata store's own log and compactions.
pub(super) const META_RESERVE_BYTES: u64 = 16 << 20;

/// Why a stretch was not sealed. The tail still has it.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The segment could not be written.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The rows did not become columns.
    #[error("seal of {partition}: {source}")]
    Rows {
        /// Whose rows.
        partition: PartitionId,
        /// What is wrong.
        source: RowsError,
    },
    /// A control batch of the tail says nothing that can be read.
    #[error("seal of {partition}: {source}")]
    Control {
        /// Whose.
        partition: PartitionId,
        /// What is wrong.
        source: ControlError,
    },
    /// The segment is written but not named.
    #[error("seal of {partition} was not committed: {source}")]
    Store {
        /// Whose segment.
        partition: PartitionId,
        /// What the store said.
        source: MetaError,
    },
    /// Too little space for the segment and for the metadata store to work on. Found out beforehand, because a metadata
    /// store that runs out of space stops.
    #[error("{directory} has {free_bytes} bytes free, sealing needs {needed_bytes}; free space or shorten retention")]
    DiskFull {
        /// Where.
        directory: String,
        /// What there is.
        free_bytes: u64,
        /// What there should be.
        needed_bytes: u64,
    },
    /// The partition's directory could not be made or looked at.
    #[error("cannot use {directory}: {source}")]
    Directory {
        /// Where.
        directory: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl SealError {
    /// Whether only space was lacking: worth another try later.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Segment(error) => error.is_disk_full(),
            Self::Directory { source, .. } => crate::disk::is_disk_full(source),
            Self::DiskFull { .. } => true,
            Self::Rows { .. } | Self::Control { .. } | Self::Store { .. } => false,
        }
    }
}

/// A segment that is written and synced, and not yet named.
pub(super) struct PreparedSeal<'p> {
    pub(super) inner: &'p Inner,
    pub(super) _manifest: MutexGuard<'p, ()>,
    pub(super) meta: SegmentMeta,
    pub(super) segment: Segment,
    pub(super) record: PartitionRecord,
    pub(super) producers: ProducerTable,
    pub(super) raw_rows: usize,
}

/// A segment that was written and opened.
pub(super) struct Written {
    pub(super) meta: SegmentMeta,
    pub(super) segment: Segment,
    /// Rows that kept their bytes.
    pub(super) raw_rows: usize,
}

impl PreparedSeal<'_> {
    fn add_to(&self, batch: MetaBatch) -> MetaBatch {
        let id = self.inner.id;
        let segment = SegmentRecord { meta: self.meta.clone(), local: true };
        batch
            .put(manifest::segment_key(id, self.meta.range.start), manifest::encode(&segment))
            .put(manifest::partition_key(id), manifest::encode(&self.record))
            .put(manifest::producers_key(id), manifest::encode(&self.producers))
    }

    /// Has readers find the rows in the segment, and the tail let go of them.
    fn publish(self) {
        let Self { inner, meta, segment, record, producers, raw_rows, _manifest } = self;
        let mut state = inner.state.lock();
        state.record = record;
        state.sealed_producers = producers;
        state.local_bytes += meta.size_bytes;
        state.has_undecided |= !segment.is_decided();
        state.segments.insert(meta.range.start, segment);
        let freed = state.tail.drop_below(record.sealed_end);
        let decided_end = state.decided_end();
        state.producers.forget_aborted_below(decided_end);
        inner.settle_later(&state);
        drop(state);
        inner.shared.tail_bytes.sub(freed);
        let counters = &inner.shared.counters;
        Counters::add(&counters.sealed_segments, 1);
        Counters::add(&counters.sealed_rows, usize::try_from(meta.rows).unwrap_or(0));
        Counters::add(&counters.sealed_raw_rows, raw_rows);
        Counters::add(&counters.sealed_bytes, usize::try_from(meta.size_bytes).unwrap_or(0));
        tracing::debug!(partition = %inner.id, end = %record.sealed_end, file = meta.file, "sealed");
    }
}

pub(super) fn commit_all(shared: &Shared, prepared: Vec<PreparedSeal<'_>>) -> Result<(), SealError> {
    let Some(first) = prepared.first() else { return Ok(()) };
    let partition = first.inner.id;
    let batch = prepared.iter().fold(MetaBatch::new(), |batch, seal| seal.add_to(batch));
    shared.meta.commit(batch).map_err(|source| SealError::Store { partition, source })?;
    prepared.into_iter().for_each(PreparedSeal::publish);
    Ok(())
}

/// Which stretch of the tails is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stretch {
    /// What is decided.
    Decided,
    /// What an open transaction holds up, where nothing is decided.
    HeldUp,
}

/// Seals several partitions with one commit of the metadata store. When one of them fails, those before it are sealed.
/// Blocks. Only the sealer's thread may call it: it holds the manifests of all of them together.
///
/// # Errors
/// The first [`SealError`].
pub(crate) fn seal_together(shared: &Shared, partitions: &[Partition], stretch: Stretch) -> Result<(), SealError> {
    let mut prepared = Vec::with_capacity(partitions.len());
    let mut failed = Ok(());
    for partition in partitions {
        let seal = match stretch {
            Stretch::Decided => partition.prepare_seal(),
            Stretch::HeldUp => partition.prepare_aside(),
        };
        match seal {
            Ok(seal) => prepared.extend(seal),
            Err(error) => {
                failed = Err(error);
                break;
            }
        }
    }
    commit_all(shared, prepared)?;
    failed
}

impl Partition {
    /// Seals everything in the tail below the last stable offset into one segment. `None` when there is nothing. Blocks;
    /// call it from a thread that may.
    ///
    /// # Errors
    /// [`SealError`]; nothing changed then.
    pub fn seal(&self) -> Result<Option<SegmentMeta>, SealError> {
        self.settle()?;
        let Some(prepared) = self.prepare_seal()? else { return Ok(None) };
        let meta = prepared.meta.clone();
        commit_all(&self.inner.shared, vec![prepared])?;
        Ok(Some(meta))
    }

    /// Writes and syncs the segment. Until the answer is committed or dropped, no other change of the manifest gets in.
    fn prepare_seal(&self) -> Result<Option<PreparedSeal<'_>>, SealError> {
        let inner = &*self.inner;
        let manifest = inner.manifest.lock();
        if self.is_closed() {
            return Ok(None);
        }
        let topic = self.topic();
        let (entries, record, producers, decided, undecided_from) = {
            let state = inner.state.lock();
            let last_stable = inner.offsets(&state).last_stable();
            let entries: Vec<TailEntry> =
                state.tail.iter().take_while(|entry| entry.end() <= last_stable).cloned().collect();
            let decided = state.producers.decided(state.record.sealed_end, last_stable);
            let undecided_from = state.has_undecided.then(|| state.decided_end());
            (entries, state.record, state.sealed_producers.clone(), decided, undecided_from)
        };
        let Some(end) = entries.last().map(TailEntry::end) else { return Ok(None) };
        self.make_directory()?;
        self.check_space(entries.iter().map(|entry| entry.batch.size() as u64).sum())?;

        let now_ms = inner.shared.clock.now_ms();
        let producers = self.producers_after(producers, &entries, undecided_from.unwrap_or(end), now_ms)?;
        let range = OffsetRange::new(record.sealed_end, end);
        let batches = entries.into_iter().filter(|entry| decided.shows(entry.batch.header(), Isolation::ReadCommitted));
        let batches = batches.map(|entry| Ok((entry.batch.decided(), entry.columns)));
        let Written { meta, segment, raw_rows } =
            self.write_segment(&topic, batches, range, SegmentName::from(range.start), now_ms)?;
        let record = PartitionRecord { sealed_end: end, ..record };
        Ok(Some(PreparedSeal { inner, _manifest: manifest, meta, segment, record, producers, raw_rows }))
    }

    /// The producers once `entries` are sealed. Aborted transactions are kept as long as their rows are, from `rows_from` on.
    pub(super) fn producers_after(
        &self,
        mut producers: ProducerTable,
        entries: &[TailEntry],
        rows_from: Offset,
        now_ms: i64,
    ) -> Result<ProducerTable, SealError> {
        for entry in entries {
            let recorded = producers.record(&entry.batch, now_ms);
            recorded.map_err(|source| SealError::Control { partition: self.id(), source })?;
        }
        producers.forget_aborted_below(rows_from);
        Ok(producers)
    }

    /// Makes the partition's directory with the first seal, durably: a segment is only as durable as the names above it.
    pub(super) fn make_directory(&self) -> Result<(), SealError> {
        let directory = &self.inner.directory;
        if directory.is_dir() {
            return Ok(());
        }
        let root = &self.inner.shared.segments_directory;
        let sync = |directory: &Path| RealDisk::new().sync_dir(directory);
        std::fs::create_dir_all(directory)
            .and_then(|()| directory.ancestors().skip(1).take_while(|above| above.starts_with(root)).try_for_each(sync))
            .and_then(|()| root.parent().map_or(Ok(()), sync))
            .map_err(|source| SealError::Directory { directory: directory.display().to_string(), source })
    }

    pub(super) fn check_space(&self, segment_bytes: u64) -> Result<(), SealError> {
        let directory = &self.inner.directory;
        let failed = |source| SealError::Directory { directory: directory.display().to_string(), source };
        let free_bytes = RealDisk::new().free_bytes(directory).map_err(failed)?;
        let needed_bytes = segment_bytes + META_RESERVE_BYTES;
        if free_bytes < needed_bytes {
            return Err(SealError::DiskFull { directory: directory.display().to_string(), free_bytes, needed_bytes });
        }
        Ok(())
    }

    /// Writes, syncs and opens a segment of the topic's own kind.
    pub(super) fn write_segment(
        &self,
        topic: &TopicInfo,
        batches: impl Iterator<Item = Sealing>,
        range: OffsetRange,
        name: SegmentName,
        now_ms: i64,
    ) -> Result<Written, SealError> {
        let directory = &self.inner.directory;
        match &topic.table {
            None => {
                let batches = batches.map(|batch| batch.map(|(batch, _)| batch));
                let meta = write_log_segment(directory, batches, range, name, now_ms)?;
                let segment = Segment::Log(Arc::new(LogSegment::open(directory, &meta)?));
                Ok(Written { meta, segment, raw_rows: 0 })
            }
            Some(schema) => {
                let (meta, raw_rows) = self.write_arrow_segment(topic, schema, batches, range, name, now_ms)?;
                let segment = Segment::Arrow(Arc::new(ArrowSegment::open(directory, &meta)?));
                Ok(Written { meta, segment, raw_rows })
            }
        }
    }

    fn write_arrow_segment(
        &self,
        topic: &TopicInfo,
        schema: &TableSchema,
        batches: impl Iterator<Item = Sealing>,
        range: OffsetRange,
        name: SegmentName,
        now_ms: i64,
    ) -> Result<(SegmentMeta, usize), SealError> {
        let id = self.inner.id;
        let info = ArrowSegmentInfo { topic_id: id.topic, partition: id.index, schema_id: 0 };
        let keep_raw = topic.config.weir_value_keep_raw == KeepRaw::Always;
        let mut writer = ArrowSegmentWriter::create(&self.inner.directory, name, info, schema, compression(topic))?;
        writer.cover_to(range.end);
        let mut raw_rows = 0;
        let mut run: Vec<(AssignedBatch, Option<RecordBatch>)> = Vec::new();
        let mut run_rows = 0;
        let mut write = |run: &mut Vec<(AssignedBatch, Option<RecordBatch>)>| {
            let borrowed: Vec<_> = run.iter().map(|(batch, columns)| (batch, columns.as_ref())).collect();
            let columns = columns_of_batches(schema, &borrowed, Detail::Sealed { keep_raw })
                .map_err(|source| SealError::Rows { partition: id, source })?;
            raw_rows += raw_row_count(&columns);
            run.clear();
            Ok::<_, SealError>(writer.append(&columns)?)
        };
        for batch in batches {
            let (batch, columns) = batch?;
            run_rows += usize::try_from(batch.header().record_count).unwrap_or(0);
            run.push((batch, columns));
            if run_rows >= RUN_ROWS {
                write(&mut run)?;
                run_rows = 0;
            }
        }
        if !run.is_empty() {
            write(&mut run)?;
        }
        Ok((writer.finish(now_ms)?, raw_rows))
    }
}

/// How a topic's `.arrow` segments are compressed.
pub(super) fn compression(topic: &TopicInfo) -> ArrowCompression {
    // Who keeps every row's bytes trades disk for the speed of reading them back: lz4 reads at twice zstd's speed.
    match topic.config.weir_value_keep_raw {
        KeepRaw::Always => ArrowCompression::Lz4,
        KeepRaw::WhenNeeded => ArrowCompression::Zstd,
    }
}

/// Writes batches as they are given.
pub(super) fn write_log_segment(
    directory: &Path,
    batches: impl Iterator<Item = Result<AssignedBatch, SegmentError>>,
    range: OffsetRange,
    name: SegmentName,
    now_ms: i64,
) -> Result<SegmentMeta, SegmentError> {
    let mut writer = LogSegmentWriter::create(directory, name)?;
    writer.cover_to(range.end);
    for batch in batches {
        writer.append(&batch?)?;
    }
    writer.finish(now_ms)
}
