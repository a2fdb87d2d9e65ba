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
/// Extension of the offset index.
pub(super) const INDEX: &str = "index";
/// Extension of the time index.
pub(super) const TIME_INDEX: &str = "timeindex";
