//! One partition: ordering, the tail, the list of segments, and the offsets that readers see.
//!
//! All state is behind one short lock that is never held across I/O or an await. Durable changes of the manifest (a seal,
//! a new log start, a dropped local copy) are serialised by a second lock, taken by blocking threads only.

mod append;
mod columns;
mod compact;
mod leftovers;
mod merge;
mod read;
mod recover;
mod retain;
mod seal;
mod timestamps;
mod undecided;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::{Mutex, RwLock};
use weir_model::{LogOffsets, Offset, PartitionId};

use crate::manifest::PartitionRecord;
use crate::producers::{Deciding, ProducerTable};
use crate::segment::{ArrowSegment, LogSegment, SegmentError, SegmentKind, SegmentMeta};
use crate::shared::Shared;
use crate::signal::{ReadSignal, Waiters};
use crate::tail::Tail;
use crate::topics::TopicInfo;
use crate::wal::{DurableSink, WalSeq};

pub use append::{AppendError, Appended};
pub(crate) use compact::CompactionLimits;
pub(crate) use merge::Merge;
pub use merge::MergeError;
pub use read::{Chunk, ReadError, ReadLimits, RowForm, RowsRead};
pub use recover::RecoverError;
pub(crate) use recover::{Recovered, topic_directory, topic_directory_name};
pub use retain::{RetainError, Retained};
pub use seal::SealError;
pub(crate) use seal::{Stretch, seal_together};
pub use timestamps::TimestampHit;

/// The leader epoch of every partition: with one broker, leadership never changes.
pub const LEADER_EPOCH: i32 = 0;

/// One partition of a topic. Cheap to clone.
#[derive(Clone)]
pub struct Partition {
    inner: Arc<Inner>,
}

struct Inner {
    id: PartitionId,
    /// Where its segments are. Made with the first seal, so that ten thousand quiet partitions make no directory.
    directory: PathBuf,
    topic: RwLock<Arc<TopicInfo>>,
    state: Mutex<State>,
    /// Held while a merge or a compaction works, from its choice of inputs to the removal of their files. Lock order: merging, manifest, state.
    merging: Mutex<()>,
    /// Serialises durable changes of the manifest.
    manifest: Mutex<()>,
    /// First offset that is not durable. Moved by the WAL's writer, in order (LOG-2).
    high_watermark: AtomicI64,
    /// Once the high watermark reaches this, a marker that undecided segments wait for is durable, and the sealer is asked.
    settle_at: AtomicI64,
    /// Set when the topic is deleted: nothing is appended any more.
    closed: AtomicBool,
    waiters: Waiters,
    shared: Arc<Shared>,
}

struct State {
    record: PartitionRecord,
    log_end: Offset,
    tail: Tail,
    /// Every stretch below the tail, by its first offset; without holes.
    segments: BTreeMap<Offset, Segment>,
    /// Whether one of them is undecided.
    has_undecided: bool,
    /// As of the log end.
    producers: ProducerTable,
    /// Transactions whose marker is not durable yet.
    deciding: Deciding,
    /// As of the sealed end: what the next seal's snapshot continues from.
    sealed_producers: ProducerTable,
    /// Bytes of local segment files.
    local_bytes: u64,
}

/// A sealed stretch.
#[derive(Clone)]
enum Segment {
    /// The batches as they came.
    Log(Arc<LogSegment>),
    /// Columns.
    Arrow(Arc<ArrowSegment>),
    /// The batches as they came, control batches and those of open and aborted transactions among them: what a long
    /// transaction kept from being sealed. Becomes a segment of the topic's own kind once it is decided.
    Undecided(Arc<LogSegment>),
    /// In the lake only.
    Tiered(Arc<SegmentMeta>),
}

impl Segment {
    /// Opens a local segment.
    fn open(directory: &Path, meta: &SegmentMeta) -> Result<Self, SegmentError> {
        Ok(match meta.kind {
            SegmentKind::Log => Self::Log(Arc::new(LogSegment::open(directory, meta)?)),
            SegmentKind::Arrow => Self::Arrow(Arc::new(ArrowSegment::open(directory, meta)?)),
            SegmentKind::Undecided => Self::Undecided(Arc::new(LogSegment::open(directory, meta)?)),
        })
    }

    /// Reads all of a local file and compares every checksum.
    fn verify(&self) -> Result<(), SegmentError> {
        match self {
            Self::Log(segment) | Self::Undecided(segment) => segment.verify(),
            Self::Arrow(segment) => segment.verify(),
            Self::Tiered(_) => Ok(()),
        }
    }

    fn meta(&self) -> &SegmentMeta {
        match self {
            Self::Log(segment) | Self::Undecided(segment) => segment.meta(),
            Self::Arrow(segment) => segment.meta(),
            Self::Tiered(meta) => meta,
        }
    }

    fn is_local(&self) -> bool {
        !matches!(self, Self::Tiered(_))
    }

    /// Whether it holds every committed row of its stretch and nothing else.
    fn is_decided(&self) -> bool {
        !matches!(self, Self::Undecided(_))
    }
}

/// How a partition stands, for operators.
#[derive(Clone, Debug)]
pub struct PartitionStatus {
    /// Its number.
    pub index: i32,
    /// The four offsets.
    pub offsets: LogOffsets,
    /// First offset whose bytes are on this machine.
    pub local_start: Offset,
    /// First offset that is in no segment.
    pub sealed_end: Offset,
    /// First offset that is not in the lake.
    pub lake_end: Option<Offset>,
    /// Bytes of local segment files.
    pub local_bytes: u64,
    /// Local segment files.
    pub local_segments: usize,
    /// Bytes of memory in the tail.
    pub tail_bytes: usize,
    /// Bytes of the tail's batches alone, as they are in the WAL.
    pub tail_batch_bytes: usize,
    /// Segments that were set aside because a transaction was open for long.
    pub undecided_segments: usize,
    /// Open transactions that have rows here.
    pub open_transactions: usize,
}

impl DurableSink for Inner {
    fn durable(&self, token: u64) {
        let end = i64::try_from(token).expect("offsets fit in i64");
        let before = self.high_watermark.swap(end, Ordering::AcqRel);
        assert!(before <= end, "LOG-2: high watermark of {} would go back from {before} to {end}", self.id);
        self.waiters.wake();
        if end >= self.settle_at.load(Ordering::Acquire) {
            self.settle_at.store(i64::MAX, Ordering::Release);
            self.shared.sealer.ask(self.id);
        }
    }
}

impl Partition {
    /// Which partition this is.
    pub fn id(&self) -> PartitionId {
        self.inner.id
    }

    /// The topic, as configured now.
    pub fn topic(&self) -> Arc<TopicInfo> {
        Arc::clone(&self.inner.topic.read())
    }

    pub(crate) fn set_topic(&self, topic: Arc<TopicInfo>) {
        *self.inner.topic.write() = topic;
    }

    /// Ends the partition's life: appends are refused from now on, parked readers are woken. Waits for a merge to notice, so
    /// that nothing is written to the directory any more. Blocks.
    pub(crate) fn close(&self) {
        let mut state = self.inner.state.lock();
        self.inner.closed.store(true, Ordering::SeqCst);
        let tail = std::mem::take(&mut state.tail);
        drop(state);
        self.inner.shared.tail_bytes.sub(tail.size());
        self.inner.waiters.wake();
        drop(self.inner.merging.lock());
    }

    /// Whether the topic was deleted.
    pub fn is_closed(&self) -> bool {
        self.inner.closed.load(Ordering::SeqCst)
    }

    /// The four offsets now.
    pub fn offsets(&self) -> LogOffsets {
        let state = self.inner.state.lock();
        self.inner.offsets(&state)
    }

    /// How the partition stands.
    pub fn status(&self) -> PartitionStatus {
        let state = self.inner.state.lock();
        PartitionStatus {
            index: self.inner.id.index,
            offsets: self.inner.offsets(&state),
            local_start: state.local_start(),
            sealed_end: state.record.sealed_end,
            lake_end: state.record.lake_end,
            local_bytes: state.local_bytes,
            local_segments: state.segments.values().filter(|segment| segment.is_local()).count(),
            tail_bytes: state.tail.size(),
            tail_batch_bytes: state.tail.batch_bytes(),
            undecided_segments: state.segments.values().filter(|segment| !segment.is_decided()).count(),
            open_transactions: state.producers.ongoing_count(),
        }
    }

    /// Has `signal` raised when the high watermark next moves (or the topic goes away). Subscribe first, then look at
    /// [`Self::offsets`]; each move uses the subscription up.
    pub fn subscribe(&self, signal: &Arc<ReadSignal>) {
        self.inner.waiters.subscribe(signal);
    }

    /// The oldest WAL entry that only the tail holds; the WAL is kept from there on.
    pub(crate) fn oldest_unsealed(&self) -> Option<WalSeq> {
        self.inner.state.lock().tail.front().map(|entry| entry.seq)
    }

    /// Whether a stretch was set aside that is still to be settled.
    pub(crate) fn has_undecided(&self) -> bool {
        self.inner.state.lock().has_undecided
    }

    /// Memory in the tail, in bytes.
    pub(crate) fn tail_size(&self) -> usize {
        self.inner.state.lock().tail.size()
    }

    /// Forgets producers that last wrote before `before_ms` and have no transaction open.
    pub(crate) fn expire_producers(&self, before_ms: i64) {
        self.inner.state.lock().producers.expire(before_ms);
    }

    /// The producers that write here, with their newest batches.
    pub fn producers(&self) -> ProducerTable {
        self.inner.state.lock().producers.clone()
    }
}

impl Inner {
    /// Has the sealer look after the undecided segments when the next marker becomes durable, or now when it did meanwhile.
    fn settle_later(&self, state: &State) {
        let Some(marker) = state.deciding.next(self.high_watermark()).filter(|_| state.has_undecided) else { return };
        self.settle_at.store(marker.next().get(), Ordering::Release);
        if self.high_watermark() > marker {
            self.shared.sealer.ask(self.id);
        }
    }

    fn high_watermark(&self) -> Offset {
        Offset::new(self.high_watermark.load(Ordering::Acquire)).expect("the high watermark is never negative")
    }

    /// The last stable offset is where the oldest transaction begins that is open or whose marker is not durable, but never
    /// below the log start: what DeleteRecords took away holds nobody up (Kafka's `UnifiedLog.maybeIncrementFirstUnstableOffset`).
    fn offsets(&self, state: &State) -> LogOffsets {
        let high_watermark = self.high_watermark();
        let log_start = state.record.log_start.min(high_watermark);
        let unstable =
            [state.producers.first_ongoing(), state.deciding.first(high_watermark)].into_iter().flatten().min();
        let last_stable = unstable.map_or(high_watermark, |first| first.clamp(log_start, high_watermark));
        LogOffsets::new(log_start, last_stable, high_watermark, state.log_end)
    }
}

impl State {
    /// First offset whose bytes are on this machine.
    fn local_start(&self) -> Offset {
        let below_tail = self.segments.iter().find(|(_, segment)| segment.is_local()).map(|(start, _)| *start);
        below_tail.unwrap_or(self.record.sealed_end).max(self.record.log_start)
    }

    /// First offset that is in no decided segment: below it aborted rows and control batches are gone.
    fn decided_end(&self) -> Offset {
        let undecided = self.segments.iter().find(|(_, segment)| !segment.is_decided()).map(|(start, _)| *start);
        undecided.unwrap_or(self.record.sealed_end)
    }
}
