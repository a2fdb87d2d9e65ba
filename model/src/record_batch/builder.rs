//! Writes batches: the broker's own records, and rows rebuilt from columns.

use bytes::Bytes;

use super::compression::compress;
use super::header::{CRC_START, crc32c};
use super::varint::{put_varint, put_varlong, varint_size};
use super::{Attributes, BatchHeader, Compression, HEADER_SIZE};
use crate::TimestampType;

/// Builds one batch of format v2. Offsets must rise; gaps are legal. The base timestamp is that of the first record.
#[derive(Debug)]
pub struct BatchBuilder {
    header: BatchHeader,
    compression: Compression,
    records: Vec<u8>,
}

/// A record without headers has a count of zero.
const NO_HEADERS: &[u8] = &[0];

impl BatchBuilder {
    /// An empty batch that starts at `base_offset`.
    pub fn new(base_offset: i64, compression: Compression, timestamp_type: TimestampType) -> Self {
        Self::with_buffer(base_offset, compression, timestamp_type, Vec::new())
    }

    /// As [`Self::new`], writing into `buffer`, whose content is dropped and whose capacity is kept.
    pub fn with_buffer(
        base_offset: i64,
        compression: Compression,
        timestamp_type: TimestampType,
        mut buffer: Vec<u8>,
    ) -> Self {
        buffer.clear();
        buffer.resize(HEADER_SIZE, 0);
        let header = BatchHeader {
            base_offset,
            batch_length: 0,
            leader_epoch: 0,
            magic: 2,
            crc: 0,
            attributes: Attributes::of(compression, timestamp_type),
            last_offset_delta: 0,
            base_timestamp: 0,
            max_timestamp: i64::MIN,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: 0,
        };
        Self { header, compression, records: buffer }
    }

    /// Sets the leader epoch.
    #[must_use]
    pub fn leader_epoch(mut self, leader_epoch: i32) -> Self {
        self.header.leader_epoch = leader_epoch;
        self
    }

    /// Makes it a batch of a producer's transaction. Without a sequence (-1) it is one that the broker writes on the producer's
    /// behalf, as a group coordinator writes offsets (KIP-98); [`super::ValidBatch::validate_internal`] lets it pass.
    #[must_use]
    pub fn transactional(mut self, producer_id: i64, producer_epoch: i16, base_sequence: i32) -> Self {
        self.header.attributes = self.header.attributes.with_transactional();
        self.header.producer_id = producer_id;
        self.header.producer_epoch = producer_epoch;
        self.header.base_sequence = base_sequence;
        self
    }

    /// Makes it a control batch of a producer, which has no sequence.
    pub(super) fn control(mut self, producer_id: i64, producer_epoch: i16) -> Self {
        self.header.attributes = Attributes::CONTROL_BATCH;
        self.header.producer_id = producer_id;
        self.header.producer_epoch = producer_epoch;
        self
    }

    /// Number of records so far.
    pub fn record_count(&self) -> i32 {
        self.header.record_count
    }

    /// Bytes so far, header included, before compression.
    pub fn size(&self) -> usize {
        self.records.len()
    }

    /// Appends a record. `header_bytes` are headers as on the wire, count first; `None` when there are none.
    ///
    /// # Panics
    /// When `offset` lies before the base offset or more than `i32::MAX` after it.
    #[inline]
    pub fn push(
        &mut self,
        offset: i64,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        header_bytes: Option<&[u8]>,
    ) {
        let (offset_delta, timestamp_delta) = self.place(offset, timestamp);
        let headers = header_bytes.unwrap_or(NO_HEADERS);
        let nullable_size = |field: Option<&[u8]>| match field {
            None => 1,
            Some(bytes) => varint_size(bytes.len() as i64) + bytes.len(),
        };
        let size = 1
            + varint_size(timestamp_delta)
            + varint_size(i64::from(offset_delta))
            + nullable_size(key)
            + nullable_size(value)
            + headers.len();
        let out = &mut self.records;
        put_varlong(out, size as i64);
        out.push(0);
        put_varlong(out, timestamp_delta);
        put_varint(out, offset_delta);
        for field in [key, value] {
            match field {
                None => put_varint(out, -1),
                Some(bytes) => {
                    put_varlong(out, bytes.len() as i64);
                    out.extend_from_slice(bytes);
                }
            }
        }
        out.extend_from_slice(headers);
    }

    /// As [`Self::push`], from headers in pieces.
    pub fn push_with_headers(
        &mut self,
        offset: i64,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&str, Option<&[u8]>)],
    ) {
        let mut wire = Vec::new();
        put_varlong(&mut wire, headers.len() as i64);
        for (name, content) in headers {
            put_varlong(&mut wire, name.len() as i64);
            wire.extend_from_slice(name.as_bytes());
            match content {
                None => put_varint(&mut wire, -1),
                Some(bytes) => {
                    put_varlong(&mut wire, bytes.len() as i64);
                    wire.extend_from_slice(bytes);
                }
            }
        }
        self.push(offset, timestamp, key, value, Some(&wire));
    }

    #[inline]
    fn place(&mut self, offset: i64, timestamp: i64) -> (i32, i64) {
        let header = &mut self.header;
        if header.record_count == 0 {
            header.base_timestamp = timestamp;
        }
        let offset_delta = i32::try_from(offset - header.base_offset).expect("a batch spans at most i32::MAX offsets");
        assert!(
            offset_delta >= 0 && (header.record_count == 0 || offset_delta > header.last_offset_delta),
            "LOG-4: offset {offset} does not follow in a batch from {}",
            header.base_offset
        );
        header.record_count += 1;
        header.last_offset_delta = offset_delta;
        header.max_timestamp = header.max_timestamp.max(timestamp);
        (offset_delta, timestamp.wrapping_sub(header.base_timestamp))
    }

    /// Says that the batch covers offsets up to and including `last_offset`, past its last record.
    pub fn extend_to(&mut self, last_offset: i64) {
        let delta =
            i32::try_from(last_offset - self.header.base_offset).expect("a batch spans at most i32::MAX offsets");
        self.header.last_offset_delta = self.header.last_offset_delta.max(delta);
    }

    /// The batch.
    pub fn finish(mut self) -> Bytes {
        if self.header.record_count == 0 {
            self.header.max_timestamp = -1;
        }
        if self.compression != Compression::None {
            let compressed = compress(self.compression, &self.records[HEADER_SIZE..]);
            self.records.truncate(HEADER_SIZE);
            self.records.extend_from_slice(&compressed);
        }
        let mut bytes = self.records;
        self.header.batch_length = i32::try_from(bytes.len() - 12).expect("a batch is under 2 GiB");
        let (head, _) = bytes.split_first_chunk_mut::<HEADER_SIZE>().expect("the header's room was made in new");
        self.header.write(head);
        let crc = crc32c(&bytes[CRC_START..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        Bytes::from(bytes)
    }
}
