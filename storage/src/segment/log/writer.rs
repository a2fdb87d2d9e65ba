//! Writing a `.log` segment.

use std::path::{Path, PathBuf};

use weir_model::record_batch::{AssignedBatch, BatchHeader};
use weir_model::{Offset, OffsetRange, TimestampType};

use super::super::checksum::Crc32c;
use super::super::file::{SegmentFileWriter, write_index_file};
use super::super::{SegmentError, SegmentKind, SegmentMeta, SegmentName, sync_dir};
use super::index::IndexBuilder;
use super::{INDEX, INDEXED_FROM_BYTES, LOG, TIME_INDEX};

/// Kafka's limit: positions and relative offsets are signed 32-bit.
const MAX_BYTES: u64 = i32::MAX as u64;

/// Writes a `.log` segment and its two indexes. Nothing is visible under the final names before [`Self::finish`].
#[derive(Debug)]
pub struct LogSegmentWriter {
    dir: PathBuf,
    name: SegmentName,
    file: SegmentFileWriter,
    index: IndexBuilder,
    covered_to: Option<Offset>,
    /// First offset the next batch may have.
    next_offset: i64,
    min_timestamp: Option<i64>,
    max_timestamp: Option<i64>,
    rows: u64,
}

impl LogSegmentWriter {
    /// Starts the segment of this name; an offset alone names one of generation 0. `dir` exists and belongs to the partition.
    ///
    /// # Errors
    /// [`SegmentError::Io`] when the file cannot be created.
    pub fn create(dir: &Path, name: impl Into<SegmentName>) -> Result<Self, SegmentError> {
        let name = name.into();
        Ok(Self {
            dir: dir.to_owned(),
            name,
            file: SegmentFileWriter::create(dir, &name.file(LOG))?,
            index: IndexBuilder::default(),
            covered_to: None,
            next_offset: name.base_offset.get(),
            min_timestamp: None,
            max_timestamp: None,
            rows: 0,
        })
    }

    /// Says that the segment stands for the log up to `end`, past its last record: what lies between was aborted or
    /// compacted away.
    pub fn cover_to(&mut self, end: Offset) {
        self.covered_to = Some(end);
    }

    /// Bytes so far.
    pub fn size_bytes(&self) -> u64 {
        self.file.position()
    }

    /// Whether Kafka's index could still address the batch in this segment.
    pub fn fits(&self, batch: &AssignedBatch) -> bool {
        let distance = batch.header().last_offset().saturating_sub(self.name.base_offset.get());
        self.file.position() + batch.size() as u64 <= MAX_BYTES && i32::try_from(distance).is_ok()
    }

    /// Appends a batch as it is.
    ///
    /// # Errors
    /// [`SegmentError::OffsetsNotRising`], [`SegmentError::Full`] when it does not fit (the segment can still be finished),
    /// [`SegmentError::Io`] (it cannot).
    pub fn append(&mut self, batch: &AssignedBatch) -> Result<(), SegmentError> {
        let header = batch.header();
        if header.base_offset < self.next_offset {
            return Err(SegmentError::OffsetsNotRising { previous: self.next_offset - 1, found: header.base_offset });
        }
        if !self.fits(batch) {
            return Err(SegmentError::Full { base_offset: self.name.base_offset, offset: header.base_offset });
        }
        let position = self.file.position();
        self.file.write_all(batch.prefix())?;
        match batch.cheap_body_crc32c() {
            Some(crc32c) => self.file.write_checked(batch.body(), crc32c)?,
            None => self.file.write_all(batch.body())?,
        }
        self.index.add(header, position);
        self.next_offset = header.last_offset() + 1;
        self.rows += u64::try_from(header.record_count).unwrap_or(0);
        self.note_timestamps(header);
        Ok(())
    }

    fn note_timestamps(&mut self, header: &BatchHeader) {
        // A marker is found by no time, and keeps nothing from expiring.
        if header.attributes.is_control() {
            return;
        }
        let least = match header.attributes.timestamp_type() {
            TimestampType::CreateTime => header.base_timestamp.min(header.max_timestamp),
            // Readers take the batch's max timestamp for every record; the base is still the client's.
            TimestampType::LogAppendTime => header.max_timestamp,
        };
        self.min_timestamp = Some(self.min_timestamp.map_or(least, |timestamp| timestamp.min(least)));
        self.max_timestamp =
            Some(self.max_timestamp.map_or(header.max_timestamp, |timestamp| timestamp.max(header.max_timestamp)));
    }

    /// Writes the two index files and answers their CRC.
    fn write_indexes(&mut self, path: &Path) -> Result<u32, SegmentError> {
        let index = std::mem::take(&mut self.index).finish();
        let positions = index.encode_positions(self.name.base_offset.get());
        let times = index.encode_times(self.name.base_offset.get());
        write_index_file(&path.with_extension(INDEX), &positions)?;
        write_index_file(&path.with_extension(TIME_INDEX), &times)?;
        let mut digest = Crc32c::new();
        digest.update(&positions);
        digest.update(&times);
        Ok(digest.value())
    }

    /// Syncs the segment and gives it its name, the indexes first. It is durable when this returns.
    ///
    /// # Errors
    /// [`SegmentError::Empty`], [`SegmentError::OutsideCover`], [`SegmentError::Io`]; the temporary file is then removed.
    pub fn finish(mut self, created_ms: i64) -> Result<SegmentMeta, SegmentError> {
        let written_end = Offset::new(self.next_offset).expect("offsets rise from one that is not negative");
        let end = self.covered_to.unwrap_or(written_end);
        if end < written_end {
            return Err(SegmentError::OutsideCover {
                covered: OffsetRange { start: self.name.base_offset, end },
                offset: self.next_offset - 1,
            });
        }
        if end <= self.name.base_offset {
            return Err(SegmentError::Empty);
        }
        let name = self.name.file(LOG);
        let path = self.dir.join(&name);
        let index_digest = if self.file.position() < INDEXED_FROM_BYTES { 0 } else { self.write_indexes(&path)? };
        let finished = self.file.finish(&path)?;
        sync_dir(&self.dir)?;
        Ok(SegmentMeta {
            kind: SegmentKind::Log,
            file: name,
            generation: self.name.generation,
            range: OffsetRange::new(self.name.base_offset, end),
            size_bytes: finished.size_bytes,
            min_timestamp: self.min_timestamp.unwrap_or(-1),
            max_timestamp: self.max_timestamp.unwrap_or(-1),
            rows: self.rows,
            created_ms,
            schema_id: 0,
            digest: finished.digest,
            index_digest,
        })
    }
}
