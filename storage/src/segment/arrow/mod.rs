//! `.arrow` segments: rows in columns, as Arrow IPC *files* that `pyarrow.ipc.open_file` and polars read.
//!
//! What Weir adds lies where other readers do not look: a CRC-32C per buffer in the custom metadata of each record batch
//! message, and the block directory with its statistics in that of the footer. The chain of checks is: manifest -> footer ->
//! message -> buffer; a projected read checks exactly the bytes it uses. `FORMAT.md` in the folder above draws the file.
//!
//! A *block* is one record batch of the file. It is the unit of reading: [`BLOCK_ROWS`] and [`BLOCK_BYTES`] say how large.

mod columns;
mod directory;
mod footer;
mod message;
mod plan;
mod reader;
mod stats;
mod stream;
mod style;
#[cfg(test)]
mod tests;
mod writer;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_ipc::{CompressionType, MetadataVersion};
use std::sync::Arc;
use weir_model::TopicId;

pub(super) use directory::range_of_file;
pub use reader::{ArrowSegment, BlockInfo, BlockRead};
pub use stats::{ColumnStats, StatValue};
pub use stream::{IpcStreamBytes, ipc_stream, ipc_stream_with};
pub use writer::ArrowSegmentWriter;

/// Rows of a full block. An 8-byte column is then 128 KiB, which zstd at level 3 takes in one window, and a projected read
/// of one such column (20 to 130 KiB stored) outweighs its message of some 3 KiB and its two system calls. Offsets are
/// looked up by block: one fetch from the middle decodes at most this many rows in vain, about a millisecond.
pub const BLOCK_ROWS: usize = 16_384;

/// Bytes in memory of a full block, if rows are so large that it comes before [`BLOCK_ROWS`] (128 bytes a row and more).
/// Compressed three to four times, a block is then around 600 KiB: below the 1 MiB of `max.partition.fetch.bytes`, so that
/// it travels as one record, and well below it for a projection.
pub const BLOCK_BYTES: usize = 2 << 20;

/// Every message and buffer begins at a multiple of this, as Arrow recommends, so that readers may map the file.
const ALIGNMENT: u8 = 64;
/// Extension of the file.
pub(super) const ARROW: &str = "arrow";
/// First and last bytes of an Arrow IPC file.
const MAGIC: &[u8; 6] = b"ARROW1";
/// Continuation marker and length zero: the end of a stream of messages.
const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// The one metadata version written: buffers may be compressed.
const METADATA_VERSION: MetadataVersion = MetadataVersion::V5;

/// Columns of the log schema that this module knows by name.
const OFFSET: &str = "_offset";
const TIMESTAMP: &str = "_timestamp";
const VALUE_STYLE: &str = "_value_style";

/// Whether a column is the log's own; user columns never begin so.
fn is_system(field: &Field) -> bool {
    field.name().starts_with('_')
}

/// How the buffers of a file are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrowCompression {
    /// Smallest: zstd, level 3.
    Zstd,
    /// A quarter less CPU to write than zstd, twice the size; columns of nulls decode slower than under zstd.
    Lz4,
    /// As in memory.
    None,
}

impl ArrowCompression {
    fn codec(self) -> Option<CompressionType> {
        match self {
            Self::Zstd => Some(CompressionType::ZSTD),
            Self::Lz4 => Some(CompressionType::LZ4_FRAME),
            Self::None => None,
        }
    }
}

/// What a segment says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrowSegmentInfo {
    /// The incarnation of the topic.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: i32,
    /// Which schema of the table the columns follow.
    pub schema_id: u32,
}

/// Type of `_value_style` in the file: texts are numbered as they come, and the dictionary stands at the end, where the
/// file format allows it and a single one suffices. 32 bits, because sparse rows can have more than 65,536 styles.
fn style_in_file() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The schema with `data_type` for `_value_style`.
fn with_style_type(schema: &Schema, data_type: &DataType) -> SchemaRef {
    let fields: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| {
            if field.name() == VALUE_STYLE {
                Arc::new(field.as_ref().clone().with_data_type(data_type.clone()))
            } else {
                Arc::clone(field)
            }
        })
        .collect();
    Arc::new(Schema::new(fields))
}
