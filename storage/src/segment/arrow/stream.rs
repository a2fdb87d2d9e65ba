//! Arrow IPC streams: what `weir.format=arrow` puts into a record's value.

use arrow::array::RecordBatch;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use bytes::Bytes;
use weir_model::OffsetRange;

use super::super::SegmentError;
use super::{ALIGNMENT, ArrowCompression, METADATA_VERSION};

/// A complete Arrow IPC stream of one record batch: schema message, record batch message, end of stream.
#[derive(Clone, Debug)]
pub struct IpcStreamBytes {
    /// What `pyarrow.ipc.open_stream` reads.
    pub bytes: Bytes,
    /// Number of rows.
    pub rows: u64,
    /// From the offset of the first row to just after that of the last, which is the offset of the Kafka record that carries
    /// the stream.
    pub range: OffsetRange,
    /// Bytes taken from the file.
    pub bytes_read: u64,
}

/// A batch in memory as an Arrow IPC stream under zstd, as streams cut from segments are.
///
/// # Errors
/// [`SegmentError::Encode`] for what Arrow cannot encode.
pub fn ipc_stream(batch: &RecordBatch) -> Result<Bytes, SegmentError> {
    ipc_stream_with(batch, ArrowCompression::Zstd)
}

/// As [`ipc_stream`], with a compression of choice.
///
/// # Errors
/// [`SegmentError::Encode`] for what Arrow cannot encode.
pub fn ipc_stream_with(batch: &RecordBatch, compression: ArrowCompression) -> Result<Bytes, SegmentError> {
    let options = IpcWriteOptions::try_new(usize::from(ALIGNMENT), false, METADATA_VERSION)?
        .try_with_compression(compression.codec())?;
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options)?;
    writer.write(batch)?;
    Ok(Bytes::from(writer.into_inner()?))
}
