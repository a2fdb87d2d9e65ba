//! Log compaction (`cleanup.policy=compact`): of each key only the newest row stays (Kafka's `LogCleaner` and `Cleaner`).
//!
//! A pass reads the *dirty* part, the sealed rows since the last pass, into a map from key to newest offset; then it goes
//! over all segments from the first on and leaves out what a newer row of its key has superseded. Where the map is full the
//! pass ends early, and the next one goes on there. Tombstones stay for `delete.retention.ms` from the first pass that
//! kept them; that time is written into their batch (KIP-534).
//!
//! What Kafka guarantees holds (S-73): offsets never change and order is kept; the newest row of each key stays; the tail,
//! where open transactions are, is never touched; the last batch stays, if only as a header, so that a reader who follows
//! gets to the end. Producers' sequences do not come from the segments, so they survive.
//!
//! Files are swapped as in [`super::merge`], one group of segments after the other, oldest first. That order makes a crash
//! in between harmless: a row goes only while a newer one of its key is there, and a tombstone begins to age only when all
//! before it are gone.

mod filter;
mod offset_map;
mod plan;

use std::sync::Arc;

use weir_model::Offset;
use weir_model::record_batch::{AssignedBatch, BatchError, RecordIter};

use self::filter::{Filter, Kept};
use self::offset_map::OffsetMap;
use self::plan::Plan;
use super::Partition;
use super::merge::{Limits, MergeError, PreparedMerge};
use crate::manifest::{self, PartitionRecord};
use crate::meta::MetaBatch;
use crate::segment::{LogSegment, LogSegmentWriter, SegmentError, SegmentMeta, SegmentName, remove_segment};
use crate::shared::{Counters, MAX_DECOMPRESSED_BYTES};

pub(crate) use plan::seal_bytes;

/// What a pass may use (`log.cleaner.*`).
pub(crate) struct CompactionLimits<'a> {
    /// Bytes of the map of newest offsets.
    pub(crate) map_bytes: u64,
    /// How full that may get.
    pub(crate) load_factor: f64,
    /// Told of bytes that were read or written; it waits where that is too fast.
    pub(crate) throttle: &'a dyn Fn(u64),
}

/// What came of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compaction {
    /// It got to its end.
    Done(Compacted),
    /// There is too little to do, or it is too early, or the broker is stopping.
    NotDue,
    /// Retention took a segment meanwhile. What was done before stays done.
    Overtaken,
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compacted {
    /// First offset that the next pass has to look at.
    pub(crate) end: Option<Offset>,
    /// Rows left out.
    pub(crate) removed_rows: u64,
    /// Bytes that segment files have become smaller by.
    pub(crate) freed_bytes: u64,
    /// Segments written.
    pub(crate) segments: usize,
}

/// What became of a group of segments.
enum Cleaned {
    /// This takes their place.
    Rewritten(PreparedMerge),
    /// Nothing in it was superseded.
    AsItWas,
    /// The broker is stopping.
    Stopped,
}

impl Partition {
    /// Whether a pass of compaction is due.
    pub(crate) fn compaction_is_due(&self) -> bool {
        let topic = self.topic();
        if !topic.config.cleanup_policy.compact {
            return false;
        }
        let now_ms = self.inner.shared.clock.now_ms();
        let plan = Plan::of(&self.inner.state.lock(), &topic.config, now_ms);
        plan.is_some_and(|plan| plan.is_due(&topic.config, now_ms))
    }

    /// The first offset of the tail and the time its batch carries, when it has one.
    pub(crate) fn tail_start(&self) -> Option<(Offset, i64)> {
        let state = self.inner.state.lock();
        state.tail.front().map(|entry| (entry.start(), entry.batch.header().max_timestamp))
    }

    /// One pass, if it is due. Blocks, for as long as it takes to read and write the partition's segments; ends early when the
    /// topic is deleted or compaction is stopped.
    ///
    /// # Errors
    /// [`MergeError`]; every row that is needed is where it was.
    pub(crate) fn compact(&self, limits: &CompactionLimits<'_>) -> Result<Compaction, MergeError> {
        let _merging = self.inner.merging.lock();
        let topic = self.topic();
        let now_ms = self.inner.shared.clock.now_ms();
        if self.compaction_is_stopped() || !topic.config.cleanup_policy.compact {
            return Ok(Compaction::NotDue);
        }
        let plan = Plan::of(&self.inner.state.lock(), &topic.config, now_ms);
        let Some(plan) = plan.filter(|plan| plan.is_due(&topic.config, now_ms)) else {
            return Ok(Compaction::NotDue);
        };
        let latest = OffsetMap::new(limits.map_bytes, limits.load_factor, plan.dirty_rows());
        let delete_retention_ms = topic.config.delete_retention_ms;
        let mut filter = Filter { latest, end: plan.dirty_start, now_ms, delete_retention_ms };
        if !self.fill(&mut filter, &plan, limits)? {
            return Ok(Compaction::NotDue);
        }
        let mut done = Compacted::default();
        let mut tombstones_due_ms = None;
        for group in plan.groups(filter.end, &Limits::of(&topic)) {
            let keep_last = plan.is_whole && group.end == plan.segments.len();
            let segments = &plan.segments[group];
            match self.clean(segments, &filter, keep_last, &mut tombstones_due_ms, limits)? {
                Cleaned::Stopped => return Ok(Compaction::NotDue),
                Cleaned::AsItWas => {}
                Cleaned::Rewritten(prepared) => {
                    let Some(meta) = self.swap(prepared)? else { return Ok(Compaction::Overtaken) };
                    let before = |of: fn(&SegmentMeta) -> u64| segments.iter().map(|one| of(one.meta())).sum::<u64>();
                    done.removed_rows += before(|meta| meta.rows) - meta.rows;
                    done.freed_bytes += before(|meta| meta.size_bytes).saturating_sub(meta.size_bytes);
                    done.segments += 1;
                }
            }
        }
        self.commit_compacted(filter.end, tombstones_due_ms)?;
        done.end = Some(filter.end);
        let counters = &self.inner.shared.counters;
        Counters::add(&counters.compactions, 1);
        counters.compacted_rows.fetch_add(done.removed_rows, std::sync::atomic::Ordering::Relaxed);
        tracing::debug!(partition = %self.id(), keys = filter.latest.len(), ?done, "compacted");
        Ok(Compaction::Done(done))
    }

    fn compaction_is_stopped(&self) -> bool {
        self.is_closed() || self.inner.shared.compactor.is_stopped()
    }

    /// Notes the newest offset of every key in the dirty part, as far as there is room, and where that ends. Says whether it
    /// got there.
    fn fill(&self, filter: &mut Filter, plan: &Plan, limits: &CompactionLimits<'_>) -> Result<bool, MergeError> {
        for segment in plan.dirty_segments() {
            for batch in segment.batches(plan.dirty_start)? {
                if self.compaction_is_stopped() {
                    return Ok(false);
                }
                let batch = batch?;
                (limits.throttle)(batch.size() as u64);
                let full = note_keys(filter, &batch, plan.dirty_start)
                    .map_err(|error| self.unreadable(segment.meta(), &batch, &error))?;
                if full {
                    return Ok(true);
                }
            }
        }
        filter.end = plan.cleanable_end.max(plan.dirty_start);
        Ok(true)
    }

    /// Writes what is left of a group, and reads it back. With `keep_last` its last batch stays at least as a header.
    fn clean(
        &self,
        segments: &[Arc<LogSegment>],
        filter: &Filter,
        keep_last: bool,
        tombstones_due_ms: &mut Option<i64>,
        limits: &CompactionLimits<'_>,
    ) -> Result<Cleaned, MergeError> {
        let inner = &*self.inner;
        let inputs: Vec<SegmentMeta> = segments.iter().map(|segment| segment.meta().clone()).collect();
        let (Some(first), Some(last)) = (inputs.first(), inputs.last()) else { return Ok(Cleaned::AsItWas) };
        self.check_merge_space(inputs.iter().map(|meta| meta.size_bytes).sum())?;
        let generation = inputs.iter().map(|meta| meta.generation).max().unwrap_or(0) + 1;
        let mut writer =
            LogSegmentWriter::create(&inner.directory, SegmentName { base_offset: first.range.start, generation })?;
        writer.cover_to(last.range.end);

        let (mut rows, mut changed) = (0, inputs.len() > 1);
        for (position, segment) in segments.iter().enumerate() {
            let is_last_segment = position + 1 == segments.len();
            let mut batches = segment.batches(segment.meta().range.start)?.peekable();
            while let Some(batch) = batches.next() {
                if self.compaction_is_stopped() {
                    return Ok(Cleaned::Stopped);
                }
                let batch = batch?;
                let keep_empty = keep_last && is_last_segment && batches.peek().is_none();
                let filtered = filter
                    .judge(&batch, keep_empty)
                    .map_err(|error| self.unreadable(segment.meta(), &batch, &error))?;
                let kept = match filtered.kept {
                    Kept::Whole => Some(batch.clone()),
                    Kept::Part(part) => {
                        changed = true;
                        Some(part)
                    }
                    Kept::Nothing => {
                        changed = true;
                        None
                    }
                };
                *tombstones_due_ms = match (*tombstones_due_ms, filtered.delete_horizon_ms) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
                let mut moved_bytes = batch.size() as u64;
                if let Some(kept) = kept {
                    rows += u64::try_from(kept.header().record_count).unwrap_or(0);
                    moved_bytes += kept.size() as u64;
                    writer.append(&kept)?;
                }
                (limits.throttle)(moved_bytes);
            }
        }
        if !changed {
            return Ok(Cleaned::AsItWas);
        }
        // Retention goes by age where rows have no time; what is left is as old as the newest of its segments.
        let created_ms = inputs.iter().map(|meta| meta.created_ms).max().unwrap_or(0);
        let meta = writer.finish(created_ms)?;
        match self.read_back(&meta, rows) {
            Ok(segment) => Ok(Cleaned::Rewritten(PreparedMerge { inputs, meta, segment })),
            Err(error) => {
                remove_segment(&inner.directory, &meta)?;
                Err(error)
            }
        }
    }

    /// Stores how far the pass got.
    fn commit_compacted(&self, end: Offset, tombstones_due_ms: Option<i64>) -> Result<(), MergeError> {
        let inner = &*self.inner;
        let _manifest = inner.manifest.lock();
        if self.is_closed() {
            return Ok(());
        }
        let known = inner.state.lock().record;
        let record = PartitionRecord { compacted_end: Some(end), tombstones_due_ms, ..known };
        if record == known {
            return Ok(());
        }
        let batch = MetaBatch::new().put(manifest::partition_key(inner.id), manifest::encode(&record));
        inner.shared.meta.commit(batch).map_err(|source| MergeError::Store { partition: inner.id, source })?;
        inner.state.lock().record = record;
        Ok(())
    }

    fn unreadable(&self, meta: &SegmentMeta, batch: &AssignedBatch, error: &BatchError) -> MergeError {
        let file = self.inner.directory.join(&meta.file);
        SegmentError::corrupt(&file, format!("records at offset {}: {error}", batch.header().base_offset)).into()
    }
}

/// Notes the keys of a batch from `from` on. Says whether the map is full; its end is then where there was no room.
fn note_keys(filter: &mut Filter, batch: &AssignedBatch, from: Offset) -> Result<bool, BatchError> {
    let header = batch.header();
    if header.attributes.is_control() || header.record_count == 0 {
        return Ok(false);
    }
    let section = batch.records(MAX_DECOMPRESSED_BYTES)?;
    for record in RecordIter::new(&section, header.record_count) {
        let record = record?;
        let offset = Offset::new(header.base_offset + i64::from(record.offset_delta))
            .ok_or(BatchError::Malformed("an offset is negative"))?;
        let Some(key) = record.key.filter(|_| offset >= from) else { continue };
        if !filter.latest.put(key, offset) {
            filter.end = offset;
            return Ok(true);
        }
    }
    Ok(false)
}
