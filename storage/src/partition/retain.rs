//! What goes: the log start moves, local copies of tiered rows are dropped, expired segments are deleted.
//!
//! Every step is committed before a file is touched, and the file goes last: a crash in between leaves a file that nobody
//! names, never a name without its file.

use std::sync::Arc;

use weir_model::{Offset, PartitionId};

use super::{Partition, Segment};
use crate::manifest::{self, PartitionRecord, SegmentRecord};
use crate::meta::{MetaBatch, MetaError};
use crate::segment::{SegmentError, SegmentMeta, remove_segment};

/// Why old data stayed.
#[derive(Debug, thiserror::Error)]
pub enum RetainError {
    /// The change was not stored.
    #[error("retention of {partition} was not committed: {source}")]
    Store {
        /// Whose.
        partition: PartitionId,
        /// What the store said.
        source: MetaError,
    },
    /// A file that nobody names any more was not removed.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// An offset outside the log.
    #[error("log start cannot move to {requested}; the high watermark is {high_watermark}")]
    OutOfRange {
        /// What was asked for.
        requested: Offset,
        /// The most there is.
        high_watermark: Offset,
    },
    /// Sealing, which retention by time needs for a tail that has expired, failed.
    #[error(transparent)]
    Seal(#[from] super::SealError),
}

/// What a retention pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Segments that are gone for good.
    pub deleted: usize,
    /// Local copies dropped whose rows are in the lake.
    pub dropped_local: usize,
}

impl Partition {
    /// Moves the log start to `to` (DeleteRecords, S-63) and deletes segments that lie wholly below. Never back. Blocks.
    ///
    /// # Errors
    /// [`RetainError::OutOfRange`] above the high watermark.
    pub fn advance_log_start(&self, to: Offset) -> Result<Offset, RetainError> {
        let _manifest = self.inner.manifest.lock();
        let high_watermark = self.offsets().high_watermark();
        if to > high_watermark {
            return Err(RetainError::OutOfRange { requested: to, high_watermark });
        }
        let record = self.inner.state.lock().record;
        if to <= record.log_start {
            return Ok(record.log_start);
        }
        self.commit_retention(PartitionRecord { log_start: to, ..record }, &[])?;
        Ok(to)
    }

    /// Takes note that the lake holds every row below `end`, after its marker was read back (LAKE-2). Never back. Blocks.
    ///
    /// # Errors
    /// [`RetainError::Store`].
    pub fn set_lake_end(&self, end: Offset) -> Result<(), RetainError> {
        let _manifest = self.inner.manifest.lock();
        let record = self.inner.state.lock().record;
        if record.lake_end.is_some_and(|known| known >= end) {
            return Ok(());
        }
        self.commit_retention(PartitionRecord { lake_end: Some(end), ..record }, &[])
    }

    /// One pass of retention: deletes what `retention.ms` and `retention.bytes` let go, and drops the local copy of what
    /// `local.retention.*` lets go once the lake has it. A compacted topic deletes nothing. Blocks.
    ///
    /// # Errors
    /// [`RetainError`]; what was done before stays done.
    pub fn retain(&self) -> Result<Retained, RetainError> {
        let topic = self.topic();
        let config = &topic.config;
        let now_ms = self.inner.shared.clock.now_ms();
        if !config.cleanup_policy.delete {
            return Ok(Retained::default());
        }
        if self.tail_has_expired(now_ms, config.retention_ms) {
            self.seal()?;
        }
        let _manifest = self.inner.manifest.lock();
        let (record, segments, tail_bytes) = {
            let state = self.inner.state.lock();
            let segments: Vec<Segment> = state.segments.values().cloned().collect();
            (state.record, segments, state.tail.batch_bytes() as u64)
        };
        let log_start =
            log_start_after(&segments, &record, tail_bytes, config.retention_ms, config.retention_bytes, now_ms);
        let dropped = if config.weir_lake_enable {
            let (ms, bytes) = (
                or_total(config.local_retention_ms, config.retention_ms),
                or_total(config.local_retention_bytes, config.retention_bytes),
            );
            local_copies_to_drop(&segments, &record, tail_bytes, ms, bytes, now_ms)
        } else {
            Vec::new()
        };
        let deleted = segments.iter().filter(|segment| segment.meta().range.end <= log_start).count();
        let dropped: Vec<Offset> = dropped.into_iter().filter(|start| *start >= log_start).collect();
        if log_start > record.log_start || !dropped.is_empty() {
            self.commit_retention(PartitionRecord { log_start: log_start.max(record.log_start), ..record }, &dropped)?;
        }
        Ok(Retained { deleted, dropped_local: dropped.len() })
    }

    fn tail_has_expired(&self, now_ms: i64, retention_ms: i64) -> bool {
        if retention_ms < 0 {
            return false;
        }
        let state = self.inner.state.lock();
        let mut newest = None;
        for entry in state.tail.iter().filter(|entry| !entry.is_control()) {
            newest = newest.max(Some(entry.batch.header().max_timestamp));
        }
        newest.is_some_and(|newest| newest >= 0 && newest < now_ms - retention_ms)
    }

    /// Stores `record`, forgets segments wholly below its log start, marks `dropped` ones as in the lake only; then removes
    /// the files. The manifest lock is held by the caller.
    fn commit_retention(&self, record: PartitionRecord, dropped: &[Offset]) -> Result<(), RetainError> {
        let inner = &self.inner;
        let id = inner.id;
        let (gone, tiered): (Vec<Segment>, Vec<Segment>) = {
            let state = inner.state.lock();
            let gone = state
                .segments
                .values()
                .filter(|segment| segment.meta().range.end <= record.log_start)
                .cloned()
                .collect();
            let tiered = dropped.iter().filter_map(|start| state.segments.get(start).cloned()).collect();
            (gone, tiered)
        };
        let mut batch = MetaBatch::new().put(manifest::partition_key(id), manifest::encode(&record));
        for segment in &gone {
            batch = batch.delete(manifest::segment_key(id, segment.meta().range.start));
        }
        for segment in &tiered {
            let stored = SegmentRecord { meta: segment.meta().clone(), local: false };
            batch = batch.put(manifest::segment_key(id, segment.meta().range.start), manifest::encode(&stored));
        }
        inner.shared.meta.commit(batch).map_err(|source| RetainError::Store { partition: id, source })?;

        let mut state = inner.state.lock();
        state.record = record;
        for segment in &gone {
            state.segments.remove(&segment.meta().range.start);
        }
        for segment in &tiered {
            let meta: SegmentMeta = segment.meta().clone();
            state.segments.insert(meta.range.start, Segment::Tiered(Arc::new(meta)));
        }
        state.has_undecided = state.segments.values().any(|segment| !segment.is_decided());
        for segment in gone.iter().chain(&tiered).filter(|segment| segment.is_local()) {
            state.local_bytes = state.local_bytes.saturating_sub(segment.meta().size_bytes);
        }
        drop(state);
        for segment in gone.iter().chain(&tiered).filter(|segment| segment.is_local()) {
            // Readers that hold the file open keep it until they are done.
            remove_segment(&inner.directory, segment.meta())?;
        }
        Ok(())
    }
}

/// Kafka's -2: local retention follows the total.
fn or_total(local: i64, total: i64) -> i64 {
    if local == -2 { total } else { local }
}

/// Whether a segment of this max timestamp has passed `retention_ms`; one without timestamps goes by its age.
fn has_expired(meta: &SegmentMeta, retention_ms: i64, now_ms: i64) -> bool {
    retention_ms >= 0 && age_of(meta) < now_ms.saturating_sub(retention_ms)
}

/// The time from which retention counts.
pub(super) fn age_of(meta: &SegmentMeta) -> i64 {
    if meta.max_timestamp >= 0 { meta.max_timestamp } else { meta.created_ms }
}

/// Where the log starts once expired segments are gone, oldest first, the first that stays ends the walk (Kafka's
/// `UnifiedLog.deleteOldSegments`).
fn log_start_after(
    segments: &[Segment],
    record: &PartitionRecord,
    tail_bytes: u64,
    retention_ms: i64,
    retention_bytes: i64,
    now_ms: i64,
) -> Offset {
    let mut total = tail_bytes + segments.iter().map(|segment| segment.meta().size_bytes).sum::<u64>();
    let mut start = record.log_start;
    for segment in segments {
        let meta = segment.meta();
        // What is undecided may be committed yet, and is kept until it is known.
        if !segment.is_decided() {
            break;
        }
        let over_size = u64::try_from(retention_bytes).is_ok_and(|limit| total - meta.size_bytes >= limit);
        if meta.range.end > record.log_start && !has_expired(meta, retention_ms, now_ms) && !over_size {
            break;
        }
        total -= meta.size_bytes;
        start = start.max(meta.range.end);
    }
    start
}

/// First offsets of the segments whose local copy may go: in the lake by a marker that was read back, and past local retention.
fn local_copies_to_drop(
    segments: &[Segment],
    record: &PartitionRecord,
    tail_bytes: u64,
    retention_ms: i64,
    retention_bytes: i64,
    now_ms: i64,
) -> Vec<Offset> {
    let Some(lake_end) = record.lake_end else { return Vec::new() };
    let local = segments.iter().filter(|segment| segment.is_local());
    let mut total = tail_bytes + local.clone().map(|segment| segment.meta().size_bytes).sum::<u64>();
    let mut drop = Vec::new();
    for meta in local.take_while(|segment| segment.is_decided()).map(Segment::meta) {
        let over_size = u64::try_from(retention_bytes).is_ok_and(|limit| total > limit);
        if meta.range.end > lake_end || !(has_expired(meta, retention_ms, now_ms) || over_size) {
            break;
        }
        total -= meta.size_bytes;
        drop.push(meta.range.start);
    }
    drop
}
