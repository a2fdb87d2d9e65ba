//! Ordering: a checked batch gets its offset, without I/O.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use weir_model::record_batch::ValidBatch;
use weir_model::{Offset, TimestampType};

use super::{LEADER_EPOCH, Partition, compact};
use crate::producers::{SequenceError, Verdict};
use crate::tail::TailEntry;
use crate::wal::{Admission, DurableSink, WalEntry, WalSeq};

/// A batch smaller than this share of the request it came in is copied out of it: otherwise one quiet partition's small
/// batch would pin a whole request's buffer in the tail, and the tail's budget would lie.
const DETACH_BELOW_SHARE: usize = 4;

/// Where a batch went.
#[derive(Clone, Copy, Debug)]
pub struct Appended {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// The broker's time, when the topic stamps batches.
    pub log_append_time_ms: Option<i64>,
    /// First offset that can be read.
    pub log_start: Offset,
    /// The WAL entry to wait for before acknowledging (LOG-2); `None` for a retry of a batch that is durable already.
    pub seq: Option<WalSeq>,
}

/// Why a batch got no place.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The topic was deleted while the request was on its way.
    #[error("the topic was deleted")]
    Closed,
    /// An idempotent producer's numbering does not fit.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// Transactions are not built.
    #[error("transactional batches are not served yet; produce without transactional.id")]
    Transactional,
}

impl Partition {
    /// Gives a checked batch its place: decides retries, assigns offsets, hands it to the WAL and to the tail. Not yet
    /// visible. `columns` are the decoded user columns when the topic has a schema, one row per record. `request_size` is
    /// the size of the buffer that `batch` is a slice of.
    ///
    /// Batches of one partition are ordered by the order of these calls (LOG-4). Does no I/O and never waits for any.
    ///
    /// # Errors
    /// [`AppendError`]; nothing was ordered then.
    pub fn append(
        &self,
        admission: &mut Admission,
        batch: ValidBatch,
        columns: Option<RecordBatch>,
        request_size: usize,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        let inner = &self.inner;
        if batch.header().attributes.is_transactional() {
            return Err(AppendError::Transactional);
        }
        let stamped = batch.header().attributes.timestamp_type() == TimestampType::LogAppendTime;
        let log_append_time_ms = stamped.then_some(batch.header().max_timestamp);
        let small = batch.bytes().len() * DETACH_BELOW_SHARE < request_size;

        let mut state = inner.state.lock();
        if inner.closed.load(Ordering::SeqCst) {
            return Err(AppendError::Closed);
        }
        let log_start = state.record.log_start;
        if let Verdict::Duplicate(known) = state.producers.check(batch.header())? {
            // IDEM-1: answered with its first offset, once it is durable.
            let seq = state.tail.from(known.base_offset).next().map(|entry| entry.seq);
            let log_append_time_ms = stamped.then_some(known.timestamp);
            return Ok(Appended { base_offset: known.base_offset, log_append_time_ms, log_start, seq });
        }
        let base_offset = state.log_end;
        let assigned = batch.assign(base_offset.get(), LEADER_EPOCH);
        let assigned = if small { assigned.detached() } else { assigned };
        let end = Offset::new(assigned.header().last_offset()).expect("offsets do not wrap").next();
        let entry = WalEntry {
            partition: inner.id,
            prefix: *assigned.prefix(),
            body: assigned.body().clone(),
            body_crc32c: assigned.cheap_body_crc32c(),
            sink: Arc::clone(inner) as Arc<dyn DurableSink>,
            token: end.get().unsigned_abs(),
        };
        let seq = inner.shared.wal.push(admission, entry);
        state.producers.record(assigned.header(), now_ms);
        let entry = TailEntry::new(assigned, seq, columns);
        let size = entry.size;
        state.tail.push(entry);
        state.log_end = end;
        let (tail_size, sealed_bytes) = (state.tail.size(), state.local_bytes);
        drop(state);

        inner.shared.tail_grew(inner.id, size, tail_size, self.seal_bytes(sealed_bytes));
        Ok(Appended { base_offset, log_append_time_ms, log_start, seq: Some(seq) })
    }

    fn seal_bytes(&self, sealed_bytes: u64) -> usize {
        let topic = self.inner.topic.read();
        let config = &topic.config;
        let bytes = if config.cleanup_policy.compact {
            compact::seal_bytes(config, sealed_bytes)
        } else {
            config.weir_seal_bytes.unsigned_abs()
        };
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}
