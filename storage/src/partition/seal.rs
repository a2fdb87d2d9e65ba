//! Sealing: a durable stretch of the tail becomes a segment (DESIGN 4, step 6).
//!
//! The order is what makes it safe: the segment is written and synced; one commit of the metadata store names it, moves the
//! sealed end and stores the producers as of there; only then does the tail let go. A crash in between leaves an unnamed file.

use std::path::Path;
use std::sync::Arc;

use parking_lot::MutexGuard;
use weir_model::config::KeepRaw;
use weir_model::{Offset, PartitionId};
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
    SegmentMeta,
};
use crate::shared::{Counters, Shared};
use crate::tail::TailEntry;
use crate::topics::TopicInfo;

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
            Self::Rows { .. } | Self::Store { .. } => false,
        }
    }
}

/// A segment that is written and synced, and not yet named.
struct PreparedSeal<'p> {
    inner: &'p Inner,
    _manifest: MutexGuard<'p, ()>,
    meta: SegmentMeta,
    segment: Segment,
    record: PartitionRecord,
    producers: ProducerTable,
    raw_rows: usize,
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
        state.segments.insert(meta.range.start, segment);
        let freed = state.tail.drop_below(record.sealed_end);
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

fn commit_all(shared: &Shared, prepared: Vec<PreparedSeal<'_>>) -> Result<(), SealError> {
    let Some(first) = prepared.first() else { return Ok(()) };
    let partition = first.inner.id;
    let batch = prepared.iter().fold(MetaBatch::new(), |batch, seal| seal.add_to(batch));
    shared.meta.commit(batch).map_err(|source| SealError::Store { partition, source })?;
    prepared.into_iter().for_each(PreparedSeal::publish);
    Ok(())
}

/// Seals several partitions with one commit of the metadata store. When one of them fails, those before it are sealed.
/// Blocks. Only the sealer's thread may call it: it holds the manifests of all of them together.
///
/// # Errors
/// The first [`SealError`].
pub(crate) fn seal_together(shared: &Shared, partitions: &[Partition]) -> Result<(), SealError> {
    let mut prepared = Vec::with_capacity(partitions.len());
    let mut failed = Ok(());
    for partition in partitions {
        match partition.prepare_seal() {
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
    /// Seals everything durable in the tail into one segment. `None` when there is nothing. Blocks; call it from a
    /// thread that may.
    ///
    /// # Errors
    /// [`SealError`]; nothing changed then.
    pub fn seal(&self) -> Result<Option<SegmentMeta>, SealError> {
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
        let (entries, record, mut producers) = {
            let state = inner.state.lock();
            let durable = inner.offsets(&state).last_stable();
            let entries: Vec<TailEntry> =
                state.tail.iter().take_while(|entry| entry.end() <= durable).cloned().collect();
            (entries, state.record, state.sealed_producers.clone())
        };
        let Some(end) = entries.last().map(TailEntry::end) else { return Ok(None) };
        self.make_directory()?;
        self.check_space(entries.iter().map(|entry| entry.batch.size() as u64).sum())?;

        let now_ms = inner.shared.clock.now_ms();
        let (meta, segment, raw_rows) = self.write_segment(&topic, &entries, record.sealed_end, end, now_ms)?;
        for entry in &entries {
            producers.record(entry.batch.header(), now_ms);
        }
        let record = PartitionRecord { sealed_end: end, ..record };
        Ok(Some(PreparedSeal { inner, _manifest: manifest, meta, segment, record, producers, raw_rows }))
    }

    /// Makes the partition's directory with the first seal, durably: a segment is only as durable as the names above it.
    fn make_directory(&self) -> Result<(), SealError> {
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

    fn check_space(&self, segment_bytes: u64) -> Result<(), SealError> {
        let directory = &self.inner.directory;
        let failed = |source| SealError::Directory { directory: directory.display().to_string(), source };
        let free_bytes = RealDisk::new().free_bytes(directory).map_err(failed)?;
        let needed_bytes = segment_bytes + META_RESERVE_BYTES;
        if free_bytes < needed_bytes {
            return Err(SealError::DiskFull { directory: directory.display().to_string(), free_bytes, needed_bytes });
        }
        Ok(())
    }

    fn write_segment(
        &self,
        topic: &TopicInfo,
        entries: &[TailEntry],
        start: Offset,
        end: Offset,
        now_ms: i64,
    ) -> Result<(SegmentMeta, Segment, usize), SealError> {
        let directory = &self.inner.directory;
        match &topic.table {
            None => {
                let meta = write_log_segment(directory, entries, start, end, now_ms)?;
                let segment = LogSegment::open(directory, &meta)?;
                Ok((meta, Segment::Log(Arc::new(segment)), 0))
            }
            Some(schema) => {
                let (meta, raw_rows) = self.write_arrow_segment(topic, schema, entries, start, end, now_ms)?;
                let segment = ArrowSegment::open(directory, &meta)?;
                Ok((meta, Segment::Arrow(Arc::new(segment)), raw_rows))
            }
        }
    }

    fn write_arrow_segment(
        &self,
        topic: &TopicInfo,
        schema: &TableSchema,
        entries: &[TailEntry],
        start: Offset,
        end: Offset,
        now_ms: i64,
    ) -> Result<(SegmentMeta, usize), SealError> {
        let id = self.inner.id;
        let rows_error = |source| SealError::Rows { partition: id, source };
        let info = ArrowSegmentInfo { topic_id: id.topic, partition: id.index, schema_id: 0 };
        let keep_raw = topic.config.weir_value_keep_raw == KeepRaw::Always;
        let mut writer = ArrowSegmentWriter::create(&self.inner.directory, start, info, schema, compression(topic))?;
        writer.cover_to(end);
        let mut raw_rows = 0;
        let mut run = Vec::new();
        let mut run_rows = 0;
        for (position, entry) in entries.iter().enumerate() {
            run_rows += usize::try_from(entry.batch.header().record_count).unwrap_or(0);
            run.push((&entry.batch, entry.columns.as_ref()));
            if run_rows >= RUN_ROWS || position + 1 == entries.len() {
                let columns = columns_of_batches(schema, &run, Detail::Sealed { keep_raw }).map_err(rows_error)?;
                raw_rows += raw_row_count(&columns);
                writer.append(&columns)?;
                run.clear();
                run_rows = 0;
            }
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

fn write_log_segment(
    directory: &Path,
    entries: &[TailEntry],
    start: Offset,
    end: Offset,
    now_ms: i64,
) -> Result<SegmentMeta, SealError> {
    let mut writer = LogSegmentWriter::create(directory, start)?;
    writer.cover_to(end);
    for entry in entries {
        writer.append(&entry.batch)?;
    }
    Ok(writer.finish(now_ms)?)
}
