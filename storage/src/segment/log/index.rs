//! The sparse index of a `.log` segment, in Kafka's two file formats (`OffsetIndex`, `TimeIndex`).
//!
//! ```text
//! .index      8 bytes an entry: last offset of a batch - base offset i32 | position of that batch i32
//! .timeindex 12 bytes an entry: largest timestamp so far i64 | last offset of the batch that has it - base offset i32
//! ```
//! All big endian. The files carry no checksum; [`super::super::SegmentMeta::index_digest`] does.

use weir_model::record_batch::BatchHeader;

/// Bytes of log per entry. Kafka's `index.interval.bytes` is 4096, made for disks that seek; a lookup here reads at most
/// one interval of headers, and 16 KiB is one read ahead. A full segment of 1 GiB has 65,536 entries, 512 KiB.
const INTERVAL_BYTES: u64 = 16 << 10;

/// Kafka's mark for a record without a timestamp; such records get no time index entry.
const NO_TIMESTAMP: i64 = -1;

/// One entry of the offset index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PositionEntry {
    last_offset: i64,
    position: u64,
}

/// One entry of the time index: no record up to `offset` is later than `timestamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TimeEntry {
    timestamp: i64,
    offset: i64,
}

/// Both indexes in memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SparseIndex {
    positions: Vec<PositionEntry>,
    times: Vec<TimeEntry>,
}

impl SparseIndex {
    /// Position of a batch from which to walk to find `offset`: no batch before it holds the offset.
    pub(super) fn position_below(&self, offset: i64) -> u64 {
        let after = self.positions.partition_point(|entry| entry.last_offset <= offset);
        after.checked_sub(1).map_or(0, |at| self.positions[at].position)
    }

    /// The last batch the index knows at or before `position`, if it lies after `beyond`.
    pub(super) fn batch_at_or_below(&self, position: u64, beyond: u64) -> Option<u64> {
        let after = self.positions.partition_point(|entry| entry.position <= position);
        after.checked_sub(1).map(|at| self.positions[at].position).filter(|found| *found > beyond)
    }

    /// The first offset worth a look for a record at or after `timestamp`; `None` when any offset is.
    pub(super) fn first_candidate(&self, timestamp: i64) -> Option<i64> {
        let after = self.times.partition_point(|entry| entry.timestamp < timestamp);
        after.checked_sub(1).map(|at| self.times[at].offset + 1)
    }

    pub(super) fn encode_positions(&self, base_offset: i64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.positions.len() * 8);
        for entry in &self.positions {
            bytes.extend_from_slice(&relative(entry.last_offset, base_offset).to_be_bytes());
            let position = i32::try_from(entry.position).expect("the writer refuses segments over 2 GiB");
            bytes.extend_from_slice(&position.to_be_bytes());
        }
        bytes
    }

    pub(super) fn encode_times(&self, base_offset: i64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.times.len() * 12);
        for entry in &self.times {
            bytes.extend_from_slice(&entry.timestamp.to_be_bytes());
            bytes.extend_from_slice(&relative(entry.offset, base_offset).to_be_bytes());
        }
        bytes
    }

    /// Reads both files. The caller has compared their checksum, so a ragged end means another format: `None`.
    pub(super) fn decode(base_offset: i64, positions: &[u8], times: &[u8]) -> Option<Self> {
        let (positions, []) = positions.as_chunks::<8>() else { return None };
        let (times, []) = times.as_chunks::<12>() else { return None };
        let positions = positions
            .iter()
            .map(|[a, b, c, d, position @ ..]| {
                Some(PositionEntry {
                    last_offset: base_offset + i64::from(i32::from_be_bytes([*a, *b, *c, *d])),
                    position: u64::try_from(i32::from_be_bytes(*position)).ok()?,
                })
            })
            .collect::<Option<_>>()?;
        let times = times
            .iter()
            .map(|[timestamp @ .., a, b, c, d]| TimeEntry {
                timestamp: i64::from_be_bytes(*timestamp),
                offset: base_offset + i64::from(i32::from_be_bytes([*a, *b, *c, *d])),
            })
            .collect();
        Some(Self { positions, times })
    }
}

fn relative(offset: i64, base_offset: i64) -> i32 {
    i32::try_from(offset - base_offset).expect("the writer refuses offsets that far from the base")
}

/// Makes the index, batch by batch, as `LogSegment.append` of Kafka does.
#[derive(Debug, Default)]
pub(super) struct IndexBuilder {
    index: SparseIndex,
    bytes_since_entry: u64,
    latest: Option<TimeEntry>,
}

impl IndexBuilder {
    pub(super) fn add(&mut self, header: &BatchHeader, position: u64) {
        if self.latest.is_none_or(|latest| header.max_timestamp > latest.timestamp) {
            self.latest = Some(TimeEntry { timestamp: header.max_timestamp, offset: header.last_offset() });
        }
        if self.bytes_since_entry > INTERVAL_BYTES {
            self.index.positions.push(PositionEntry { last_offset: header.last_offset(), position });
            self.add_time();
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += header.total_size() as u64;
    }

    /// The index, closed with the segment's largest timestamp.
    pub(super) fn finish(mut self) -> SparseIndex {
        self.add_time();
        self.index
    }

    fn add_time(&mut self) {
        if let Some(latest) = self.latest
            && latest.timestamp > self.index.times.last().map_or(NO_TIMESTAMP, |last| last.timestamp)
        {
            self.index.times.push(latest);
        }
    }
}
