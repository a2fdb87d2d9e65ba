//! Offsets of a partition, and the four that describe its log.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Position of a record in its partition. Never negative; Kafka's sentinels stay in the codecs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(i64);

impl Offset {
    /// The first offset of a new partition.
    pub const ZERO: Self = Self(0);
    /// The largest offset there can be.
    pub const MAX: Self = Self(i64::MAX);

    /// `value` as an offset; `None` when it is negative.
    pub fn new(value: i64) -> Option<Self> {
        (value >= 0).then_some(Self(value))
    }

    /// The number on the wire.
    pub fn get(self) -> i64 {
        self.0
    }

    /// The offset after this one.
    #[must_use]
    pub fn next(self) -> Self {
        self.plus(1)
    }

    /// The offset `count` further on, stopping at the largest.
    #[must_use]
    pub fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(i64::try_from(count).unwrap_or(i64::MAX)))
    }

    /// How many offsets lie from `earlier` to this one; 0 when it is not earlier.
    pub fn since(self, earlier: Offset) -> u64 {
        u64::try_from(self.0 - earlier.0).unwrap_or(0)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Offsets `start..end`, the end not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OffsetRange {
    /// First offset inside.
    pub start: Offset,
    /// First offset beyond.
    pub end: Offset,
}

impl OffsetRange {
    /// The range `start..end`.
    ///
    /// # Panics
    /// When `end` lies before `start`.
    pub fn new(start: Offset, end: Offset) -> Self {
        assert!(start <= end, "offset range runs backwards: {start}..{end}");
        Self { start, end }
    }

    /// Number of offsets inside, gaps included.
    pub fn len(&self) -> u64 {
        self.end.since(self.start)
    }

    /// Whether nothing lies inside.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether `offset` lies inside.
    pub fn contains(&self, offset: Offset) -> bool {
        self.start <= offset && offset < self.end
    }
}

/// The four offsets of a log, always in order (LOG-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOffsets {
    log_start: Offset,
    last_stable: Offset,
    high_watermark: Offset,
    log_end: Offset,
}

impl LogOffsets {
    /// The four offsets.
    ///
    /// # Panics
    /// When they are not in order: `log_start <= last_stable <= high_watermark <= log_end` (LOG-1).
    pub fn new(log_start: Offset, last_stable: Offset, high_watermark: Offset, log_end: Offset) -> Self {
        assert!(
            log_start <= last_stable && last_stable <= high_watermark && high_watermark <= log_end,
            "LOG-1: log start {log_start}, last stable {last_stable}, high watermark {high_watermark}, log end {log_end}"
        );
        Self { log_start, last_stable, high_watermark, log_end }
    }

    /// First offset that can be read.
    pub fn log_start(&self) -> Offset {
        self.log_start
    }

    /// First offset a read-committed consumer may not yet see.
    pub fn last_stable(&self) -> Offset {
        self.last_stable
    }

    /// First offset that is not yet durable.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// Offset the next record will get.
    pub fn log_end(&self) -> Offset {
        self.log_end
    }

    /// First offset beyond what a reader of this isolation may see.
    pub fn read_end(&self, isolation: crate::Isolation) -> Offset {
        match isolation {
            crate::Isolation::ReadUncommitted => self.high_watermark,
            crate::Isolation::ReadCommitted => self.last_stable,
        }
    }
}
