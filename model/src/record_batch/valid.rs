//! A batch on its way in: checked, then given its place.

use bytes::{BufMut, Bytes, BytesMut};

use super::compression::{compress_at, decompress, refuse_what_kafka_cannot_read};
use super::header::{CRC_START, LOG_OVERHEAD, combine_crc32c, crc32c};
use super::{Attributes, BatchError, BatchHeader, Compression, HEADER_SIZE, RecordIter};
use crate::TimestampType;

/// What a batch may cost.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Largest batch as sent, header included (`max.message.bytes`).
    pub max_bytes: usize,
    /// Largest record section after decompression.
    pub max_decompressed_bytes: usize,
}

/// A batch whose envelope and every record's framing were checked (S-26, S-27, S-34), as the client sent it.
#[derive(Clone, Debug)]
pub struct ValidBatch {
    header: BatchHeader,
    bytes: Bytes,
    records: Bytes,
}

impl ValidBatch {
    /// Checks that `bytes` are exactly one data batch of format v2: length, CRC-32C, bounded decompression, and that the
    /// records are numbered 0..n-1. Costs one pass for the CRC and one over the varints.
    ///
    /// # Errors
    /// The first rule broken, as a [`BatchError`].
    pub fn validate(bytes: Bytes, limits: &BatchLimits) -> Result<Self, BatchError> {
        Self::check(bytes, limits, false)
    }

    /// As [`Self::validate`], for batches the broker itself wrote: control batches are allowed, and transactional ones
    /// without a sequence.
    ///
    /// # Errors
    /// As [`Self::validate`].
    pub fn validate_internal(bytes: Bytes, limits: &BatchLimits) -> Result<Self, BatchError> {
        Self::check(bytes, limits, true)
    }

    fn check(bytes: Bytes, limits: &BatchLimits, allow_control: bool) -> Result<Self, BatchError> {
        let header = BatchHeader::parse(&bytes)?;
        if header.total_size() != bytes.len() {
            return Err(BatchError::Length { stated: header.total_size(), actual: bytes.len() });
        }
        if bytes.len() > limits.max_bytes {
            return Err(BatchError::TooLarge { size: bytes.len(), limit: limits.max_bytes });
        }
        let computed = crc32c(&bytes[CRC_START..]);
        if computed != header.crc {
            return Err(BatchError::Crc { stored: header.crc, computed });
        }
        if header.attributes.is_control() && !allow_control {
            return Err(BatchError::Control);
        }
        if header.record_count <= 0 {
            return Err(BatchError::Malformed("it holds no record"));
        }
        if header.last_offset_delta != header.record_count - 1 {
            return Err(BatchError::Malformed("the last offset delta is not the record count less one"));
        }
        // A coordinator writes into a producer's transaction without a sequence.
        let needs_sequence = !(allow_control && header.attributes.is_transactional());
        if header.is_idempotent()
            && (header.producer_epoch < 0 || (header.base_sequence < 0 && needs_sequence))
            && !header.attributes.is_control()
        {
            return Err(BatchError::Malformed("a producer id comes without epoch or sequence"));
        }
        if header.attributes.is_transactional() && !header.is_idempotent() && !header.attributes.is_control() {
            return Err(BatchError::Malformed("a transactional batch comes without a producer id"));
        }
        let section = bytes.slice(HEADER_SIZE..);
        let records = match header.attributes.compression()? {
            Compression::None => section,
            codec => {
                refuse_what_kafka_cannot_read(codec, &section)?;
                decompress(codec, &section, limits.max_decompressed_bytes)?
            }
        };
        let mut walk = RecordIter::new(&records, header.record_count);
        let mut max_delta = i64::MIN;
        for expected in 0..header.record_count {
            let record = walk.next().ok_or(BatchError::Malformed("it holds fewer records than it says"))??;
            if record.offset_delta != expected {
                return Err(BatchError::Malformed("offset deltas are not 0, 1, 2, ..."));
            }
            max_delta = max_delta.max(record.timestamp_delta);
        }
        if walk.remaining_bytes() != 0 {
            return Err(BatchError::Malformed("it holds more records than it says"));
        }
        let valid = Self { header, bytes, records };
        // Look-ups by time trust the header, so a wrong one is put right, as Kafka does (LogValidator).
        let max_timestamp = header.base_timestamp.wrapping_add(max_delta);
        let create_time = header.attributes.timestamp_type() == TimestampType::CreateTime;
        if create_time && !header.attributes.is_control() && header.max_timestamp != max_timestamp {
            return Ok(valid.with_times(header.attributes, max_timestamp));
        }
        Ok(valid)
    }

    /// The header as sent.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The whole batch as sent.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The record section, uncompressed.
    pub fn records(&self) -> &Bytes {
        &self.records
    }

    /// The records; framing errors cannot occur any more, but the type stays honest.
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter::new(&self.records, self.header.record_count)
    }

    /// The same batch stamped with the broker's time (`message.timestamp.type=LogAppendTime`): the time bit is set, the
    /// max timestamp becomes `now_ms`, and the CRC is computed anew. Readers take the max timestamp for every record.
    #[must_use]
    pub fn with_log_append_time(self, now_ms: i64) -> Self {
        let attributes = self.header.attributes.with_log_append_time();
        self.with_times(attributes, now_ms)
    }

    /// The same records under another codec (`compression.type`), at a level of its own scale; the batch as it is when it has
    /// that codec already, whatever its level, as in Kafka.
    #[must_use]
    pub fn with_compression(self, codec: Compression, level: Option<i32>) -> Self {
        if self.header.attributes.compression() == Ok(codec) {
            return self;
        }
        let section = compress_at(codec, level, &self.records);
        let mut bytes = BytesMut::with_capacity(HEADER_SIZE + section.len());
        bytes.extend_from_slice(&self.bytes[..HEADER_SIZE]);
        bytes.extend_from_slice(&section);
        let attributes = self.header.attributes.with_compression(codec);
        let batch_length = i32::try_from(bytes.len() - LOG_OVERHEAD).expect("a batch is under 2 GiB");
        bytes[8..12].copy_from_slice(&batch_length.to_be_bytes());
        bytes[21..23].copy_from_slice(&attributes.0.to_be_bytes());
        let crc = crc32c(&bytes[CRC_START..]);
        bytes[17..CRC_START].copy_from_slice(&crc.to_be_bytes());
        let header = BatchHeader { attributes, batch_length, crc, ..self.header };
        let bytes = bytes.freeze();
        // Uncompressed, the records are the batch's own bytes; let what they were decompressed into go.
        let records = if codec == Compression::None { bytes.slice(HEADER_SIZE..) } else { self.records };
        Self { header, bytes, records }
    }

    fn with_times(self, attributes: Attributes, max_timestamp: i64) -> Self {
        let mut bytes = BytesMut::from(&self.bytes[..]);
        bytes[21..23].copy_from_slice(&attributes.0.to_be_bytes());
        bytes[35..43].copy_from_slice(&max_timestamp.to_be_bytes());
        let crc = crc32c(&bytes[CRC_START..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        let header = BatchHeader { attributes, max_timestamp, crc, ..self.header };
        Self { header, bytes: bytes.freeze(), records: self.records }
    }

    /// The batch at its place in the log.
    pub fn assign(self, base_offset: i64, leader_epoch: i32) -> AssignedBatch {
        let header = BatchHeader { base_offset, leader_epoch, ..self.header };
        AssignedBatch { header, prefix: prefix_of(&header), body: self.bytes.slice(16..) }
    }
}

/// From this size on, combining CRCs is cheaper than computing one.
const COMBINE_FROM_BYTES: usize = 64 << 10;

fn prefix_of(header: &BatchHeader) -> [u8; 16] {
    let mut prefix = [0u8; 16];
    prefix[0..8].copy_from_slice(&header.base_offset.to_be_bytes());
    prefix[8..12].copy_from_slice(&header.batch_length.to_be_bytes());
    prefix[12..16].copy_from_slice(&header.leader_epoch.to_be_bytes());
    prefix
}

/// A batch at its place in the log: 16 bytes of ours, and the client's own bytes from the magic on, untouched.
#[derive(Clone, Debug)]
pub struct AssignedBatch {
    header: BatchHeader,
    prefix: [u8; 16],
    body: Bytes,
}

impl AssignedBatch {
    /// Takes a whole batch that was assigned before, as read back from the WAL or a segment. Checks the length and,
    /// when `check_crc`, the CRC.
    ///
    /// # Errors
    /// [`BatchError::Length`], [`BatchError::Crc`], or what [`BatchHeader::parse`] says.
    pub fn from_stored(bytes: Bytes, check_crc: bool) -> Result<Self, BatchError> {
        let header = BatchHeader::parse(&bytes)?;
        if header.total_size() != bytes.len() {
            return Err(BatchError::Length { stated: header.total_size(), actual: bytes.len() });
        }
        if check_crc {
            let computed = crc32c(&bytes[CRC_START..]);
            if computed != header.crc {
                return Err(BatchError::Crc { stored: header.crc, computed });
            }
        }
        Ok(Self { header, prefix: prefix_of(&header), body: bytes.slice(16..) })
    }

    /// The header, with the assigned base offset and leader epoch.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Base offset, length and leader epoch, as on the wire.
    pub fn prefix(&self) -> &[u8; 16] {
        &self.prefix
    }

    /// The batch from byte 16 on.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Size in bytes, header included.
    pub fn size(&self) -> usize {
        self.prefix.len() + self.body.len()
    }

    /// CRC-32C of [`Self::body`], got from the batch's own CRC without reading the body again: the CRC that was checked when
    /// the batch came in covers all of the body but its first five bytes.
    pub fn body_crc32c(&self) -> u32 {
        let (front, rest) = self.body.split_at(CRC_START - self.prefix.len());
        combine_crc32c(crc32c(front), self.header.crc, rest.len())
    }

    /// [`Self::body_crc32c`] where getting it so is cheaper than reading the body once more: combining CRCs costs about as
    /// much as checksumming some tens of KiB from the cache.
    pub fn cheap_body_crc32c(&self) -> Option<u32> {
        (self.size() >= COMBINE_FROM_BYTES).then(|| self.body_crc32c())
    }

    /// The whole batch in one piece. Copies.
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.size());
        bytes.put_slice(&self.prefix);
        bytes.put_slice(&self.body);
        bytes.freeze()
    }

    /// The record section, uncompressed.
    ///
    /// # Errors
    /// When it does not decompress within `max_decompressed_bytes`.
    pub fn records(&self, max_decompressed_bytes: usize) -> Result<Bytes, BatchError> {
        let section = self.body.slice(HEADER_SIZE - self.prefix.len()..);
        match self.header.attributes.compression()? {
            Compression::None => Ok(section),
            codec => decompress(codec, &section, max_decompressed_bytes),
        }
    }

    /// The batch as it is kept once its transaction was committed: without the transactional bit, so that no reader waits for
    /// a marker. Copies the bytes and computes the CRC anew; a batch without the bit is answered as it is.
    #[must_use]
    pub fn decided(self) -> Self {
        if !self.header.attributes.is_transactional() {
            return self;
        }
        let at = |position: usize| position - self.prefix.len();
        let attributes = self.header.attributes.without_transactional();
        let mut body = BytesMut::from(&self.body[..]);
        body[at(21)..at(23)].copy_from_slice(&attributes.0.to_be_bytes());
        let crc = crc32c(&body[at(CRC_START)..]);
        body[at(17)..at(CRC_START)].copy_from_slice(&crc.to_be_bytes());
        Self { header: BatchHeader { attributes, crc, ..self.header }, prefix: self.prefix, body: body.freeze() }
    }

    /// The same batch with its own copy of the bytes, so that it pins no larger buffer.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self { body: Bytes::copy_from_slice(&self.body), ..*self }
    }
}
