//! Reading a `.log` segment.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use weir_model::record_batch::{AssignedBatch, BatchHeader, HEADER_SIZE, RecordIter};
use weir_model::{LeaderEpoch, Offset, OffsetRange, TimestampType};

use super::super::checksum::Crc32c;
use super::super::file::SealedFile;
use super::super::{SegmentError, SegmentMeta, TimestampMatch};
use super::index::{IndexBuilder, SparseIndex};
use super::walk::{HeaderWalk, Placed, check};
use super::{INDEX, INDEXED_FROM_BYTES, TIME_INDEX};

/// A stored batch was held to the topic's limit when it was produced; this only stops a runaway.
const MAX_DECOMPRESSED_BYTES: usize = 1 << 30;

/// Whole batches inside a file, ready for `sendfile`.
#[derive(Clone, Debug)]
pub struct LogRead {
    /// The segment's file.
    pub file: Arc<File>,
    /// Where the first batch begins.
    pub position: u64,
    /// Bytes of all the batches; 0 when there is none.
    pub len: usize,
    /// Where to read on: the base offset of the batch after the last one, or the end of the segment.
    pub next: Offset,
}

/// A sealed `.log` segment. Cheap to clone, usable from any thread; its index is loaded at the first read.
#[derive(Clone, Debug)]
pub struct LogSegment {
    file: SealedFile,
    meta: Arc<SegmentMeta>,
    index: Arc<Mutex<Option<Arc<SparseIndex>>>>,
    records_end: Arc<OnceLock<Offset>>,
}

impl LogSegment {
    /// Opens the segment and checks its size. Reads nothing.
    ///
    /// # Errors
    /// [`SegmentError::Io`], or [`SegmentError::Corrupt`] when the size is not the sealed one.
    pub fn open(dir: &Path, meta: &SegmentMeta) -> Result<Self, SegmentError> {
        let file = SealedFile::open(&dir.join(&meta.file), meta.size_bytes)?;
        Ok(Self { file, meta: Arc::new(meta.clone()), index: Arc::default(), records_end: Arc::default() })
    }

    /// What the manifest keeps of it.
    pub fn meta(&self) -> &SegmentMeta {
        &self.meta
    }

    /// Whole batches from the one that holds `from` (it may begin before; S-47), or the first after it when `from` falls
    /// into a gap, as many as fit into `max_bytes`. With `at_least_one` the first is given whatever its size (S-48).
    ///
    /// Reads batch headers only: from the nearest index entry to the first batch, and again at the end of the range.
    /// CRCs are left to the client, who checks them anyway.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::Corrupt`].
    pub fn read(&self, from: Offset, max_bytes: usize, at_least_one: bool) -> Result<LogRead, SegmentError> {
        let index = self.index()?;
        let Some(first) = self.first_batch(&index, from)? else {
            return Ok(self.slice(self.file.size_bytes, self.file.size_bytes, self.meta.range.end));
        };
        let limit = first.position.saturating_add(max_bytes as u64);
        if first.end() > limit && !at_least_one {
            return Ok(self.slice(first.position, first.position, from));
        }
        if limit >= self.file.size_bytes {
            return Ok(self.slice(first.position, self.file.size_bytes, self.meta.range.end));
        }
        // Every batch before the last index entry under the limit fits; only the rest is walked.
        let known = index.batch_at_or_below(limit, first.position).unwrap_or(first.end());
        let mut end = known;
        let mut walk = HeaderWalk::new(&self.file, self.meta.range, known);
        while let Some(batch) = walk.next()? {
            if batch.end() > limit {
                return Ok(self.slice(first.position, end, at_offset(batch.header.base_offset)));
            }
            end = batch.end();
        }
        Ok(self.slice(first.position, end, self.meta.range.end))
    }

    /// As [`Self::read`], but no batch at or beyond `end`. Walks the headers of what it gives when `end` lies inside.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_below(
        &self,
        from: Offset,
        end: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<LogRead, SegmentError> {
        if end >= self.meta.range.end {
            return self.read(from, max_bytes, at_least_one);
        }
        let index = self.index()?;
        let mut walk = HeaderWalk::new(&self.file, self.meta.range, index.position_below(from.get()));
        let (mut start, mut stop, mut next) = (None, 0, end);
        while let Some(placed) = walk.next()? {
            if placed.header.last_offset() < from.get() {
                continue;
            }
            if placed.header.last_offset() >= end.get() {
                break;
            }
            let first = *start.get_or_insert(placed.position);
            let fits = placed.end() - first <= max_bytes as u64 || (placed.position == first && at_least_one);
            if !fits {
                next = at_offset(placed.header.base_offset).max(from);
                break;
            }
            stop = placed.end();
        }
        let start = start.unwrap_or(stop);
        Ok(self.slice(start, stop.max(start), next))
    }

    /// First offset after the last record: below the end of the range when a gap lies in between.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::Corrupt`].
    pub fn records_end(&self) -> Result<Offset, SegmentError> {
        if let Some(known) = self.records_end.get() {
            return Ok(*known);
        }
        let index = self.index()?;
        let mut walk = HeaderWalk::new(&self.file, self.meta.range, index.position_below(i64::MAX));
        let mut end = self.meta.range.start;
        while let Some(placed) = walk.next()? {
            end = at_offset(placed.header.last_offset()).next();
        }
        Ok(*self.records_end.get_or_init(|| end))
    }

    /// The first record at or above `from` with a timestamp of at least `timestamp`, in offset order, looked for inside
    /// compressed batches, whatever the order of timestamps (S-60).
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::Corrupt`].
    pub fn offset_for_timestamp(&self, timestamp: i64, from: Offset) -> Result<Option<TimestampMatch>, SegmentError> {
        let index = self.index()?;
        let least_offset = index.first_candidate(timestamp).map_or(from.get(), |candidate| candidate.max(from.get()));
        let mut walk = HeaderWalk::new(&self.file, self.meta.range, index.position_below(least_offset));
        while let Some(placed) = walk.next()? {
            let header = &placed.header;
            let is_control = header.attributes.is_control();
            if header.last_offset() < least_offset || header.max_timestamp < timestamp || is_control {
                continue;
            }
            let bytes = self.file.read(placed.position, header.total_size() as u64)?;
            let batch = self.checked(Bytes::from(bytes), placed.position)?;
            if let Some(found) = self.first_record(&batch, timestamp, from, placed.position)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Every batch from the one that holds `from` on, its CRC checked.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::Corrupt`]; the iterator ends after an error.
    pub fn batches(&self, from: Offset) -> Result<LogBatches, SegmentError> {
        let index = self.index()?;
        let first = self.first_batch(&index, from)?;
        Ok(LogBatches {
            segment: self.clone(),
            position: first.map_or(self.file.size_bytes, |first| first.position),
            least_offset: self.meta.range.start.get(),
            piece: Bytes::new(),
            piece_from: 0,
        })
    }

    /// Reads everything: the CRC of the file, of every batch, of the indexes, the order of offsets and the number of rows.
    ///
    /// # Errors
    /// [`SegmentError::Corrupt`] names the first damage, [`SegmentError::Io`].
    pub fn verify(&self) -> Result<(), SegmentError> {
        let mut rows = 0;
        for batch in self.batches(Offset::ZERO)? {
            rows += u64::try_from(batch?.header().record_count).unwrap_or(0);
        }
        if rows != self.meta.rows {
            return Err(SegmentError::corrupt(
                &self.file.path,
                format!("it has {rows} records, {} were sealed", self.meta.rows),
            ));
        }
        let digest = self.file.digest()?;
        if digest != self.meta.digest {
            return Err(SegmentError::corrupt(
                &self.file.path,
                format!("its CRC-32C is {digest:#010x}, {:#010x} was sealed", self.meta.digest),
            ));
        }
        if !self.has_index_files() {
            return Ok(());
        }
        let (_, what) = self.load_index();
        what.map_or(Ok(()), |what| Err(SegmentError::corrupt(&self.file.path.with_extension(INDEX), what)))
    }

    /// The offsets whose batches do not read; what lies between is whole. Behind a header that does not fit nothing can be
    /// found; and as offsets lie outside the CRC, the batch before it may be the one that is wrong, so it counts too.
    ///
    /// # Errors
    /// [`SegmentError::Io`].
    pub fn unreadable(&self) -> Result<Vec<OffsetRange>, SegmentError> {
        let mut lost = Vec::new();
        let mut next = self.meta.range.start;
        let mut before = next;
        let mut walk = HeaderWalk::new(&self.file, self.meta.range, 0);
        loop {
            let placed = match walk.next() {
                Ok(Some(placed)) => placed,
                Ok(None) => return Ok(lost),
                Err(error) if error.is_corrupt() => {
                    lost.retain(|range: &OffsetRange| range.start < before);
                    lost.push(OffsetRange::new(before, self.meta.range.end));
                    return Ok(lost);
                }
                Err(error) => return Err(error),
            };
            let header = &placed.header;
            (before, next) = (next, at_offset(header.last_offset()).next());
            let bytes = self.file.read(placed.position, header.total_size() as u64)?;
            if self.checked(Bytes::from(bytes), placed.position).is_err() {
                lost.push(OffsetRange::new(at_offset(header.base_offset), next));
            }
        }
    }

    fn slice(&self, position: u64, end: u64, next: Offset) -> LogRead {
        let len = usize::try_from(end - position).expect("segments are under 2 GiB");
        LogRead { file: Arc::clone(&self.file.file), position, len, next }
    }

    fn first_batch(&self, index: &SparseIndex, from: Offset) -> Result<Option<Placed>, SegmentError> {
        let mut walk = HeaderWalk::new(&self.file, self.meta.range, index.position_below(from.get()));
        while let Some(placed) = walk.next()? {
            if placed.header.last_offset() >= from.get() {
                return Ok(Some(placed));
            }
        }
        Ok(None)
    }

    fn checked(&self, bytes: Bytes, position: u64) -> Result<AssignedBatch, SegmentError> {
        AssignedBatch::from_stored(bytes, true)
            .map_err(|error| SegmentError::corrupt(&self.file.path, format!("at byte {position}: {error}")))
    }

    fn first_record(
        &self,
        batch: &AssignedBatch,
        timestamp: i64,
        from: Offset,
        position: u64,
    ) -> Result<Option<TimestampMatch>, SegmentError> {
        let malformed = |error| SegmentError::corrupt(&self.file.path, format!("records at byte {position}: {error}"));
        let header = batch.header();
        let records = batch.records(MAX_DECOMPRESSED_BYTES).map_err(malformed)?;
        for record in RecordIter::new(&records, header.record_count) {
            let record = record.map_err(malformed)?;
            let found = match header.attributes.timestamp_type() {
                TimestampType::CreateTime => header.base_timestamp.saturating_add(record.timestamp_delta),
                TimestampType::LogAppendTime => header.max_timestamp,
            };
            let offset = header.base_offset + i64::from(record.offset_delta);
            if found >= timestamp && offset >= from.get() {
                return Ok(Some(TimestampMatch {
                    offset: at_offset(offset),
                    timestamp: found,
                    leader_epoch: Some(LeaderEpoch(header.leader_epoch)),
                }));
            }
        }
        Ok(None)
    }

    /// The index: from its files when they are what was sealed, else made anew from the batches. The files are left as
    /// they are; a segment is immutable, and `weir doctor` shows what is wrong with them.
    fn index(&self) -> Result<Arc<SparseIndex>, SegmentError> {
        let mut slot = self.index.lock();
        if let Some(index) = &*slot {
            return Ok(Arc::clone(index));
        }
        let index = match self.has_index_files().then(|| self.load_index()) {
            None => self.index_from_batches()?,
            Some((Some(index), _)) => index,
            Some((None, what)) => {
                tracing::warn!(
                    file = %self.file.path.display(),
                    what = what.as_deref().unwrap_or_default(),
                    "index of a segment is damaged; reading the segment's batch headers instead"
                );
                self.index_from_batches()?
            }
        };
        Ok(Arc::clone(slot.insert(Arc::new(index))))
    }

    fn has_index_files(&self) -> bool {
        self.meta.size_bytes >= INDEXED_FROM_BYTES
    }

    /// The index as stored, or what is wrong with it.
    fn load_index(&self) -> (Option<SparseIndex>, Option<String>) {
        let read = |extension| std::fs::read(self.file.path.with_extension(extension));
        let (positions, times) = match (read(INDEX), read(TIME_INDEX)) {
            (Ok(positions), Ok(times)) => (positions, times),
            (Err(error), _) | (_, Err(error)) => return (None, Some(error.to_string())),
        };
        let mut digest = Crc32c::new();
        digest.update(&positions);
        digest.update(&times);
        if digest.value() != self.meta.index_digest {
            return (None, Some("the CRC-32C of the indexes is not the sealed one".to_owned()));
        }
        match SparseIndex::decode(self.meta.range.start.get(), &positions, &times) {
            Some(index) => (Some(index), None),
            None => (None, Some("the indexes are not in Kafka's format".to_owned())),
        }
    }

    fn index_from_batches(&self) -> Result<SparseIndex, SegmentError> {
        let mut builder = IndexBuilder::default();
        let mut walk = HeaderWalk::new(&self.file, self.meta.range, 0);
        while let Some(placed) = walk.next()? {
            builder.add(&placed.header, placed.position);
        }
        Ok(builder.finish())
    }
}

fn at_offset(offset: i64) -> Offset {
    Offset::new(offset).expect("the walk checked that offsets lie in the segment's range")
}

/// From `base_offset` to the last batch of a file that no manifest describes. Reads the headers.
pub(in super::super) fn range_of_file(path: &Path, base_offset: Offset) -> Result<OffsetRange, SegmentError> {
    let size_bytes = std::fs::metadata(path).map_err(SegmentError::io("look at", path))?.len();
    let file = SealedFile::open(path, size_bytes)?;
    let mut walk = HeaderWalk::new(&file, OffsetRange::new(base_offset, Offset::MAX), 0);
    let mut end = base_offset;
    while let Some(placed) = walk.next()? {
        end = at_offset(placed.header.last_offset()).next();
    }
    Ok(OffsetRange::new(base_offset, end))
}

/// The batches of a segment in order, each checked.
#[derive(Debug)]
pub struct LogBatches {
    segment: LogSegment,
    position: u64,
    least_offset: i64,
    piece: Bytes,
    piece_from: u64,
}

/// One read of the iterator; a batch larger than this is read whole.
const PIECE_BYTES: u64 = 1 << 20;

impl LogBatches {
    fn read_batch(&mut self) -> Result<AssignedBatch, SegmentError> {
        let position = self.position;
        let head = self.bytes(HEADER_SIZE as u64)?;
        let header = BatchHeader::parse(&head)
            .map_err(|error| SegmentError::corrupt(&self.segment.file.path, format!("at byte {position}: {error}")))?;
        let placed = Placed { position, header };
        check(&self.segment.file.path, self.segment.meta.range, self.least_offset, &placed)?;
        let bytes = self.bytes(header.total_size() as u64)?;
        let batch = self.segment.checked(bytes, position)?;
        self.least_offset = header.last_offset() + 1;
        self.position = placed.end();
        Ok(batch)
    }

    fn bytes(&mut self, length: u64) -> Result<Bytes, SegmentError> {
        if self.position + length > self.piece_from + self.piece.len() as u64 {
            let left = self.segment.file.size_bytes - self.position;
            self.piece = Bytes::from(self.segment.file.read(self.position, length.max(PIECE_BYTES.min(left)))?);
            self.piece_from = self.position;
        }
        let at = usize::try_from(self.position - self.piece_from).expect("inside the piece");
        let length = usize::try_from(length).expect("64-bit address space");
        Ok(self.piece.slice(at..at + length))
    }
}

impl Iterator for LogBatches {
    type Item = Result<AssignedBatch, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position == self.segment.file.size_bytes {
            return None;
        }
        let batch = self.read_batch();
        if batch.is_err() {
            self.position = self.segment.file.size_bytes;
        }
        Some(batch)
    }
}
