//! Arrow IPC streams: what `weir.format=arrow` puts into a record's value.

use arrow::array::RecordBatch;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use bytes::Bytes;
use weir_model::Offset;

use super::super::SegmentError;
use super::{ALIGNMENT, ArrowCompression, METADATA_VERSION};

/// A complete Arrow IPC stream of one record batch: schema message, record batch message, end of stream.
#[derive(Clone, Debug)]
pub struct IpcStreamBytes {
    /// What `pyarrow.ipc.open_stream` reads.
    pub bytes: Bytes,
    /// Number of rows.
    pub rows: u64,
    /// Offset of the first row.
    pub first_offset: Offset,
    /// Offset of the last row: that of the Kafka record which carries the stream.
    pub last_offset: Offset,
    /// Bytes taken from the file.
    pub bytes_read: u64,
}

/// A batch in memory as an Arrow IPC stream.
///
/// # Errors
/// [`SegmentError::Encode`] for what Arrow cannot encode.
pub fn ipc_stream(batch: &RecordBatch, compression: ArrowCompression) -> Result<Bytes, SegmentError> {
    let options = IpcWriteOptions::try_new(usize::from(ALIGNMENT), false, METADATA_VERSION)?
        .try_with_compression(compression.codec())?;
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options)?;
    writer.write(batch)?;
    Ok(Bytes::from(writer.into_inner()?))
}
