//! The words of the field: ids, offsets, record batches and configuration tables.
//!
//! Nothing here does I/O or knows an RPC. A type lives in this crate once two crates need it.

pub mod clock;
pub mod config;
mod id;
mod offset;
pub mod producer;
pub mod record_batch;

pub use clock::{Clock, ManualClock, SystemClock};
pub use id::{PartitionId, TopicId, TopicName, TopicNameError};
pub use offset::{LogOffsets, Offset, OffsetRange};

/// Which records a reader may see (KIP-98).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Everything below the high watermark, aborted records included.
    ReadUncommitted,
    /// Everything below the last stable offset.
    ReadCommitted,
}

/// What the timestamp of a record means (`message.timestamp.type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// The producer set it.
    CreateTime,
    /// The broker set it when it appended the batch.
    LogAppendTime,
}

/// The epoch of a partition's leader. Starts at 0 and never goes back (KIP-320).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaderEpoch(pub i32);
