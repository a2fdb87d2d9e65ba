//! Rows <-> columns: Kafka batches built from log-schema Arrow batches, and system columns taken from Kafka batches.
//!
//! Used alike for `.arrow` segments, Parquet files of the lake and projected reads, so that a row looks the same at every age.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, Int8Builder, Int64Builder, RecordBatch, RecordBatchOptions,
};
use arrow::datatypes::{DataType, Int8Type, Int64Type};
use bytes::Bytes;
use weir_model::TimestampType;
use weir_model::record_batch::{AssignedBatch, BatchBuilder, BatchError, Compression, RecordIter};
use weir_table::schema::log_column;
use weir_table::{EncodeError, EncodedValue, TableSchema, ValueEncoder};

/// Columns in front of the user's in the log schema.
pub const SYSTEM_COLUMN_COUNT: usize = 7;
/// Positions of the system columns in the log schema.
pub mod column {
    #![allow(missing_docs, reason = "the names are the columns' own")]
    pub const OFFSET: usize = 0;
    pub const TIMESTAMP: usize = 1;
    pub const TIMESTAMP_TYPE: usize = 2;
    pub const KEY: usize = 3;
    pub const HEADERS: usize = 4;
    pub const VALUE_STYLE: usize = 5;
    pub const VALUE_RAW: usize = 6;
}

/// The least a rebuilt row costs on the wire beyond its key and value; only steers how many rows a batch gets.
const ROW_OVERHEAD: usize = 12;

/// Why columns could not be turned into rows.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// A value could not be encoded from its columns.
    #[error("row at offset {offset} cannot be rebuilt from its columns: {source}")]
    Encode {
        /// Which row.
        offset: i64,
        /// What is wrong.
        source: EncodeError,
    },
    /// A batch is not of the log schema.
    #[error("columns are not of the log schema: {0}")]
    Schema(String),
    /// A stored batch does not read.
    #[error("stored batch does not read: {0}")]
    Batch(#[from] BatchError),
}

/// Kafka batches rebuilt from columns, and how far they reach.
#[derive(Debug, Default)]
pub struct BuiltRows {
    /// Whole batches, uncompressed, in offset order.
    pub batches: Vec<Bytes>,
    /// Bytes of all of them.
    pub bytes: usize,
    /// Rows of `columns` used up.
    pub rows: usize,
}

/// Rebuilds Kafka batches from rows `first_row..` of `columns` (log schema, or a projection of its user columns), until
/// `max_bytes` of values are reached or the rows end. At least one row is taken. A batch holds rows of one timestamp type.
///
/// # Errors
/// [`RowsError::Schema`] for other columns, [`RowsError::Encode`] for a row whose style does not fit its columns.
pub fn build_batches(
    encoder: &mut ValueEncoder,
    columns: &RecordBatch,
    first_row: usize,
    max_bytes: usize,
) -> Result<BuiltRows, RowsError> {
    let mut value = Vec::with_capacity(256);
    build_with(columns, first_row, max_bytes, |row, push| {
        value.clear();
        match encoder.encode(columns, row, &mut value)? {
            EncodedValue::Bytes => push(Some(value.as_slice())),
            EncodedValue::Null => push(None),
        }
        Ok(value.len())
    })
}

/// As [`build_batches`], for rows that all kept their produced bytes: the columns in front of `_value_raw` and it are enough.
///
/// # Errors
/// [`RowsError::Schema`] for other columns.
pub fn build_raw_batches(columns: &RecordBatch, first_row: usize, max_bytes: usize) -> Result<BuiltRows, RowsError> {
    let raw = columns
        .column_by_name(log_column::VALUE_RAW)
        .and_then(|column| column.as_binary_opt::<i32>())
        .filter(|column| column.null_count() == 0)
        .ok_or_else(|| RowsError::Schema("not every row kept its bytes".to_owned()))?;
    build_with(columns, first_row, max_bytes, |row, push| {
        push(Some(raw.value(row)));
        Ok(raw.value_length(row).unsigned_abs() as usize)
    })
}

/// Builds batches of rows whose values `value_of` hands on; it answers their size, by which the next one's is guessed.
fn build_with(
    columns: &RecordBatch,
    first_row: usize,
    max_bytes: usize,
    mut value_of: impl FnMut(usize, &mut dyn FnMut(Option<&[u8]>)) -> Result<usize, EncodeError>,
) -> Result<BuiltRows, RowsError> {
    let system = SystemColumns::of(columns)?;
    let mut built = BuiltRows::default();
    let mut value_size = 0;
    let mut row = first_row;
    while row < columns.num_rows() && (built.bytes == 0 || built.bytes < max_bytes) {
        let timestamp_type = system.timestamp_type(row);
        // Readers of a batch that the broker stamped take its one timestamp for every record.
        let (batch_start, stamped) = (row, timestamp_type == TimestampType::LogAppendTime);
        let base_offset = system.offset.value(row);
        let room = (max_bytes - built.bytes.min(max_bytes)).min(MAX_REBUILT_BATCH);
        let buffer = Vec::with_capacity(room.min(MAX_REBUILT_BATCH) + 4096);
        let mut builder = BatchBuilder::with_buffer(base_offset, Compression::None, timestamp_type, buffer);
        while row < columns.num_rows()
            && (builder.record_count() == 0 || builder.size() + value_size + ROW_OVERHEAD <= room)
            && system.timestamp_type(row) == timestamp_type
            && (row == batch_start || !stamped || system.timestamp.value(row) == system.timestamp.value(batch_start))
        {
            let offset = system.offset.value(row);
            let mut push = |value: Option<&[u8]>| {
                builder.push(offset, system.timestamp.value(row), system.key(row), value, system.headers(row));
            };
            value_size = value_of(row, &mut push).map_err(|source| RowsError::Encode { offset, source })?;
            row += 1;
        }
        let batch = builder.finish();
        built.bytes += batch.len();
        built.batches.push(batch);
    }
    built.rows = row - first_row;
    Ok(built)
}

/// Rebuilt batches stay near the size that clients send; one CRC covers each.
const MAX_REBUILT_BATCH: usize = 1 << 20;

/// The system columns of a log-schema batch, typed.
struct SystemColumns<'a> {
    offset: &'a arrow::array::PrimitiveArray<Int64Type>,
    timestamp: &'a arrow::array::PrimitiveArray<Int64Type>,
    timestamp_type: &'a arrow::array::PrimitiveArray<Int8Type>,
    key: &'a arrow::array::BinaryArray,
    headers: &'a arrow::array::BinaryArray,
}

impl<'a> SystemColumns<'a> {
    fn of(columns: &'a RecordBatch) -> Result<Self, RowsError> {
        if columns.num_columns() <= column::HEADERS {
            return Err(RowsError::Schema(format!(
                "{} columns, at least {} expected",
                columns.num_columns(),
                column::HEADERS + 1
            )));
        }
        let named = |at: usize| columns.column(at);
        let missing = |what: &str| RowsError::Schema(format!("column {what} is missing or of another type"));
        Ok(Self {
            offset: named(column::OFFSET).as_primitive_opt().ok_or_else(|| missing("_offset"))?,
            timestamp: named(column::TIMESTAMP).as_primitive_opt().ok_or_else(|| missing("_timestamp"))?,
            timestamp_type: named(column::TIMESTAMP_TYPE)
                .as_primitive_opt()
                .ok_or_else(|| missing("_timestamp_type"))?,
            key: named(column::KEY).as_binary_opt().ok_or_else(|| missing("_key"))?,
            headers: named(column::HEADERS).as_binary_opt().ok_or_else(|| missing("_headers"))?,
        })
    }

    fn timestamp_type(&self, row: usize) -> TimestampType {
        if self.timestamp_type.value(row) == 1 { TimestampType::LogAppendTime } else { TimestampType::CreateTime }
    }

    fn key(&self, row: usize) -> Option<&'a [u8]> {
        self.key.is_valid(row).then(|| self.key.value(row))
    }

    fn headers(&self, row: usize) -> Option<&'a [u8]> {
        self.headers.is_valid(row).then(|| self.headers.value(row))
    }
}

/// The offsets of a log-schema batch.
///
/// # Errors
/// [`RowsError::Schema`] when the first column is not `_offset`.
pub fn offsets_of(columns: &RecordBatch) -> Result<&arrow::array::PrimitiveArray<Int64Type>, RowsError> {
    columns
        .columns()
        .first()
        .and_then(|array| array.as_primitive_opt::<Int64Type>())
        .ok_or_else(|| RowsError::Schema("the first column is not _offset".to_owned()))
}

/// Collects the system columns of many Kafka batches.
pub struct SystemCollector {
    offset: Int64Builder,
    timestamp: Int64Builder,
    timestamp_type: Int8Builder,
    key: BinaryBuilder,
    headers: BinaryBuilder,
}

impl SystemCollector {
    /// Room for `rows` rows.
    pub fn new(rows: usize) -> Self {
        Self {
            offset: Int64Builder::with_capacity(rows),
            timestamp: Int64Builder::with_capacity(rows),
            timestamp_type: Int8Builder::with_capacity(rows),
            key: BinaryBuilder::with_capacity(rows, 0),
            headers: BinaryBuilder::with_capacity(rows, 0),
        }
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        arrow::array::ArrayBuilder::len(&self.offset)
    }

    /// Adds every record of `batch`, whose uncompressed record section is `records`, handing each value to `value`.
    ///
    /// # Errors
    /// [`RowsError::Batch`] when the records do not walk.
    pub fn push_batch<'r>(
        &mut self,
        batch: &AssignedBatch,
        records: &'r [u8],
        mut value: impl FnMut(Option<&'r [u8]>),
    ) -> Result<(), RowsError> {
        let header = batch.header();
        let append_time = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
        for record in RecordIter::new(records, header.record_count) {
            let record = record?;
            self.offset.append_value(header.base_offset + i64::from(record.offset_delta));
            // Readers of an append-time batch take its max timestamp for every record.
            let timestamp = if append_time {
                header.max_timestamp
            } else {
                header.base_timestamp.wrapping_add(record.timestamp_delta)
            };
            self.timestamp.append_value(timestamp);
            self.timestamp_type.append_value(i8::from(append_time));
            self.key.append_option(record.key);
            self.headers.append_option((record.header_count() > 0).then_some(record.header_bytes));
            value(record.value);
        }
        Ok(())
    }

    /// The log-schema batch.
    ///
    /// # Errors
    /// [`RowsError::Schema`] when the columns do not fit the schema.
    pub fn finish(
        mut self,
        schema: &TableSchema,
        style: ArrayRef,
        raw: ArrayRef,
        user: Vec<ArrayRef>,
    ) -> Result<RecordBatch, RowsError> {
        let rows = self.rows();
        let style = plain_style(&style)?;
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.offset.finish()),
            Arc::new(self.timestamp.finish()),
            Arc::new(self.timestamp_type.finish()),
            Arc::new(self.key.finish()),
            Arc::new(self.headers.finish()),
            style,
            raw,
        ];
        columns.extend(user);
        RecordBatch::try_new_with_options(
            schema.log_schema(),
            columns,
            &RecordBatchOptions::new().with_row_count(Some(rows)),
        )
        .map_err(|error| RowsError::Schema(error.to_string()))
    }
}

/// Styles as plain text, whichever way they were encoded.
pub(crate) fn plain_style(style: &ArrayRef) -> Result<ArrayRef, RowsError> {
    if style.data_type() == &DataType::Utf8 {
        return Ok(Arc::clone(style));
    }
    arrow::compute::cast(style, &DataType::Utf8).map_err(|error| RowsError::Schema(error.to_string()))
}
