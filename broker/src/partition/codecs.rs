//! Which codecs are in what was read: old clients must not be sent what they cannot decompress (S-58).

use std::io;
use std::os::unix::fs::FileExt;

use weir_model::record_batch::Compression;
use weir_storage::Chunk;

/// Bytes of a batch header that say where the batch ends and how it is compressed: up to and with its attributes.
const HEADER_BYTES: usize = 23;
const LENGTH: std::ops::Range<usize> = 8..12;
/// Base offset and length, which the length does not count.
const LENGTH_END: u64 = 12;
/// The low byte of the attributes, whose last three bits are the codec.
const CODEC: usize = 22;
const CODEC_BITS: u8 = 0b111;

/// Whether one of these batches is compressed with `codec`. Looks at one header per batch; of a file that is a small read each, so call it where blocking is
/// allowed.
///
/// # Errors
/// When a file does not read.
pub fn holds(codec: Compression, chunks: &[Chunk]) -> io::Result<bool> {
    let mut bytes = Concatenated { chunks, start: 0 };
    let mut position = 0;
    let mut header = [0; HEADER_BYTES];
    while bytes.read(position, &mut header)? {
        if i16::from(header[CODEC] & CODEC_BITS) == codec.code() {
            return Ok(true);
        }
        let length: [u8; 4] = header[LENGTH].try_into().expect("four bytes");
        position += LENGTH_END + u64::from(u32::from_be_bytes(length));
    }
    Ok(false)
}

/// Chunks as one run of bytes, read forward.
struct Concatenated<'a> {
    /// Those that are not behind us.
    chunks: &'a [Chunk],
    /// Where the first of them begins in the whole.
    start: u64,
}

impl Concatenated<'_> {
    /// Fills `out` from `position` on, which never goes back. False where fewer bytes are left.
    fn read(&mut self, position: u64, out: &mut [u8]) -> io::Result<bool> {
        while let Some((first, rest)) = self.chunks.split_first() {
            let end = self.start + first.len() as u64;
            if position < end {
                break;
            }
            (self.chunks, self.start) = (rest, end);
        }
        let mut skip = usize::try_from(position - self.start).unwrap_or(usize::MAX);
        let mut filled = 0;
        for chunk in self.chunks {
            let count = chunk.len().saturating_sub(skip).min(out.len() - filled);
            let target = &mut out[filled..filled + count];
            match chunk {
                Chunk::Bytes(bytes) => target.copy_from_slice(&bytes[skip..skip + count]),
                Chunk::File { file, position, .. } => file.read_exact_at(target, position + skip as u64)?,
            }
            filled += count;
            skip = 0;
            if filled == out.len() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use bytes::Bytes;
    use weir_model::TimestampType;
    use weir_model::record_batch::BatchBuilder;

    use super::*;

    fn batch(codec: Compression) -> Bytes {
        let mut builder = BatchBuilder::new(0, codec, TimestampType::CreateTime);
        builder.push(0, 0, None, Some(b"a value"), None);
        builder.finish()
    }

    fn run(codecs: &[Compression]) -> Bytes {
        codecs.iter().flat_map(|codec| batch(*codec)).collect()
    }

    #[test]
    fn a_codec_is_found_behind_other_batches_wherever_the_chunks_are_cut() {
        let with = run(&[Compression::None, Compression::Gzip, Compression::Zstd, Compression::Lz4]);
        let without = run(&[Compression::None, Compression::Gzip, Compression::Lz4]);
        for (bytes, expected) in [(with, true), (without, false)] {
            for cut in 0..bytes.len() {
                let chunks = [Chunk::Bytes(bytes.slice(..cut)), Chunk::Bytes(bytes.slice(cut..))];
                assert_eq!(holds(Compression::Zstd, &chunks).expect("memory reads"), expected, "cut at {cut}");
            }
        }
        assert!(!holds(Compression::Zstd, &[]).expect("nothing to read"));
    }

    #[test]
    fn slices_of_files_are_looked_into_from_their_position() {
        let mut file = tempfile::tempfile().expect("a file");
        let (first, second) = (batch(Compression::Zstd), batch(Compression::Snappy));
        file.write_all(&first).and_then(|()| file.write_all(&second)).expect("written");
        let file = Arc::new(file);
        let slice = |position: usize, len| Chunk::File { file: Arc::clone(&file), position: position as u64, len };
        assert!(holds(Compression::Zstd, &[slice(0, first.len())]).expect("it reads"));
        assert!(!holds(Compression::Zstd, &[slice(first.len(), second.len())]).expect("it reads"));
        assert!(holds(Compression::Zstd, &[slice(first.len(), second.len()), Chunk::Bytes(first)]).expect("it reads"));
    }
}
