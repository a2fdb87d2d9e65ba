//! What a manifest says of a data file, taken from the file's own footer.

use std::collections::HashMap;

use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, PrimitiveType, Schema, Struct};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::statistics::Statistics;

use crate::LakeError;

/// Describes a finished Parquet file of an unpartitioned table: counts, sizes, and bounds of every column that is not
/// inside a list or a map, `_kafka.partition` and `_kafka.offset` among them.
///
/// # Errors
/// [`LakeError::Iceberg`] when a bound cannot be read as its column's type.
pub(crate) fn data_file(
    schema: &Schema,
    metadata: &ParquetMetaData,
    location: String,
    size: u64,
) -> Result<DataFile, LakeError> {
    let mut columns = ColumnMetrics::default();
    for row_group in metadata.row_groups() {
        for chunk in row_group.columns() {
            columns.add(schema, chunk)?;
        }
    }
    let starts = metadata.row_groups().iter().filter_map(|group| group.columns().first());
    let split_offsets = starts.map(|chunk| i64::try_from(chunk.byte_range().0).unwrap_or(i64::MAX)).collect();
    let rows = u64::try_from(metadata.file_metadata().num_rows()).unwrap_or(0);
    let mut builder = DataFileBuilder::default();
    builder
        .content(DataContentType::Data)
        .file_path(location.clone())
        .file_format(DataFileFormat::Parquet)
        .partition(Struct::empty())
        .record_count(rows)
        .file_size_in_bytes(size)
        .column_sizes(columns.sizes)
        .value_counts(columns.values)
        .null_value_counts(columns.nulls)
        .lower_bounds(columns.lower)
        .upper_bounds(columns.upper)
        .split_offsets(Some(split_offsets));
    builder.build().map_err(|error| LakeError::DataFile { file: location, reason: error.to_string() })
}

#[derive(Default)]
struct ColumnMetrics {
    sizes: HashMap<i32, u64>,
    values: HashMap<i32, u64>,
    nulls: HashMap<i32, u64>,
    lower: HashMap<i32, Datum>,
    upper: HashMap<i32, Datum>,
}

impl ColumnMetrics {
    fn add(&mut self, schema: &Schema, chunk: &ColumnChunkMetaData) -> Result<(), LakeError> {
        let info = chunk.column_descr().self_type().get_basic_info();
        if !info.has_id() {
            return Ok(());
        }
        let id = info.id();
        let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
        *self.sizes.entry(id).or_default() += unsigned(chunk.compressed_size());
        *self.values.entry(id).or_default() += unsigned(chunk.num_values());
        let Some(statistics) = chunk.statistics() else { return Ok(()) };
        if let Some(nulls) = statistics.null_count_opt() {
            *self.nulls.entry(id).or_default() += nulls;
        }
        let field = schema.field_by_id(id).and_then(|field| field.field_type.as_primitive_type().cloned());
        // A bound over the elements of lists says nothing of rows, and readers take it as if it did.
        let Some(field) = field.filter(|_| chunk.column_descr().max_rep_level() == 0) else { return Ok(()) };
        if let Some(low) = bound(statistics, statistics.min_bytes_opt(), &field)? {
            let keep = self.lower.get(&id).is_none_or(|known| low < *known);
            if keep {
                self.lower.insert(id, low);
            }
        }
        if let Some(high) = bound(statistics, statistics.max_bytes_opt(), &field)? {
            let keep = self.upper.get(&id).is_none_or(|known| high > *known);
            if keep {
                self.upper.insert(id, high);
            }
        }
        Ok(())
    }
}

/// A Parquet bound in Iceberg's form. They differ for decimals only: small ones are little-endian integers in Parquet and
/// big-endian in Iceberg.
fn bound(statistics: &Statistics, bytes: Option<&[u8]>, field: &PrimitiveType) -> Result<Option<Datum>, LakeError> {
    let Some(bytes) = bytes else { return Ok(None) };
    let swapped: Vec<u8>;
    let is_integer = matches!(statistics, Statistics::Int32(_) | Statistics::Int64(_));
    let bytes = if is_integer && matches!(field, PrimitiveType::Decimal { .. }) {
        swapped = bytes.iter().rev().copied().collect();
        &swapped
    } else {
        bytes
    };
    Ok(Some(Datum::try_from_bytes(bytes, field.clone())?))
}
