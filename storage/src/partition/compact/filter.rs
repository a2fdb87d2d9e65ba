//! Which records of a batch a compaction keeps (Kafka's `Cleaner.shouldRetainRecord`).

use weir_model::Offset;
use weir_model::record_batch::{AssignedBatch, BatchError, RecordIter};

use super::offset_map::OffsetMap;
use crate::shared::MAX_DECOMPRESSED_BYTES;

/// What a pass goes by.
pub(super) struct Filter {
    /// The newest offset of each key that has one in the dirty part below `end`.
    pub(super) latest: OffsetMap,
    /// The map is complete below this offset. Records from here on stay for the next pass.
    pub(super) end: Offset,
    pub(super) now_ms: i64,
    pub(super) delete_retention_ms: i64,
}

/// What becomes of a batch.
pub(super) enum Kept {
    /// It stays as it is.
    Whole,
    /// This takes its place.
    Part(AssignedBatch),
    /// Nothing of it is needed.
    Nothing,
}

/// The outcome for one batch.
pub(super) struct Filtered {
    pub(super) kept: Kept,
    /// From when on tombstones that stayed may go.
    pub(super) delete_horizon_ms: Option<i64>,
}

impl Filter {
    /// Judges a batch. An emptied one is kept as a bare header when `keep_empty`.
    pub(super) fn judge(&self, batch: &AssignedBatch, keep_empty: bool) -> Result<Filtered, BatchError> {
        let header = batch.header();
        let whole = Filtered { kept: Kept::Whole, delete_horizon_ms: None };
        // What ends transactions is not compaction's to take.
        if header.base_offset >= self.end.get() || header.attributes.is_control() {
            return Ok(whole);
        }
        if header.record_count == 0 {
            return Ok(if keep_empty { whole } else { Filtered { kept: Kept::Nothing, delete_horizon_ms: None } });
        }
        let section = batch.records(MAX_DECOMPRESSED_BYTES)?;
        let known_horizon = header.delete_horizon_ms();
        let tombstones_go = known_horizon.is_some_and(|horizon| self.now_ms >= horizon);
        let mut keep = Vec::with_capacity(usize::try_from(header.record_count).unwrap_or(0));
        let (mut all, mut none, mut tombstones) = (true, true, false);
        for record in RecordIter::new(&section, header.record_count) {
            let record = record?;
            let offset = Offset::new(header.base_offset + i64::from(record.offset_delta))
                .ok_or(BatchError::Malformed("an offset is negative"))?;
            let kept = offset >= self.end
                || record.key.is_some_and(|key| {
                    self.latest.is_latest(key, offset) && (record.value.is_some() || !tombstones_go)
                });
            tombstones |= kept && record.value.is_none();
            all &= kept;
            none &= !kept;
            keep.push(kept);
        }
        if none {
            let kept = if keep_empty { Kept::Part(batch.emptied()) } else { Kept::Nothing };
            return Ok(Filtered { kept, delete_horizon_ms: None });
        }
        // Tombstones that only a later pass will have compared with everything before them begin to age with that pass.
        let first_cleaned = tombstones && known_horizon.is_none() && header.last_offset() < self.end.get();
        let new_horizon = first_cleaned.then(|| self.now_ms.saturating_add(self.delete_retention_ms));
        let kept = if all && new_horizon.is_none() {
            Kept::Whole
        } else {
            Kept::Part(batch.with_records(&section, |position| keep[position], new_horizon)?)
        };
        Ok(Filtered { kept, delete_horizon_ms: new_horizon.or(known_horizon.filter(|_| tombstones)) })
    }
}
