//! `.log` segments: Kafka batches as they came, back to back, with Kafka's `.index` and `.timeindex` beside them, so that
//! `kafka-dump-log` opens them.

mod index;
mod reader;
#[cfg(test)]
mod tests;
mod walk;
mod writer;

pub(super) use reader::range_of_file;
pub use reader::{LogBatches, LogRead, LogSegment};
pub use writer::LogSegmentWriter;

/// Extension of the batches.
pub(super) const LOG: &str = "log";
/// A smaller segment has no index files: its batch headers are read in well under a millisecond, and a thousand partitions
/// that seal a little each make a third of the files.
pub(super) const INDEXED_FROM_BYTES: u64 = if cfg!(test) { 1 << 10 } else { 1 << 20 };
/// Extension of the offset index.
pub(super) const INDEX: &str = "index";
/// Extension of the time index.
pub(super) const TIME_INDEX: &str = "timeindex";
