//! What there is to compact, and whether it is time.

use std::ops::Range;
use std::sync::Arc;

use weir_model::Offset;
use weir_model::config::TopicConfig;

use super::super::merge::Limits;
use super::super::retain::age_of;
use super::super::{Segment, State};
use crate::segment::{LogSegment, SegmentMeta};

/// A tail smaller than this is not sealed for the dirty ratio's sake: a file of its own would not be worth it.
const LEAST_TAIL_BYTES: u64 = 4 << 20;

/// The part of a partition that a pass rewrites.
pub(super) struct Plan {
    /// Every segment that may be rewritten, in order.
    pub(super) segments: Vec<Arc<LogSegment>>,
    /// Below it each key has its newest value only. The map of newest offsets is made from here on.
    pub(super) dirty_start: Offset,
    /// Where the part ends that may be compacted now.
    pub(super) cleanable_end: Offset,
    /// Whether no sealed row lies behind the last of the segments.
    pub(super) is_whole: bool,
    clean_bytes: u64,
    dirty_bytes: u64,
    /// The age of the oldest dirty row.
    first_dirty_ms: Option<i64>,
    tombstones_due_ms: Option<i64>,
}

impl Plan {
    /// Looks at the segments of a compacted topic. Kafka's bounds (`LogCleanerManager.cleanableOffsets`), and one of ours: a
    /// row is in the lake before a newer one takes its place (LAKE-1).
    pub(super) fn of(state: &State, config: &TopicConfig, now_ms: i64) -> Option<Self> {
        let record = &state.record;
        let mut segments = Vec::new();
        // Nothing is compacted at or beyond an open transaction (Kafka's first unstable offset).
        for segment in state.segments.values().take_while(|segment| segment.is_decided()) {
            match segment {
                Segment::Log(segment) => segments.push(Arc::clone(segment)),
                // What is in the lake only cannot be rewritten; what is behind it can.
                Segment::Arrow(_) | Segment::Tiered(_) | Segment::Undecided(_) => segments.clear(),
            }
        }
        let first = segments.first()?.meta().range.start;
        let dirty_start = record.compacted_end.unwrap_or(Offset::ZERO).max(record.log_start).max(first);
        let in_lake = |meta: &SegmentMeta| {
            !config.weir_lake_enable || record.lake_end.is_some_and(|lake_end| meta.range.end <= lake_end)
        };
        let lag_ms = config.min_compaction_lag_ms;
        let is_old = |meta: &SegmentMeta| lag_ms <= 0 || age_of(meta) <= now_ms.saturating_sub(lag_ms);
        let cleanable = segments
            .iter()
            .take_while(|segment| {
                let meta = segment.meta();
                meta.range.end <= dirty_start || (in_lake(meta) && is_old(meta))
            })
            .count();
        let is_whole = cleanable == segments.len() && !state.has_undecided;
        segments.truncate(cleanable);
        let mut plan = Self {
            cleanable_end: segments.last().map_or(dirty_start, |segment| segment.meta().range.end),
            segments,
            dirty_start,
            is_whole,
            clean_bytes: 0,
            dirty_bytes: 0,
            first_dirty_ms: None,
            tombstones_due_ms: record.tombstones_due_ms,
        };
        for segment in &plan.segments {
            let meta = segment.meta();
            if meta.range.end <= dirty_start {
                plan.clean_bytes += meta.size_bytes;
                continue;
            }
            plan.dirty_bytes += meta.size_bytes;
            let since = if meta.min_timestamp > 0 { meta.min_timestamp.min(meta.created_ms) } else { meta.created_ms };
            plan.first_dirty_ms = Some(plan.first_dirty_ms.map_or(since, |first| first.min(since)));
        }
        Some(plan)
    }

    /// Whether it is time: enough of it is dirty, a row has waited for too long, or tombstones may go.
    pub(super) fn is_due(&self, config: &TopicConfig, now_ms: i64) -> bool {
        let waited = |first_ms: i64| now_ms.saturating_sub(first_ms) > config.max_compaction_lag_ms;
        let overdue = self.first_dirty_ms.is_some_and(waited);
        let dirty = self.dirty_bytes > 0 && (overdue || is_dirty(config, self.clean_bytes, self.dirty_bytes));
        dirty || (!self.segments.is_empty() && self.tombstones_due_ms.is_some_and(|due_ms| now_ms >= due_ms))
    }

    /// Rows of the dirty part, which is as many keys as it can have.
    pub(super) fn dirty_rows(&self) -> u64 {
        self.dirty_segments().map(|segment| segment.meta().rows).sum()
    }

    /// The segments that the map is made from.
    pub(super) fn dirty_segments(&self) -> impl Iterator<Item = &Arc<LogSegment>> {
        self.segments.iter().filter(|segment| segment.meta().range.end > self.dirty_start)
    }

    /// Runs of segments below `end` that become one each. As large as merging makes them, so that retention, which takes
    /// segments whole, stays exact.
    pub(super) fn groups(&self, end: Offset, limits: &Limits) -> Vec<Range<usize>> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        let mut total = 0;
        for (position, segment) in self.segments.iter().enumerate() {
            let meta = segment.meta();
            if meta.range.start >= end {
                break;
            }
            total += meta.size_bytes;
            if let Some(group) = groups.last_mut() {
                let first = self.segments[group.start].meta();
                let in_reach = meta.range.end.since(first.range.start) <= u64::from(i32::MAX.unsigned_abs());
                let alike = age_of(meta).abs_diff(age_of(first)) <= limits.age_ms;
                if total <= limits.bytes && in_reach && alike {
                    group.end = position + 1;
                    continue;
                }
            }
            groups.push(position..position + 1);
            total = meta.size_bytes;
        }
        groups
    }
}

/// Kafka's `min.cleanable.dirty.ratio`.
fn is_dirty(config: &TopicConfig, clean_bytes: u64, dirty_bytes: u64) -> bool {
    let total = clean_bytes + dirty_bytes;
    total > 0 && dirty_bytes as f64 / total as f64 > config.min_cleanable_dirty_ratio
}

/// At which size a compacted topic's tail is sealed. Kafka does it at `segment.bytes`. Here also as soon as it is as dirty as
/// `min.cleanable.dirty.ratio` allows compared with the `sealed_bytes` before it: until then its rows are in memory, in the
/// WAL, and in every replay, however often a key comes again.
pub(crate) fn seal_bytes(config: &TopicConfig, sealed_bytes: u64) -> u64 {
    let most = config.weir_seal_bytes.unsigned_abs().min(u64::from(config.segment_bytes.unsigned_abs()));
    let ratio = config.min_cleanable_dirty_ratio;
    if config.min_compaction_lag_ms > 0 || ratio >= 1.0 {
        return most;
    }
    let dirty_from = sealed_bytes as f64 * ratio / (1.0 - ratio);
    most.min((dirty_from as u64).max(LEAST_TAIL_BYTES))
}
