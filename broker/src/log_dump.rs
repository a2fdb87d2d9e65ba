//! `weir log dump`: the batches of a `.log` segment, one line each.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_model::record_batch::{AssignedBatch, BatchError, BatchHeader, HEADER_SIZE, RecordIter};

/// The most a batch may decompress to while it is printed.
const MAX_DECOMPRESSED_BYTES: usize = 256 << 20;

/// Bytes of a key or value that are printed.
const SHOWN_BYTES: usize = 200;

/// Why a file was not printed to its end.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The file does not read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The output was closed.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    /// A batch is damaged: what follows it cannot be found.
    #[error("{path} is damaged at byte {position}: {source}")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where the batch starts.
        position: usize,
        /// What is wrong.
        source: BatchError,
    },
}

/// Prints every batch of a segment to `out`, and its records when asked to.
///
/// # Errors
/// [`DumpError`]; what comes before the damage was printed.
pub fn dump(path: &Path, with_records: bool, out: &mut dyn Write) -> Result<(), DumpError> {
    let content = std::fs::read(path).map_err(|source| DumpError::Read { path: path.to_owned(), source })?;
    let content = Bytes::from(content);
    let mut position = 0;
    while position < content.len() {
        let damaged = |source| DumpError::Damaged { path: path.to_owned(), position, source };
        let batch = batch_at(&content, position).map_err(damaged)?;
        let header = batch.header();
        writeln!(
            out,
            "offsets {}..={} position {position} size {} records {} timestamps {}..={} ({:?}) {} producer {} epoch {} sequence {}",
            header.base_offset,
            header.last_offset(),
            batch.size(),
            header.record_count,
            header.base_timestamp,
            header.max_timestamp,
            header.attributes.timestamp_type(),
            header.attributes.compression().map_err(damaged)?.name(),
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        )?;
        if with_records {
            let records = batch.records(MAX_DECOMPRESSED_BYTES).map_err(damaged)?;
            for record in RecordIter::new(&records, header.record_count) {
                let record = record.map_err(damaged)?;
                writeln!(
                    out,
                    "  offset {} timestamp {} key {} value {} headers {}",
                    header.base_offset + i64::from(record.offset_delta),
                    header.base_timestamp + record.timestamp_delta,
                    shown(record.key),
                    shown(record.value),
                    record.header_count(),
                )?;
            }
        }
        position += batch.size();
    }
    Ok(())
}

fn batch_at(content: &Bytes, position: usize) -> Result<AssignedBatch, BatchError> {
    let rest = content.slice(position..);
    if rest.len() < HEADER_SIZE {
        return Err(BatchError::Truncated { have: rest.len(), need: HEADER_SIZE });
    }
    let size = BatchHeader::parse(&rest)?.total_size();
    if rest.len() < size {
        return Err(BatchError::Truncated { have: rest.len(), need: size });
    }
    AssignedBatch::from_stored(rest.slice(..size), true)
}

fn shown(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "null".to_owned(),
        Some(bytes) if bytes.len() > SHOWN_BYTES => {
            format!("{:?}... ({} bytes)", String::from_utf8_lossy(&bytes[..SHOWN_BYTES]), bytes.len())
        }
        Some(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::TimestampType;
    use weir_model::record_batch::{BatchBuilder, Compression};

    fn segment(damage: bool) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        for base in [0, 2] {
            let mut builder = BatchBuilder::new(base, Compression::Lz4, TimestampType::CreateTime);
            builder.push(base, 5, None, Some(b"first"), None);
            builder.push(base + 1, 6, Some(b"key"), None, None);
            let mut bytes = builder.finish().to_vec();
            if damage && base == 2 {
                bytes[63] ^= 1;
            }
            file.write_all(&bytes).expect("written");
        }
        file
    }

    #[test]
    fn batches_and_records_are_printed_in_order() {
        let mut out = Vec::new();
        dump(segment(false).path(), true, &mut out).expect("whole");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text.lines().filter(|line| line.starts_with("offsets ")).count(), 2, "{text}");
        assert!(text.contains("offset 3 timestamp 6 key \"key\" value null"), "{text}");
    }

    #[test]
    fn damage_is_named_with_its_place() {
        let mut out = Vec::new();
        let error = dump(segment(true).path(), false, &mut out).expect_err("damaged");
        assert!(matches!(error, DumpError::Damaged { position, .. } if position > 0), "{error}");
        assert!(String::from_utf8(out).expect("text").starts_with("offsets 0..=1"));
    }
}
