//! The 61 bytes in front of the records.

use super::{BatchError, Compression};
use crate::TimestampType;

/// Size of a batch header in bytes.
pub const HEADER_SIZE: usize = 61;
/// Bytes of base offset and length, which the length field does not count.
pub(super) const LOG_OVERHEAD: usize = 12;
/// Where the CRC starts to cover.
pub(super) const CRC_START: usize = 21;

/// The attribute bits of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes(pub i16);

impl Attributes {
    const LOG_APPEND_TIME: i16 = 1 << 3;
    const TRANSACTIONAL: i16 = 1 << 4;
    const CONTROL: i16 = 1 << 5;
    const DELETE_HORIZON: i16 = 1 << 6;
    const COMPRESSION: i16 = 7;

    /// The codec of the records.
    ///
    /// # Errors
    /// [`BatchError::UnknownCompression`] for codes 5 to 7.
    pub fn compression(self) -> Result<Compression, BatchError> {
        Compression::from_code(self.0 & Self::COMPRESSION)
    }

    /// What the timestamps mean.
    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME != 0 { TimestampType::LogAppendTime } else { TimestampType::CreateTime }
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether the batch holds a transaction marker rather than data.
    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether the base timestamp is the time from which the batch's tombstones may go (KIP-534).
    pub fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    /// The same bits with the delete horizon's set or cleared.
    #[must_use]
    pub(super) fn with_delete_horizon(self, has: bool) -> Self {
        Self(if has { self.0 | Self::DELETE_HORIZON } else { self.0 & !Self::DELETE_HORIZON })
    }

    /// The same bits with another codec.
    #[must_use]
    pub(super) fn with_compression(self, codec: Compression) -> Self {
        Self(self.0 & !Self::COMPRESSION | codec.code())
    }

    /// The bits of a plain data batch.
    pub fn of(compression: Compression, timestamp_type: TimestampType) -> Self {
        let time_bit = match timestamp_type {
            TimestampType::CreateTime => 0,
            TimestampType::LogAppendTime => Self::LOG_APPEND_TIME,
        };
        Self(compression.code() | time_bit)
    }

    /// The bits of a control batch: transactional, uncompressed, with the writer's time.
    pub(super) const CONTROL_BATCH: Self = Self(Self::TRANSACTIONAL | Self::CONTROL);

    /// The same bits with that of a transaction.
    #[must_use]
    pub(super) fn with_transactional(self) -> Self {
        Self(self.0 | Self::TRANSACTIONAL)
    }

    /// The same bits without that of a transaction.
    #[must_use]
    pub(super) fn without_transactional(self) -> Self {
        Self(self.0 & !Self::TRANSACTIONAL)
    }

    /// The same bits with the append-time bit set.
    #[must_use]
    pub fn with_log_append_time(self) -> Self {
        Self(self.0 | Self::LOG_APPEND_TIME)
    }
}

/// A batch header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the format's own, drawn in the module's head")]
pub struct BatchHeader {
    pub base_offset: i64,
    pub batch_length: i32,
    pub leader_epoch: i32,
    pub magic: i8,
    pub crc: u32,
    pub attributes: Attributes,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
}

impl BatchHeader {
    /// Decodes the header at the front of `bytes`. Checks that there is one of format v2 with a sane length, nothing more.
    ///
    /// # Errors
    /// [`BatchError::Truncated`] under 61 bytes, [`BatchError::Magic`], [`BatchError::Malformed`] for a length that cannot
    /// hold the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let header: &[u8; HEADER_SIZE] =
            bytes.first_chunk().ok_or(BatchError::Truncated { have: bytes.len(), need: HEADER_SIZE })?;
        let i16_at = |at: usize| i16::from_be_bytes([header[at], header[at + 1]]);
        let i32_at = |at: usize| i32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let i64_at = |at: usize| (i64::from(i32_at(at)) << 32) | i64::from(i32_at(at + 4).cast_unsigned());
        let parsed = Self {
            base_offset: i64_at(0),
            batch_length: i32_at(8),
            leader_epoch: i32_at(12),
            magic: header[16].cast_signed(),
            crc: i32_at(17).cast_unsigned(),
            attributes: Attributes(i16_at(21)),
            last_offset_delta: i32_at(23),
            base_timestamp: i64_at(27),
            max_timestamp: i64_at(35),
            producer_id: i64_at(43),
            producer_epoch: i16_at(51),
            base_sequence: i32_at(53),
            record_count: i32_at(57),
        };
        if parsed.magic != 2 {
            return Err(BatchError::Magic { magic: parsed.magic });
        }
        if parsed.batch_length < (HEADER_SIZE - LOG_OVERHEAD) as i32 {
            return Err(BatchError::Malformed("the length cannot hold a header"));
        }
        Ok(parsed)
    }

    /// Size of the whole batch in bytes, header included.
    pub fn total_size(&self) -> usize {
        LOG_OVERHEAD + usize::try_from(self.batch_length).expect("parse refuses negative lengths")
    }

    /// When the batch's tombstones may go: set when compaction first kept them (KIP-534). Timestamps of records count from it
    /// then, as they otherwise do from the base timestamp.
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        self.attributes.has_delete_horizon().then_some(self.base_timestamp)
    }

    /// Offset of the batch's last record (or of its last slot, when compaction emptied it).
    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    /// Whether the producer numbers its batches.
    pub fn is_idempotent(&self) -> bool {
        self.producer_id >= 0
    }

    /// Sequence of the last record.
    pub fn last_sequence(&self) -> i32 {
        crate::producer::sequence_after(self.base_sequence, self.last_offset_delta)
    }

    /// Writes the header into its 61 bytes.
    pub(super) fn write(&self, out: &mut [u8; HEADER_SIZE]) {
        out[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        out[8..12].copy_from_slice(&self.batch_length.to_be_bytes());
        out[12..16].copy_from_slice(&self.leader_epoch.to_be_bytes());
        out[16] = self.magic.cast_unsigned();
        out[17..21].copy_from_slice(&self.crc.to_be_bytes());
        out[21..23].copy_from_slice(&self.attributes.0.to_be_bytes());
        out[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        out[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        out[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        out[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        out[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        out[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        out[57..61].copy_from_slice(&self.record_count.to_be_bytes());
    }
}

/// CRC-32C, as batches carry it.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    // The algorithm is 32 bits wide; the crate widens every checksum to u64.
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The CRC-32C polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// x to the power of 2 to the n, modulo the polynomial.
const POWERS: [u32; 67] = {
    let mut powers = [1 << 30; 67];
    let mut n = 1;
    while n < 67 {
        powers[n] = multiply(powers[n - 1], powers[n - 1]);
        n += 1;
    }
    powers
};

/// The product of two polynomials modulo the CRC's, bits reversed: the highest bit is x to the power of 0.
const fn multiply(one: u32, mut other: u32) -> u32 {
    let mut product = 0;
    let mut bit = 1 << 31;
    while bit != 0 {
        if one & bit != 0 {
            product ^= other;
        }
        other = if other & 1 == 1 { (other >> 1) ^ POLYNOMIAL } else { other >> 1 };
        bit >>= 1;
    }
    product
}

/// CRC-32C of two stretches of bytes from the CRC of each; `second_len` is the length of the second. Takes under a
/// microsecond whatever the lengths: the first CRC is multiplied by x to the power of the second's bits (zlib's
/// `crc32_combine`; the `crc-fast` crate's own takes some 30 us, which is what checksumming 1 MiB anew would cost).
pub fn combine_crc32c(first: u32, second: u32, second_len: usize) -> u32 {
    let mut shifted = first;
    let mut length = second_len;
    // The length counts bytes, so its lowest bit stands for x to the power of 8, which is 2 to the 3rd.
    let mut power = 3;
    while length != 0 {
        if length & 1 == 1 {
            shifted = multiply(POWERS[power], shifted);
        }
        length >>= 1;
        power += 1;
    }
    shifted ^ second
}
