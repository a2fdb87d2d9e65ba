//! Kafka's record batch, format v2 (KIP-98), read without copying and written byte-exact.
//!
//! ```text
//!  0 base offset      i64 | 8 batch length  i32 (bytes after this field) | 12 leader epoch i32 | 16 magic i8 = 2
//! 17 crc              u32 (CRC-32C over bytes 21..end)
//! 21 attributes       i16 | 23 last offset delta i32 | 27 base timestamp i64 | 35 max timestamp i64
//! 43 producer id      i64 | 51 producer epoch i16 | 53 base sequence i32 | 57 record count i32 | 61 records...
//! ```
//! Base offset and leader epoch lie outside the CRC: the broker sets them without touching the rest. So a batch moves
//! through Weir as [`ValidBatch`] (checked, as sent) and then [`AssignedBatch`] (16 fresh bytes in front of the client's own).

mod builder;
pub mod compression;
mod control;
mod header;
mod record;
mod rewrite;
mod valid;
mod varint;

#[cfg(test)]
mod tests;

pub use builder::BatchBuilder;
pub use compression::Compression;
pub use control::{ControlBatch, ControlError, ControlRecord, MARKER_BATCH_BYTES, gap_batch};
pub use header::{Attributes, BatchHeader, HEADER_SIZE, combine_crc32c};
pub use record::{HeaderIter, Record, RecordIter};
pub use valid::{AssignedBatch, BatchLimits, ValidBatch};
pub use varint::{put_varint, put_varlong, varint_size};

/// Why bytes are not a batch that may be appended or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Fewer bytes than the format needs.
    #[error("record batch is cut short: {have} bytes, {need} needed")]
    Truncated {
        /// Bytes there are.
        have: usize,
        /// Bytes the format needs.
        need: usize,
    },
    /// A message format other than v2.
    #[error("record batch has magic {magic}; only format v2 is served")]
    Magic {
        /// What byte 16 said.
        magic: i8,
    },
    /// The CRC does not cover these bytes.
    #[error("record batch CRC is {stored:#010x} but its bytes give {computed:#010x}")]
    Crc {
        /// As sent.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// Bytes after the one batch, or a length that disagrees with what was sent.
    #[error("record batch says {stated} bytes but {actual} were sent; send exactly one batch per partition")]
    Length {
        /// By the length field.
        stated: usize,
        /// By the request.
        actual: usize,
    },
    /// More bytes than `max.message.bytes` allows.
    #[error("record batch has {size} bytes, max.message.bytes is {limit}")]
    TooLarge {
        /// Size with header, as sent.
        size: usize,
        /// The topic's limit.
        limit: usize,
    },
    /// A compression code outside 0..=4.
    #[error("record batch has unknown compression code {code}")]
    UnknownCompression {
        /// The three bits.
        code: i16,
    },
    /// The codec refused the bytes.
    #[error("record batch does not decompress as {codec}: {reason}")]
    Decompression {
        /// Kafka's name of the codec.
        codec: &'static str,
        /// What the codec said.
        reason: String,
    },
    /// Decompressing would pass the limit.
    #[error("record batch decompresses to more than {limit} bytes")]
    DecompressedTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// A count, delta, length or varint that breaks the format.
    #[error("record batch is malformed: {0}")]
    Malformed(&'static str),
    /// A control batch from a client.
    #[error("clients may not write control batches")]
    Control,
}
