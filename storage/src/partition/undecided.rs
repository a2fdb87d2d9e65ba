//! What a long transaction holds up is set aside, so that it pins neither memory nor the WAL (DESIGN 4, step 6).
//!
//! A seal ends at the last stable offset. When there is nothing below it, and the tail's budget or the WAL's limit is passed,
//! the durable batches of the tail go into an *undecided* segment: a `.log` file with the batches as they came, control batches
//! and those of open and aborted transactions among them. It is read like the tail is, by the same rules. Once the last
//! stable offset has passed it, it is *settled*: its committed rows become a segment of the topic's own kind and the next
//! generation, under the same commit that takes the undecided one's name away.
//!
//! What is known of aborted transactions is kept with the producers for as long as their rows are: in the manifest up to the
//! sealed end, and from there on in the WAL.

use std::sync::Arc;

use weir_model::{Isolation, Offset, OffsetRange};

use super::seal::{PreparedSeal, SealError, Written, write_log_segment};
use super::{Partition, Segment};
use crate::manifest::{self, PartitionRecord, SegmentRecord};
use crate::meta::MetaBatch;
use crate::segment::{LogSegment, SegmentKind, SegmentName, remove_segment};
use crate::shared::Counters;
use crate::tail::TailEntry;

/// Most bytes of batches in one undecided segment, but for the last batch: to settle one takes the sealer a second or two at
/// this size, and other partitions wait for it meanwhile.
const ASIDE_BYTES: usize = if cfg!(test) { 4 << 10 } else { 128 << 20 };

impl Partition {
    /// Writes what an open transaction holds up; `None` when something is decided, which is to be sealed first, or nothing is
    /// durable. As [`Self::prepare_seal`] otherwise.
    pub(super) fn prepare_aside(&self) -> Result<Option<PreparedSeal<'_>>, SealError> {
        let inner = &*self.inner;
        let manifest = inner.manifest.lock();
        if self.is_closed() {
            return Ok(None);
        }
        let (entries, record, producers, rows_from) = {
            let state = inner.state.lock();
            let offsets = inner.offsets(&state);
            if state.tail.front().is_none_or(|first| first.end() <= offsets.last_stable()) {
                return Ok(None);
            }
            let mut bytes = 0;
            let entries = state.tail.iter().take_while(|entry| {
                let room = bytes < ASIDE_BYTES;
                bytes += entry.batch.size();
                room && entry.end() <= offsets.high_watermark()
            });
            let entries: Vec<TailEntry> = entries.cloned().collect();
            (entries, state.record, state.sealed_producers.clone(), state.decided_end())
        };
        let Some(end) = entries.last().map(TailEntry::end) else { return Ok(None) };
        self.make_directory()?;
        self.check_space(entries.iter().map(|entry| entry.batch.size() as u64).sum())?;

        let now_ms = inner.shared.clock.now_ms();
        let producers = self.producers_after(producers, &entries, rows_from, now_ms)?;
        let range = OffsetRange::new(record.sealed_end, end);
        let batches = entries.into_iter().map(|entry| Ok(entry.batch));
        let mut meta = write_log_segment(&inner.directory, batches, range, SegmentName::from(range.start), now_ms)?;
        meta.kind = SegmentKind::Undecided;
        let segment = Segment::Undecided(Arc::new(LogSegment::open(&inner.directory, &meta)?));
        let record = PartitionRecord { sealed_end: end, ..record };
        tracing::info!(
            partition = %inner.id, start = %range.start, %end, bytes = meta.size_bytes,
            "an open transaction holds up sealing; its stretch was set aside"
        );
        Ok(Some(PreparedSeal { inner, _manifest: manifest, meta, segment, record, producers, raw_rows: 0 }))
    }

    /// Turns undecided segments that have been decided into segments of the topic's own kind, the oldest first. Blocks.
    ///
    /// # Errors
    /// [`SealError`]; the segment that failed is as it was.
    pub(crate) fn settle(&self) -> Result<usize, SealError> {
        let mut settled = 0;
        while self.settle_first()? {
            settled += 1;
        }
        Ok(settled)
    }

    fn settle_first(&self) -> Result<bool, SealError> {
        let inner = &*self.inner;
        let _manifest = inner.manifest.lock();
        if self.is_closed() {
            return Ok(false);
        }
        let (undecided, decided) = {
            let state = inner.state.lock();
            let first = state.segments.values().filter(|_| state.has_undecided).find_map(|segment| match segment {
                Segment::Undecided(segment) => Some(Arc::clone(segment)),
                Segment::Log(_) | Segment::Arrow(_) | Segment::Tiered(_) => None,
            });
            let Some(first) = first else { return Ok(false) };
            let range = first.meta().range;
            if inner.offsets(&state).last_stable() < range.end {
                inner.settle_later(&state);
                return Ok(false);
            }
            (first, state.producers.decided(range.start, range.end))
        };
        let old = undecided.meta();
        self.check_space(old.size_bytes)?;
        let name = SegmentName { base_offset: old.range.start, generation: old.generation + 1 };
        let batches = undecided.batches(old.range.start)?.filter_map(|batch| match batch {
            Ok(batch) if decided.shows(batch.header(), Isolation::ReadCommitted) => Some(Ok((batch.decided(), None))),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        });
        // As old as it was: retention counts from there when no row has a time.
        let written = self.write_segment(&self.topic(), batches, old.range, name, old.created_ms)?;
        self.publish_settled(old.range.start, written)?;
        // Readers that hold the file open keep it until they are done.
        if let Err(error) = remove_segment(&inner.directory, old) {
            tracing::warn!(%error, "a file that was settled stays behind until the next start");
        }
        Ok(true)
    }

    /// Names the settled segment instead of the undecided one. The manifest lock is held by the caller.
    fn publish_settled(&self, start: Offset, written: Written) -> Result<(), SealError> {
        let inner = &*self.inner;
        let Written { meta, segment, raw_rows } = written;
        let (mut producers, rows_from) = {
            let state = inner.state.lock();
            let later = state.segments.range(start.next()..).find(|(_, segment)| !segment.is_decided());
            (state.sealed_producers.clone(), later.map_or(state.record.sealed_end, |(start, _)| *start))
        };
        producers.forget_aborted_below(rows_from);
        let stored = SegmentRecord { meta: meta.clone(), local: true };
        let batch = MetaBatch::new()
            .put(manifest::segment_key(inner.id, start), manifest::encode(&stored))
            .put(manifest::producers_key(inner.id), manifest::encode(&producers));
        inner.shared.meta.commit(batch).map_err(|source| SealError::Store { partition: inner.id, source })?;

        let mut state = inner.state.lock();
        state.sealed_producers = producers;
        state.producers.forget_aborted_below(rows_from);
        let old = state.segments.insert(start, segment);
        let old_bytes = old.map_or(0, |old| old.meta().size_bytes);
        state.local_bytes = (state.local_bytes + meta.size_bytes).saturating_sub(old_bytes);
        state.has_undecided = state.segments.values().any(|segment| !segment.is_decided());
        drop(state);
        let counters = &inner.shared.counters;
        Counters::add(&counters.sealed_rows, usize::try_from(meta.rows).unwrap_or(0));
        Counters::add(&counters.sealed_raw_rows, raw_rows);
        Counters::add(&counters.sealed_bytes, usize::try_from(meta.size_bytes).unwrap_or(0));
        tracing::debug!(partition = %inner.id, file = meta.file, "an undecided stretch was settled");
        Ok(())
    }
}
