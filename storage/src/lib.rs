//! The log: WAL, tail, segments, and the metadata that names them.
//!
//! Knows offsets, batches and rows. Knows no API key, error code or session.

mod block_cache;
pub mod cold;
pub mod disk;
pub mod doctor;
pub mod manifest;
pub mod meta;
pub mod partition;
pub mod producers;
pub mod rows;
pub mod segment;
mod shared;
mod signal;
mod store;
mod tail;
pub mod topics;
pub mod wal;

pub use cold::{ColdError, ColdTier, ColumnsRead};
pub use partition::{
    AppendError, Appended, Chunk, Partition, PartitionStatus, ReadError, ReadLimits, RowForm, RowsRead, TimestampHit,
};
pub use producers::{AbortedTxn, OngoingTxn, TxnGuard};
pub use shared::Counters;
pub use signal::ReadSignal;
pub use store::{AdmitError, BrokerConfigs, OpenError, Storage, StorageOptions};
pub use topics::{TopicError, TopicInfo, TopicRecord, TopicSpec, Topics};
