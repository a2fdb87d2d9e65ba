//! The codecs of record batches: gzip, snappy in xerial framing, lz4 frames, zstd. Decompression is always bounded.

use std::io::{Read, Write};

use bytes::Bytes;

use super::BatchError;

/// The codec of a batch's record section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "Kafka's own names")]
pub enum Compression {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    /// The codec of these attribute bits.
    ///
    /// # Errors
    /// [`BatchError::UnknownCompression`] outside 0..=4.
    pub fn from_code(code: i16) -> Result<Self, BatchError> {
        Ok(match code {
            0 => Self::None,
            1 => Self::Gzip,
            2 => Self::Snappy,
            3 => Self::Lz4,
            4 => Self::Zstd,
            _ => return Err(BatchError::UnknownCompression { code }),
        })
    }

    /// The attribute bits.
    pub fn code(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// Kafka's name, as in `compression.type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Compresses a record section at the codec's own level.
pub fn compress(codec: Compression, bytes: &[u8]) -> Vec<u8> {
    compress_at(codec, None, bytes)
}

/// Compresses a record section at a level of the codec's own scale; `None` for its default. Snappy has no levels, and of lz4
/// only the fast one is built.
pub fn compress_at(codec: Compression, level: Option<i32>, bytes: &[u8]) -> Vec<u8> {
    match codec {
        Compression::None => bytes.to_vec(),
        Compression::Gzip => {
            let level = level
                .and_then(|level| u32::try_from(level).ok())
                .map_or_else(flate2::Compression::default, |level| flate2::Compression::new(level.min(9)));
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("writing to memory cannot fail")
        }
        Compression::Snappy => xerial_compress(bytes),
        Compression::Lz4 => {
            let info = lz4_flex::frame::FrameInfo::new().block_mode(lz4_flex::frame::BlockMode::Independent);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(bytes).expect("writing to memory cannot fail");
            encoder.finish().expect("writing to memory cannot fail")
        }
        Compression::Zstd => zstd::bulk::compress(bytes, level.unwrap_or(ZSTD_LEVEL))
            .expect("zstd compresses any memory, and takes a level out of its range for the nearest one"),
    }
}

/// Kafka's default, and zstd's own.
const ZSTD_LEVEL: i32 = 3;

/// Decompresses a record section to at most `limit` bytes.
///
/// # Errors
/// [`BatchError::Decompression`] for bytes the codec refuses, [`BatchError::DecompressedTooLarge`] past the limit.
pub fn decompress(codec: Compression, bytes: &[u8], limit: usize) -> Result<Bytes, BatchError> {
    match codec {
        Compression::None => {
            if bytes.len() > limit {
                return Err(BatchError::DecompressedTooLarge { limit });
            }
            Ok(Bytes::copy_from_slice(bytes))
        }
        Compression::Gzip => read_bounded(codec, flate2::read::MultiGzDecoder::new(bytes), bytes.len(), limit),
        Compression::Snappy => xerial_decompress(bytes, limit).map(Bytes::from),
        Compression::Lz4 => read_bounded(codec, lz4_flex::frame::FrameDecoder::new(bytes), bytes.len(), limit),
        Compression::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(|error| failed(codec, &error))?;
            read_bounded(codec, decoder, bytes.len(), limit)
        }
    }
}

/// The flag byte of an LZ4 frame, and its bit that says that no block needs the one before.
const LZ4_FLAGS: usize = 4;
const LZ4_INDEPENDENT_BLOCKS: u8 = 0x20;

/// Refuses what decompresses here and not at every reader: Kafka's own LZ4 decoder (`Lz4BlockInputStream`) takes only
/// frames of independent blocks, so Kafka refuses such a batch when it is produced, and Java consumers would stop at it.
///
/// # Errors
/// [`BatchError::Decompression`].
pub fn refuse_what_kafka_cannot_read(codec: Compression, bytes: &[u8]) -> Result<(), BatchError> {
    let flags = bytes.get(LZ4_FLAGS).copied().unwrap_or(LZ4_INDEPENDENT_BLOCKS);
    if codec == Compression::Lz4 && flags & LZ4_INDEPENDENT_BLOCKS == 0 {
        return Err(failed(codec, &"its blocks depend on each other, which Kafka's decoder does not read"));
    }
    Ok(())
}

fn failed(codec: Compression, error: &dyn std::fmt::Display) -> BatchError {
    BatchError::Decompression { codec: codec.name(), reason: error.to_string() }
}

fn read_bounded(codec: Compression, reader: impl Read, compressed: usize, limit: usize) -> Result<Bytes, BatchError> {
    // Row data shrinks four to six times; a guess that is too small only costs a reallocation.
    let mut out = Vec::with_capacity((compressed.saturating_mul(4)).min(limit));
    let read = reader.take(limit as u64 + 1).read_to_end(&mut out).map_err(|error| failed(codec, &error))?;
    if read > limit {
        return Err(BatchError::DecompressedTooLarge { limit });
    }
    Ok(Bytes::from(out))
}

/// Magic, version 1, compatible with version 1: the header snappy-java writes before its blocks.
const XERIAL_HEADER: [u8; 16] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
const XERIAL_MAGIC: &[u8] = &[0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_BLOCK: usize = 32 * 1024;

fn xerial_compress(bytes: &[u8]) -> Vec<u8> {
    let mut out = XERIAL_HEADER.to_vec();
    let mut encoder = snap::raw::Encoder::new();
    for block in bytes.chunks(XERIAL_BLOCK) {
        let compressed = encoder.compress_vec(block).expect("snappy compresses any block under 4 GiB");
        out.extend_from_slice(&(compressed.len() as u32).to_be_bytes());
        out.extend_from_slice(&compressed);
    }
    out
}

fn xerial_decompress(bytes: &[u8], limit: usize) -> Result<Vec<u8>, BatchError> {
    let codec = Compression::Snappy;
    let mut out = Vec::new();
    // Some clients write one bare snappy block instead of xerial frames; Kafka's Java decoder takes only frames, librdkafka both.
    let Some(mut rest) = bytes.strip_prefix(XERIAL_MAGIC) else {
        append_snappy_block(bytes, &mut out, limit)?;
        return Ok(out);
    };
    rest = rest.get(8..).ok_or_else(|| failed(codec, &"the frame header is cut short"))?;
    while !rest.is_empty() {
        let (length, after) =
            rest.split_first_chunk::<4>().ok_or_else(|| failed(codec, &"a block length is cut short"))?;
        let length = u32::from_be_bytes(*length) as usize;
        if length > after.len() {
            return Err(failed(codec, &"a block runs past the batch"));
        }
        let (block, next) = after.split_at(length);
        append_snappy_block(block, &mut out, limit)?;
        rest = next;
    }
    Ok(out)
}

fn append_snappy_block(block: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<(), BatchError> {
    let codec = Compression::Snappy;
    let size = snap::raw::decompress_len(block).map_err(|error| failed(codec, &error))?;
    if out.len().saturating_add(size) > limit {
        return Err(BatchError::DecompressedTooLarge { limit });
    }
    let start = out.len();
    out.resize(start + size, 0);
    let written =
        snap::raw::Decoder::new().decompress(block, &mut out[start..]).map_err(|error| failed(codec, &error))?;
    out.truncate(start + written);
    Ok(())
}
