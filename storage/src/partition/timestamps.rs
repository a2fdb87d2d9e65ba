//! Offsets by time (ListOffsets, S-59, S-60).

use weir_model::record_batch::{AssignedBatch, RecordIter};
use weir_model::{Isolation, Offset, TimestampType};

use super::read::{ReadError, blocking};
use super::{Partition, Segment};
use crate::rows::RowsError;
use crate::shared::MAX_DECOMPRESSED_BYTES;
use crate::tail::TailEntry;

/// A record found by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampHit {
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp.
    pub timestamp_ms: i64,
}

impl Partition {
    /// The first record, in offset order, whose timestamp is at least `timestamp_ms`, among those `isolation` may see.
    ///
    /// # Errors
    /// [`ReadError`] when a tier that has to be looked at does not read.
    pub async fn offset_for_timestamp(
        &self,
        timestamp_ms: i64,
        isolation: Isolation,
    ) -> Result<Option<TimestampHit>, ReadError> {
        if self.is_closed() {
            return Err(ReadError::Closed);
        }
        let (log_start, end, segments, tail) = self.snapshot(isolation);
        for segment in segments {
            let meta = segment.meta();
            // A max timestamp of -1 means that nobody knows it.
            if meta.range.end <= log_start || (meta.max_timestamp >= 0 && meta.max_timestamp < timestamp_ms) {
                continue;
            }
            let from = meta.range.start.max(log_start);
            let hit = match segment {
                Segment::Log(segment) | Segment::Undecided(segment) => {
                    blocking(move || segment.offset_for_timestamp(timestamp_ms, from))
                        .await??
                        .map(|found| (found.offset, found.timestamp))
                }
                Segment::Arrow(segment) => blocking(move || segment.offset_for_timestamp(timestamp_ms, from))
                    .await??
                    .map(|found| (found.offset, found.timestamp)),
                Segment::Tiered(meta) => {
                    let cold =
                        self.inner.shared.cold().ok_or(ReadError::NoLake { partition: self.id(), offset: from })?;
                    cold.offset_for_timestamp(self.id(), from, meta.range.end, timestamp_ms).await?
                }
            };
            if let Some((offset, timestamp_ms)) = hit {
                return Ok((offset < end).then_some(TimestampHit { offset, timestamp_ms }));
            }
        }
        let partition = self.clone();
        blocking(move || partition.hit_in_tail(&tail, log_start, timestamp_ms)).await?
    }

    /// The record with the largest timestamp (`-3`, KIP-734); the first of them when several share it.
    ///
    /// # Errors
    /// As [`Self::offset_for_timestamp`].
    pub async fn offset_of_max_timestamp(&self) -> Result<Option<TimestampHit>, ReadError> {
        if self.is_closed() {
            return Err(ReadError::Closed);
        }
        let (_, _, segments, tail) = self.snapshot(Isolation::ReadUncommitted);
        let sealed = segments.iter().map(|segment| segment.meta().max_timestamp).max();
        let newest = tail
            .iter()
            .filter(|entry| !entry.is_control())
            .map(|entry| entry.batch.header().max_timestamp)
            .max()
            .max(sealed);
        match newest {
            Some(newest) if newest >= 0 => self.offset_for_timestamp(newest, Isolation::ReadUncommitted).await,
            Some(_) | None => Ok(None),
        }
    }

    fn snapshot(&self, isolation: Isolation) -> (Offset, Offset, Vec<Segment>, Vec<TailEntry>) {
        let state = self.inner.state.lock();
        let offsets = self.inner.offsets(&state);
        let end = offsets.read_end(isolation);
        let tail = state.tail.iter().take_while(|entry| entry.end() <= end).cloned().collect();
        (offsets.log_start(), end, state.segments.values().cloned().collect(), tail)
    }

    fn hit_in_tail(
        &self,
        tail: &[TailEntry],
        from: Offset,
        timestamp_ms: i64,
    ) -> Result<Option<TimestampHit>, ReadError> {
        let later = |entry: &&TailEntry| {
            !entry.is_control() && entry.batch.header().max_timestamp >= timestamp_ms && entry.end() > from
        };
        for entry in tail.iter().filter(later) {
            let hit = hit_in_batch(&entry.batch, from, timestamp_ms)
                .map_err(|source| ReadError::Rows { partition: self.id(), source })?;
            if hit.is_some() {
                return Ok(hit);
            }
        }
        Ok(None)
    }
}

fn hit_in_batch(batch: &AssignedBatch, from: Offset, timestamp_ms: i64) -> Result<Option<TimestampHit>, RowsError> {
    let header = batch.header();
    let append_time = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
    let records = batch.records(MAX_DECOMPRESSED_BYTES)?;
    for record in RecordIter::new(&records, header.record_count) {
        let record = record?;
        let timestamp = if append_time { header.max_timestamp } else { header.base_timestamp + record.timestamp_delta };
        let offset = Offset::new(header.base_offset + i64::from(record.offset_delta)).unwrap_or(Offset::ZERO);
        if timestamp >= timestamp_ms && offset >= from {
            return Ok(Some(TimestampHit { offset, timestamp_ms: timestamp }));
        }
    }
    Ok(None)
}
