//! Putting a partition together: from the manifest at start, then from the WAL.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::{Mutex, RwLock};
use weir_model::record_batch::{AssignedBatch, ControlError};
use weir_model::{Offset, PartitionId, TopicId};

use super::{Inner, Partition, Segment, State};
use crate::manifest::{PartitionRecord, SegmentRecord};
use crate::producers::{Deciding, ProducerTable};
use crate::segment::SegmentError;
use crate::shared::Shared;
use crate::signal::Waiters;
use crate::tail::{Tail, TailEntry};
use crate::topics::TopicInfo;
use crate::wal::WalSeq;

/// Why a partition did not come back. The broker does not start on it, and touches nothing.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// A segment that the manifest names cannot be opened.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The stretches of the manifest do not join.
    #[error("partition {partition}: segments do not join at offset {at}; run weir doctor")]
    Hole {
        /// Which partition.
        partition: PartitionId,
        /// Where the next segment was expected.
        at: Offset,
    },
    /// A control batch in the WAL says nothing that can be read.
    #[error("partition {partition}: {source}; run weir doctor")]
    Control {
        /// Which partition.
        partition: PartitionId,
        /// What is wrong.
        source: ControlError,
    },
    /// The WAL does not join the last segment, or its own entries do not join.
    #[error(
        "partition {partition}: after offset {from} the WAL goes on at {to}; what lies between is in no segment; run weir doctor"
    )]
    Lost {
        /// Which partition.
        partition: PartitionId,
        /// The offset expected next.
        from: Offset,
        /// The offset that came.
        to: Offset,
    },
}

/// What the manifest says of a partition.
pub(crate) struct Recovered {
    pub(crate) record: PartitionRecord,
    pub(crate) segments: Vec<SegmentRecord>,
    pub(crate) producers: ProducerTable,
}

impl Recovered {
    pub(crate) fn new_partition() -> Self {
        Self { record: PartitionRecord::NEW, segments: Vec::new(), producers: ProducerTable::default() }
    }
}

impl Partition {
    /// The partition as of its last seal. `replayed` are its batches from the WAL, in order.
    ///
    /// # Errors
    /// [`RecoverError`]; no file was changed.
    pub(crate) fn recover(
        shared: Arc<Shared>,
        topic: Arc<TopicInfo>,
        id: PartitionId,
        recovered: Recovered,
        replayed: Vec<(WalSeq, AssignedBatch)>,
    ) -> Result<Self, RecoverError> {
        let directory: PathBuf = partition_directory(&shared, &topic, id);
        let Recovered { record, segments: records, producers } = recovered;
        let mut segments = BTreeMap::new();
        let mut local_bytes = 0;
        let mut next = None;
        for SegmentRecord { meta, local } in records {
            if next.is_some_and(|expected| expected != meta.range.start) {
                return Err(RecoverError::Hole { partition: id, at: next.unwrap_or(Offset::ZERO) });
            }
            next = Some(meta.range.end);
            let segment =
                if local { Segment::open(&directory, &meta)? } else { Segment::Tiered(Arc::new(meta.clone())) };
            if local {
                local_bytes += meta.size_bytes;
            }
            segments.insert(meta.range.start, segment);
        }
        if next.is_some_and(|end| end != record.sealed_end) {
            return Err(RecoverError::Hole { partition: id, at: record.sealed_end });
        }
        let has_undecided = segments.values().any(|segment| !segment.is_decided());
        let mut state = State {
            record,
            log_end: record.sealed_end,
            tail: Tail::default(),
            segments,
            has_undecided,
            sealed_producers: producers.clone(),
            producers,
            deciding: Deciding::default(),
            local_bytes,
        };
        let now_ms = shared.clock.now_ms();
        for (seq, batch) in replayed {
            let entry = TailEntry::new(batch, seq, None);
            if entry.end() <= state.record.sealed_end {
                continue;
            }
            if entry.start() != state.log_end {
                return Err(RecoverError::Lost { partition: id, from: state.log_end, to: entry.start() });
            }
            // What was replayed is durable, markers too: nothing is left to wait for.
            state
                .producers
                .record(&entry.batch, now_ms)
                .map_err(|source| RecoverError::Control { partition: id, source })?;
            state.log_end = entry.end();
            shared.tail_bytes.add(entry.size);
            state.tail.push(entry);
        }
        // The WAL synced what it replayed before it gave it out, so all of it is durable.
        let high_watermark = AtomicI64::new(state.log_end.get());
        let inner = Inner {
            id,
            directory,
            topic: RwLock::new(topic),
            state: Mutex::new(state),
            merging: Mutex::new(()),
            manifest: Mutex::new(()),
            high_watermark,
            settle_at: AtomicI64::new(i64::MAX),
            closed: AtomicBool::new(false),
            waiters: Waiters::default(),
            shared,
        };
        assert!(inner.high_watermark.load(Ordering::Relaxed) >= 0, "LOG-1: a recovered partition ends below zero");
        Ok(Self { inner: Arc::new(inner) })
    }
}

/// Where a partition's segments are: the topic's name for people, its id because names come again.
fn partition_directory(shared: &Shared, topic: &TopicInfo, id: PartitionId) -> PathBuf {
    topic_directory(shared, topic).join(id.index.to_string())
}

/// Where a topic's segments are.
pub(crate) fn topic_directory(shared: &Shared, topic: &TopicInfo) -> PathBuf {
    shared.segments_directory.join(topic_directory_name(topic.name().as_str(), topic.id()))
}

/// The last part of it.
pub(crate) fn topic_directory_name(name: &str, id: TopicId) -> String {
    format!("{name}.{}", id.as_uuid().simple())
}
