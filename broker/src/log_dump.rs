//! `weir log dump`: the batches of a `.log` segment, one line each.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_model::producer::TxnOutcome;
use weir_model::record_batch::{
    AssignedBatch, BatchError, BatchHeader, ControlBatch, ControlError, ControlRecord, HEADER_SIZE, RecordIter,
};

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
    /// A control batch says nothing that can be read.
    #[error("{path} has a control batch at byte {position} that does not read: {source}")]
    Control {
        /// Which file.
        path: PathBuf,
        /// Where the batch starts.
        position: usize,
        /// What is wrong.
        source: ControlError,
    },
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
            "offsets {}..={} position {position} size {} records {} timestamps {}..={} ({:?}) {} producer {} epoch {} sequence {}{}",
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
            if header.attributes.is_transactional() { " transactional" } else { "" },
        )?;
        if let Some(control) = ControlBatch::parse(&batch).map_err(|source| DumpError::Control {
            path: path.to_owned(),
            position,
            source,
        })? {
            write_control(&control, out)?;
        } else if with_records {
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

fn write_control(control: &ControlBatch, out: &mut dyn Write) -> io::Result<()> {
    match control.record {
        ControlRecord::EndTxn { outcome, coordinator_epoch } => {
            let outcome = match outcome {
                TxnOutcome::Commit => "commit",
                TxnOutcome::Abort => "abort",
            };
            writeln!(
                out,
                "  control {outcome} of producer {} coordinator epoch {coordinator_epoch}",
                control.producer_id
            )
        }
        ControlRecord::Other { record_type } => writeln!(out, "  control of type {record_type}"),
    }
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
    fn markers_are_shown_for_what_they_are() {
        let marker = weir_model::producer::TxnMarker {
            producer_id: 12,
            producer_epoch: 1,
            outcome: TxnOutcome::Abort,
            coordinator_epoch: 4,
            timestamp_ms: 9,
        };
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(&ControlBatch::of_marker(&marker, 7, 0).to_bytes()).expect("written");
        let mut out = Vec::new();
        dump(file.path(), true, &mut out).expect("whole");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("producer 12 epoch 1 sequence -1 transactional\n"), "{text}");
        assert!(text.ends_with("  control abort of producer 12 coordinator epoch 4\n"), "{text}");
    }

    #[test]
    fn damage_is_named_with_its_place() {
        let mut out = Vec::new();
        let error = dump(segment(true).path(), false, &mut out).expect_err("damaged");
        assert!(matches!(error, DumpError::Damaged { position, .. } if position > 0), "{error}");
        assert!(String::from_utf8(out).expect("text").starts_with("offsets 0..=1"));
    }
}
