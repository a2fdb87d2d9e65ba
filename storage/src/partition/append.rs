//! Ordering: a checked batch gets its offset, without I/O.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use parking_lot::MutexGuard;
use weir_model::producer::{ProducerId, TxnMarker};
use weir_model::record_batch::{AssignedBatch, ControlBatch, ValidBatch};
use weir_model::{Offset, TimestampType};

use super::{LEADER_EPOCH, Partition, State, compact};
use crate::producers::{MarkerError, OngoingTxn, SequenceError, TxnGuard, Verdict};
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
    /// A marker comes from a producer or a coordinator that was fenced.
    #[error(transparent)]
    Marker(#[from] MarkerError),
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
        self.append_guarded(admission, batch, columns, request_size, now_ms, None)
    }

    /// As [`Self::append`], for a transactional batch whose transaction was looked up after `guard` was taken: refused when a
    /// marker of its producer came in between, so that a late batch never opens a transaction that nobody will end (KIP-890).
    ///
    /// # Errors
    /// [`AppendError`]; nothing was ordered then.
    pub fn append_guarded(
        &self,
        admission: &mut Admission,
        batch: ValidBatch,
        columns: Option<RecordBatch>,
        request_size: usize,
        now_ms: i64,
        guard: Option<&TxnGuard>,
    ) -> Result<Appended, AppendError> {
        let inner = &self.inner;
        let stamped = batch.header().attributes.timestamp_type() == TimestampType::LogAppendTime;
        let log_append_time_ms = stamped.then_some(batch.header().max_timestamp);
        let small = batch.bytes().len() * DETACH_BELOW_SHARE < request_size;

        let state = inner.state.lock();
        if inner.closed.load(Ordering::SeqCst) {
            return Err(AppendError::Closed);
        }
        let log_start = state.record.log_start;
        if let Verdict::Duplicate(known) = state.producers.check(batch.header(), guard)? {
            // IDEM-1: answered with its first offset, once it is durable.
            let seq = state.tail.from(known.base_offset).next().map(|entry| entry.seq);
            let log_append_time_ms = stamped.then_some(known.timestamp);
            return Ok(Appended { base_offset: known.base_offset, log_append_time_ms, log_start, seq });
        }
        let base_offset = state.log_end;
        let assigned = batch.assign(base_offset.get(), LEADER_EPOCH);
        let assigned = if small { assigned.detached() } else { assigned };
        let seq = self.order(admission, state, assigned, columns, now_ms);
        Ok(Appended { base_offset, log_append_time_ms, log_start, seq: Some(seq) })
    }

    /// Ends a producer's transaction in this partition: orders the control batch of `marker`. The last stable offset moves once
    /// the marker is durable. Written also when the producer has no transaction open here, as Kafka does: it fences the
    /// producer's older epochs. The admission covers [`weir_model::record_batch::MARKER_BATCH_BYTES`]. Does no I/O.
    ///
    /// # Errors
    /// [`AppendError::Closed`], [`AppendError::Marker`]; nothing was ordered then.
    pub fn append_marker(
        &self,
        admission: &mut Admission,
        marker: &TxnMarker,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        let state = self.inner.state.lock();
        if self.inner.closed.load(Ordering::SeqCst) {
            return Err(AppendError::Closed);
        }
        state.producers.check_marker(marker)?;
        let (base_offset, log_start) = (state.log_end, state.record.log_start);
        let batch = ControlBatch::of_marker(marker, base_offset.get(), LEADER_EPOCH);
        let seq = self.order(admission, state, batch, None, now_ms);
        Ok(Appended { base_offset, log_append_time_ms: None, log_start, seq: Some(seq) })
    }

    /// A producer's open transaction in this partition.
    pub fn transaction_of(&self, producer_id: ProducerId) -> Option<OngoingTxn> {
        self.inner.state.lock().producers.transaction_of(producer_id)
    }

    /// What to take before it is looked up whether a producer's transaction has this partition; see [`Self::append_guarded`].
    pub fn txn_guard(&self, producer_id: ProducerId) -> TxnGuard {
        self.inner.state.lock().producers.guard(producer_id)
    }

    /// Hands a batch with its offset to the WAL and to the tail.
    fn order(
        &self,
        admission: &mut Admission,
        mut state: MutexGuard<'_, State>,
        batch: AssignedBatch,
        columns: Option<RecordBatch>,
        now_ms: i64,
    ) -> WalSeq {
        let inner = &self.inner;
        let end = Offset::new(batch.header().last_offset()).expect("offsets do not wrap").next();
        let entry = WalEntry {
            partition: inner.id,
            prefix: *batch.prefix(),
            body: batch.body().clone(),
            body_crc32c: batch.cheap_body_crc32c(),
            sink: Arc::clone(inner) as Arc<dyn DurableSink>,
            token: end.get().unsigned_abs(),
        };
        let seq = inner.shared.wal.push(admission, entry);
        let ended = state.producers.record(&batch, now_ms).expect("a control batch of the broker's own reads");
        if let Some(txn) = ended {
            // Until the marker is durable, the transaction holds the last stable offset as if it were open.
            state.deciding.push(txn.last_offset, txn.first_offset, inner.high_watermark());
            inner.settle_later(&state);
        }
        let entry = TailEntry::new(batch, seq, columns);
        let size = entry.size;
        state.tail.push(entry);
        state.log_end = end;
        let (tail_size, sealed_bytes) = (state.tail.size(), state.local_bytes);
        drop(state);

        inner.shared.tail_grew(inner.id, size, tail_size, self.seal_bytes(sealed_bytes));
        seq
    }

    /// Whether the tail has reached the size at which it is sealed.
    pub(crate) fn is_large(&self) -> bool {
        let (tail_size, sealed_bytes) = {
            let state = self.inner.state.lock();
            (state.tail.size(), state.local_bytes)
        };
        tail_size >= self.seal_bytes(sealed_bytes)
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
