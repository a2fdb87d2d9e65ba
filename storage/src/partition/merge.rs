//! Merging: runs of small adjacent segments become one, toward `segment.bytes` (DESIGN 4, step 7). Under the tail's budget a
//! thousand partitions are sealed a few hundred KB at a time; without merging each would collect files for ever.
//!
//! The merged file is written without the manifest's lock, so that sealing goes on meanwhile, and is read back whole: its
//! inputs are the only copy. Then, under the lock, the inputs must still be what was read. One commit of the metadata store
//! takes their names away and gives the new one; only after it do readers move over and the files go. A crash leaves the
//! merged file or its inputs without a name; [`super::leftovers`] says what becomes of them.

use std::ops::Range;
use std::sync::Arc;

use weir_model::PartitionId;

use super::retain::age_of;
use super::seal::{META_RESERVE_BYTES, compression};
use super::{Partition, Segment, State};
use crate::disk::{Disk, RealDisk};
use crate::manifest::{self, SegmentRecord};
use crate::meta::{MetaBatch, MetaError};
use crate::segment::{
    ArrowSegment, ArrowSegmentInfo, ArrowSegmentWriter, LogSegment, LogSegmentWriter, SegmentError, SegmentKind,
    SegmentMeta, SegmentName, remove_segment,
};
use crate::shared::Counters;
use crate::topics::TopicInfo;

/// Fewer are not worth a file's sync and a commit.
const LEAST_INPUTS: usize = 8;
/// More wait for the next merge: a bound for what is open together, and for how far [`pick`] looks.
const MOST_INPUTS: usize = 64;
/// The result is at least this many times as large as its largest input, so a row is written again at most
/// log4(`segment.bytes` / size as sealed) times: six times from 250 KB to 1 GiB. Segments of alike sizes pass with eight of
/// them; a large one among small ones waits until the small ones have merged among themselves. To ask for alike sizes alone
/// would leave a partition unmerged whose seals are large and small by turns.
const LEAST_GROWTH: u64 = 4;
/// Inputs are smaller than this part of the most that a merged segment may have.
const LARGE_PART: u64 = 4;
/// Columns take about an eighth of the bytes that they were sealed from, and cost a decoding and an encoding to merge.
const COLUMNS_SHRINK: u64 = 8;
/// Retention takes segments whole. A merged one has at most this part of what retention keeps, in bytes and in time, so that
/// no row outlives its retention by more than that on account of merging.
const RETENTION_PART: u64 = 8;
/// However little is to stay local, merging up to this goes on: rows that wait for a lake that is away pile up too.
const LEAST_LOCAL_BYTES: u64 = 8 << 20;

/// Why a run of segments was not merged, or not compacted. They are as they were.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// An input does not read, or the merged segment was not written or did not read back.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The merged segment lacks rows of its inputs, or has more.
    #[error("merge of {partition} gave {found} rows of {expected}; the merged file was dropped, please report this")]
    Rows {
        /// Whose.
        partition: PartitionId,
        /// Rows of the inputs.
        expected: u64,
        /// Rows of the result.
        found: u64,
    },
    /// Whether the merged segment is named is not known; both it and its inputs were left.
    #[error("merge of {partition} was not committed: {source}")]
    Store {
        /// Whose.
        partition: PartitionId,
        /// What the store said.
        source: MetaError,
    },
    /// Too little space. Merging can wait; producers cannot.
    #[error(
        "{directory} has {free_bytes} bytes free, merging waits for {needed_bytes}; free space or shorten retention"
    )]
    DiskFull {
        /// Where.
        directory: String,
        /// What there is.
        free_bytes: u64,
        /// What there should be.
        needed_bytes: u64,
    },
}

/// What came of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// This segment took the place of several.
    Done(SegmentMeta),
    /// There is no run worth it, or the broker is stopping.
    NotDue,
    /// An input went while the merged segment was written; that was dropped.
    Overtaken,
}

/// A run of adjacent local segments of one kind: one of `logs` and `arrows` is empty.
#[derive(Default)]
struct Inputs {
    metas: Vec<SegmentMeta>,
    logs: Vec<Arc<LogSegment>>,
    arrows: Vec<Arc<ArrowSegment>>,
}

/// A merged segment that is written, synced and read back, and not yet named.
pub(super) struct PreparedMerge {
    pub(super) inputs: Vec<SegmentMeta>,
    pub(super) meta: SegmentMeta,
    pub(super) segment: Segment,
}

impl Partition {
    /// Whether there is a run of small segments to merge.
    pub(crate) fn merge_is_due(&self) -> bool {
        let limits = Limits::of(&self.topic());
        let state = self.inner.state.lock();
        pick(&candidates(&state), &limits).is_some()
    }

    /// Merges one run of small segments. Blocks, for as long as it takes to read and write up to `segment.bytes`; ends early
    /// when the topic is deleted or merging is stopped.
    ///
    /// # Errors
    /// [`MergeError`]; readers see no change then.
    pub(crate) fn merge(&self) -> Result<Merge, MergeError> {
        let _merging = self.inner.merging.lock();
        match self.prepare_merge()? {
            Some(prepared) => self.publish_merge(prepared),
            None => Ok(Merge::NotDue),
        }
    }

    /// Writes the merged segment and reads it back. The caller holds the merging lock.
    pub(super) fn prepare_merge(&self) -> Result<Option<PreparedMerge>, MergeError> {
        let inner = &*self.inner;
        if self.merge_is_stopped() {
            return Ok(None);
        }
        let topic = self.topic();
        let inputs = self.merge_inputs(&Limits::of(&topic));
        let (Some(first), Some(last)) = (inputs.metas.first(), inputs.metas.last()) else { return Ok(None) };
        self.check_merge_space(inputs.metas.iter().map(|meta| meta.size_bytes).sum())?;

        let generation = inputs.metas.iter().map(|meta| meta.generation).max().unwrap_or(0) + 1;
        let name = SegmentName { base_offset: first.range.start, generation };
        let (end, rows) = (last.range.end, inputs.metas.iter().map(|meta| meta.rows).sum());
        // Retention goes by age where rows have no time; the merged segment is as old as its newest rows.
        let created_ms = inputs.metas.iter().map(|meta| meta.created_ms).max().unwrap_or(0);
        let written = if inputs.arrows.is_empty() {
            let mut writer = LogSegmentWriter::create(&inner.directory, name)?;
            writer.cover_to(end);
            if !self.copy_batches(&inputs.logs, &mut writer)? {
                return Ok(None);
            }
            writer.finish(created_ms)?
        } else {
            let id = inner.id;
            let info = ArrowSegmentInfo { topic_id: id.topic, partition: id.index, schema_id: first.schema_id };
            let mut writer =
                ArrowSegmentWriter::create(&inner.directory, name, info, &topic.columns(), compression(&topic))?;
            writer.cover_to(end);
            if !self.copy_blocks(&inputs.arrows, &mut writer)? {
                return Ok(None);
            }
            writer.finish(created_ms)?
        };
        match self.read_back(&written, rows) {
            Ok(segment) => Ok(Some(PreparedMerge { inputs: inputs.metas, meta: written, segment })),
            Err(error) => {
                remove_segment(&inner.directory, &written)?;
                Err(error)
            }
        }
    }

    fn merge_inputs(&self, limits: &Limits) -> Inputs {
        let state = self.inner.state.lock();
        let mut inputs = Inputs::default();
        let Some(run) = pick(&candidates(&state), limits) else { return inputs };
        for segment in state.segments.values().skip(run.start).take(run.len()) {
            inputs.metas.push(segment.meta().clone());
            match segment {
                Segment::Log(segment) => inputs.logs.push(Arc::clone(segment)),
                Segment::Arrow(segment) => inputs.arrows.push(Arc::clone(segment)),
                Segment::Tiered(_) | Segment::Undecided(_) => unreachable!("only local, decided segments are picked"),
            }
        }
        inputs
    }

    /// Twice the inputs: what is written, and as much again for producers while it is.
    pub(super) fn check_merge_space(&self, input_bytes: u64) -> Result<(), MergeError> {
        let directory = &self.inner.directory;
        let free_bytes = RealDisk::new().free_bytes(directory).map_err(SegmentError::io("look at", directory))?;
        let needed_bytes = input_bytes * 2 + META_RESERVE_BYTES;
        if free_bytes < needed_bytes {
            return Err(MergeError::DiskFull { directory: directory.display().to_string(), free_bytes, needed_bytes });
        }
        Ok(())
    }

    fn merge_is_stopped(&self) -> bool {
        self.is_closed() || self.inner.shared.merger.is_stopped()
    }

    /// The batches as they came, their CRCs checked on the way. Says whether it got to the end.
    fn copy_batches(&self, segments: &[Arc<LogSegment>], writer: &mut LogSegmentWriter) -> Result<bool, SegmentError> {
        for segment in segments {
            for batch in segment.batches(segment.meta().range.start)? {
                if self.merge_is_stopped() {
                    return Ok(false);
                }
                writer.append(&batch?)?;
            }
        }
        Ok(true)
    }

    /// The rows, in blocks that are as full as they can be. Says whether it got to the end.
    fn copy_blocks(
        &self,
        segments: &[Arc<ArrowSegment>],
        writer: &mut ArrowSegmentWriter,
    ) -> Result<bool, SegmentError> {
        for segment in segments {
            for block in 0..segment.blocks()?.len() {
                if self.merge_is_stopped() {
                    return Ok(false);
                }
                writer.append(&segment.read_block(block, None)?.batch)?;
            }
        }
        Ok(true)
    }

    /// Opens the merged segment and checks all of it, as a reader would find it.
    pub(super) fn read_back(&self, meta: &SegmentMeta, rows: u64) -> Result<Segment, MergeError> {
        if meta.rows != rows {
            return Err(MergeError::Rows { partition: self.id(), expected: rows, found: meta.rows });
        }
        let segment = Segment::open(&self.inner.directory, meta)?;
        segment.verify()?;
        Ok(segment)
    }

    /// Names the merged segment instead of its inputs, if they are still what was read.
    pub(super) fn publish_merge(&self, prepared: PreparedMerge) -> Result<Merge, MergeError> {
        let input_count = prepared.inputs.len();
        let Some(meta) = self.swap(prepared)? else { return Ok(Merge::Overtaken) };
        let counters = &self.inner.shared.counters;
        Counters::add(&counters.merged_segments, input_count);
        Counters::add(&counters.merged_bytes, usize::try_from(meta.size_bytes).unwrap_or(0));
        tracing::debug!(partition = %self.id(), inputs = input_count, file = meta.file, "merged");
        Ok(Merge::Done(meta))
    }

    /// Names a written segment instead of its inputs in one commit, moves readers over and removes the inputs' files. `None`
    /// when an input is no longer what was read; the written file was dropped then.
    pub(super) fn swap(&self, prepared: PreparedMerge) -> Result<Option<SegmentMeta>, MergeError> {
        let inner = &*self.inner;
        let PreparedMerge { inputs, meta, segment } = prepared;
        let manifest = inner.manifest.lock();
        let unchanged = !self.is_closed() && {
            let state = inner.state.lock();
            let same = |input: &SegmentMeta| {
                state.segments.get(&input.range.start).is_some_and(|known| known.is_local() && known.meta() == input)
            };
            inputs.iter().all(same)
        };
        if !unchanged {
            drop(manifest);
            remove_segment(&inner.directory, &meta)?;
            return Ok(None);
        }
        let record = SegmentRecord { meta: meta.clone(), local: true };
        let batch = inputs
            .iter()
            .fold(MetaBatch::new(), |batch, input| batch.delete(manifest::segment_key(inner.id, input.range.start)));
        // The first input's key is the merged segment's; of one key, the later change wins.
        let batch = batch.put(manifest::segment_key(inner.id, meta.range.start), manifest::encode(&record));
        inner.shared.meta.commit(batch).map_err(|source| MergeError::Store { partition: inner.id, source })?;

        let mut state = inner.state.lock();
        let mut input_bytes = 0;
        for input in &inputs {
            state.segments.remove(&input.range.start);
            input_bytes += input.size_bytes;
        }
        state.segments.insert(meta.range.start, segment);
        state.local_bytes = (state.local_bytes + meta.size_bytes).saturating_sub(input_bytes);
        drop(state);
        drop(manifest);
        for input in &inputs {
            // Readers that hold the file open keep it until they are done.
            if let Err(error) = remove_segment(&inner.directory, input) {
                tracing::warn!(%error, "a file whose rows were written anew stays behind until the next start");
            }
        }
        Ok(Some(meta))
    }
}

/// How large a merged segment may be.
pub(super) struct Limits {
    pub(super) bytes: u64,
    /// Between the ages at which its first and its last input would go.
    pub(super) age_ms: u64,
}

impl Limits {
    pub(super) fn of(topic: &TopicInfo) -> Self {
        let config = &topic.config;
        // A stretch that reached its seal size is large enough; merging makes up for what memory pressure sealed too early.
        let bytes = u64::from(config.segment_bytes.unsigned_abs()).min(config.weir_seal_bytes.unsigned_abs());
        let mut limits = Self { bytes, age_ms: u64::MAX };
        if !config.cleanup_policy.delete {
            return limits;
        }
        if let Ok(kept) = u64::try_from(config.retention_bytes) {
            limits.bytes = limits.bytes.min(kept / RETENTION_PART);
        }
        if let Ok(kept) = u64::try_from(config.retention_ms) {
            limits.age_ms = kept / RETENTION_PART;
        }
        if let Ok(kept) = u64::try_from(config.local_retention_bytes)
            && config.weir_lake_enable
        {
            limits.bytes = limits.bytes.min((kept / RETENTION_PART).max(LEAST_LOCAL_BYTES));
        }
        limits
    }
}

/// A segment as [`pick`] sees it.
struct Candidate<'a> {
    meta: &'a SegmentMeta,
    local: bool,
    /// The age by which retention lets it go: its own, or that of an older segment, because the oldest go first.
    age: i64,
    /// Whether compaction has been over it. What is clean is not merged with what is not, or it would count as dirty again.
    compacted: bool,
}

/// All segments of a partition, in offset order.
fn candidates(state: &State) -> Vec<Candidate<'_>> {
    let mut age = i64::MIN;
    let compacted_end = state.record.compacted_end;
    let candidate = |segment| {
        let meta = Segment::meta(segment);
        age = age.max(age_of(meta));
        let compacted = compacted_end.is_some_and(|end| meta.range.end <= end);
        Candidate { meta, local: segment.is_local() && segment.is_decided(), age, compacted }
    };
    state.segments.values().map(candidate).collect()
}

/// The run that grows the most, the oldest of those that grow alike.
fn pick(segments: &[Candidate<'_>], limits: &Limits) -> Option<Range<usize>> {
    let mut best: Option<(Range<usize>, u64, u64)> = None;
    for (start, first) in segments.iter().enumerate() {
        let (mut total, mut largest) = (0, 1);
        let mut end = first.meta.range.start;
        for (position, candidate) in segments.iter().enumerate().skip(start).take(MOST_INPUTS) {
            let meta = candidate.meta;
            total += meta.size_bytes;
            if end != meta.range.start || total > limits.bytes || !joins(first, candidate, limits) {
                break;
            }
            end = meta.range.end;
            largest = largest.max(meta.size_bytes);
            let run = start..position + 1;
            let grows_more = best.as_ref().is_none_or(|(_, best_total, best_largest)| {
                u128::from(total) * u128::from(*best_largest) > u128::from(*best_total) * u128::from(largest)
            });
            if run.len() >= LEAST_INPUTS && total >= largest * LEAST_GROWTH && grows_more {
                best = Some((run, total, largest));
            }
        }
    }
    best.map(|(run, _, _)| run)
}

/// Whether a segment may be in a run that begins with `first`.
fn joins(first: &Candidate<'_>, candidate: &Candidate<'_>, limits: &Limits) -> bool {
    let (from, meta) = (first.meta, candidate.meta);
    // Kafka's indexes count offsets from the base in 31 bits.
    let in_reach = meta.range.end.since(from.range.start) <= u64::from(i32::MAX.unsigned_abs());
    let alike = meta.kind == from.kind && meta.schema_id == from.schema_id && candidate.compacted == first.compacted;
    let part = match meta.kind {
        SegmentKind::Log | SegmentKind::Undecided => LARGE_PART,
        SegmentKind::Arrow => LARGE_PART * COLUMNS_SHRINK,
    };
    let small = meta.size_bytes < limits.bytes / part;
    candidate.local && alike && small && in_reach && candidate.age.abs_diff(first.age) <= limits.age_ms
}

#[cfg(test)]
mod tests {
    use weir_model::{Offset, OffsetRange};

    use super::*;

    const SEGMENT_BYTES: u64 = 1 << 30;
    const NO_LIMITS: Limits = Limits { bytes: SEGMENT_BYTES, age_ms: u64::MAX };
    const KB: u64 = 1000;

    /// Adjacent segments of ten offsets each.
    fn metas(sizes: &[u64]) -> Vec<SegmentMeta> {
        let at = |offset| Offset::new(offset).expect("not negative");
        let meta = |(index, size): (usize, &u64)| SegmentMeta {
            kind: SegmentKind::Log,
            file: String::new(),
            generation: 0,
            range: OffsetRange::new(at(index as i64 * 10), at(index as i64 * 10 + 10)),
            size_bytes: *size,
            min_timestamp: -1,
            max_timestamp: -1,
            rows: 10,
            created_ms: 0,
            schema_id: 0,
            digest: 0,
            index_digest: 0,
        };
        sizes.iter().enumerate().map(meta).collect()
    }

    fn pick_of(metas: &[SegmentMeta]) -> Option<Range<usize>> {
        pick(&local(metas), &NO_LIMITS)
    }

    fn local(metas: &[SegmentMeta]) -> Vec<Candidate<'_>> {
        metas.iter().map(|meta| Candidate { meta, local: true, age: meta.created_ms, compacted: false }).collect()
    }

    #[test]
    fn eight_alike_are_merged_and_seven_are_not() {
        assert_eq!(pick_of(&metas(&[250 * KB; 7])), None);
        assert_eq!(pick_of(&metas(&[250 * KB; 8])), Some(0..8));
        assert_eq!(pick_of(&metas(&[250 * KB; 200])), Some(0..64));
    }

    #[test]
    fn a_merged_segment_waits_for_its_like() {
        let mut sizes = vec![2000 * KB];
        sizes.extend([250 * KB; 8]);
        assert_eq!(pick_of(&metas(&sizes)), Some(1..9), "the small ones first");
        assert_eq!(pick_of(&metas(&[2000 * KB, 2000 * KB, 250 * KB, 250 * KB, 250 * KB])), None);
    }

    #[test]
    fn large_and_small_by_turns_are_merged_too() {
        assert_eq!(pick_of(&metas(&[5000 * KB, KB].repeat(8))), Some(0..16));
    }

    #[test]
    fn large_ones_other_kinds_and_tiered_ones_end_a_run() {
        let quarter = SEGMENT_BYTES / 4;
        let sizes = [quarter, KB, KB, KB, KB, quarter, KB, KB, KB, KB];
        assert_eq!(pick_of(&metas(&sizes)), None);
        let mut mixed = metas(&[KB; 12]);
        mixed[6].kind = SegmentKind::Arrow;
        assert_eq!(pick_of(&mixed), None);
        let mut schemas = metas(&[KB; 12]);
        schemas[6..].iter_mut().for_each(|meta| meta.schema_id = 1);
        assert_eq!(pick_of(&schemas), None);
        let all = metas(&[KB; 12]);
        let mut segments = local(&all);
        segments[4].local = false;
        assert_eq!(pick(&segments, &NO_LIMITS), None);
        segments[4].local = true;
        segments[3].local = false;
        assert_eq!(pick(&segments, &NO_LIMITS), Some(4..12));
    }

    #[test]
    fn what_retention_lets_go_at_different_times_is_not_merged() {
        let mut hourly = metas(&[KB; 24]);
        for (hour, meta) in (0..).zip(&mut hourly) {
            meta.created_ms = hour * 3_600_000;
        }
        let limits = Limits { bytes: SEGMENT_BYTES, age_ms: 10 * 3_600_000 };
        assert_eq!(pick(&local(&hourly), &limits), Some(0..11));
        let limits = Limits { bytes: SEGMENT_BYTES, age_ms: 6 * 3_600_000 };
        assert_eq!(pick(&local(&hourly), &limits), None);
        let limits = Limits { bytes: 9 * KB, age_ms: u64::MAX };
        assert_eq!(pick(&local(&hourly), &limits), Some(0..9));
    }

    #[test]
    fn a_run_stays_within_segment_bytes_and_within_reach_of_the_index() {
        let run = pick_of(&metas(&[100 << 20; 20])).expect("ten of them fit");
        assert_eq!(run.len(), 10);
        let mut far = metas(&[KB; 8]);
        far[7].range = OffsetRange::new(far[7].range.start, Offset::new(1 << 31).expect("not negative"));
        assert_eq!(pick_of(&far), None);
    }

    /// Seals one after the other and merges whenever it is due; answers the most segments there were and the bytes written.
    fn simulate(seals: impl Iterator<Item = u64>) -> (usize, u64) {
        let (mut sizes, mut most, mut rewritten) = (Vec::new(), 0, 0);
        for size in seals {
            sizes.push(size);
            while let Some(run) = pick_of(&metas(&sizes)) {
                let total = sizes[run.clone()].iter().sum();
                rewritten += total;
                sizes.splice(run, [total]);
            }
            most = most.max(sizes.len());
        }
        (most, rewritten)
    }

    #[test]
    fn segments_and_rewrites_grow_with_the_logarithm() {
        let (most, rewritten) = simulate(std::iter::repeat_n(250 * KB, 2000));
        assert!(most <= 40, "{most} segments of 2000 seals");
        assert!(rewritten <= 4 * 2000 * 250 * KB, "each row was written {} times", rewritten / (2000 * 250 * KB));

        // Sizes over three orders of magnitude, by a fixed sequence.
        let sizes: Vec<u64> = (0..2000u64).map(|index| KB << (index * index * 7 % 11)).collect();
        let total: u64 = sizes.iter().sum();
        let (most, rewritten) = simulate(sizes.into_iter());
        assert!(most <= 60, "{most} segments of 2000 uneven seals");
        assert!(rewritten <= 6 * total, "each row was written {} times", rewritten / total);
    }
}
