//! The seam to the lake: old offsets whose local copy is gone.

use arrow::array::RecordBatch;
use async_trait::async_trait;
use weir_model::{Offset, PartitionId};
use weir_table::TableSchema;

/// Columns read from some tier.
#[derive(Clone, Debug)]
pub struct ColumnsRead {
    /// Rows in offset order: the log schema, or the columns of it that were asked for.
    pub batches: Vec<RecordBatch>,
    /// Where to read on: every offset below was looked at.
    pub next: Offset,
}

/// Why the lake could not answer.
#[derive(Debug, thiserror::Error)]
#[error("offset {offset} of partition {partition} could not be read from the lake: {reason}")]
pub struct ColdError {
    /// Which partition.
    pub partition: PartitionId,
    /// From where.
    pub offset: Offset,
    /// What went wrong, with the place in it.
    pub reason: String,
}

/// Reads offsets that live in the lake alone. Implemented above this crate and handed in when the broker is put together.
#[async_trait]
pub trait ColdTier: Send + Sync + 'static {
    /// Rows `from..to` of a partition, stopping after about `max_bytes` of Arrow memory (at least one row when there is one).
    /// `projection` lists columns of the log schema by position, ascending; `None` is all. Only those columns are fetched.
    ///
    /// # Errors
    /// [`ColdError`]; the caller answers a retriable storage error.
    async fn read_columns(
        &self,
        partition: PartitionId,
        schema: &TableSchema,
        from: Offset,
        to: Offset,
        projection: Option<&[usize]>,
        max_bytes: usize,
    ) -> Result<ColumnsRead, ColdError>;

    /// The first row in `from..to` whose timestamp is at least `timestamp_ms`: its offset and timestamp.
    ///
    /// # Errors
    /// As [`Self::read_columns`].
    async fn offset_for_timestamp(
        &self,
        partition: PartitionId,
        from: Offset,
        to: Offset,
        timestamp_ms: i64,
    ) -> Result<Option<(Offset, i64)>, ColdError>;
}
