//! Batches of the log schema to batches of a lake table, and back, whole columns at a time.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StructArray,
    TimestampMicrosecondArray, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, FieldRef, Fields, Int32Type, Int64Type, Schema as ArrowSchema, SchemaRef, TimestampMicrosecondType,
};
use iceberg::spec::{Schema, Type};

use crate::LakeError;
use crate::headers;
use crate::schema::{
    KAFKA_COLUMN, LOG_HEADERS, LOG_KEY, LOG_OFFSET, LOG_TIMESTAMP, LOG_TIMESTAMP_TYPE, LOG_VALUE_RAW, LOG_VALUE_STYLE,
    RAW_KEY, TableKind, physical_field,
};

/// Kafka's word for a record without a timestamp.
const NO_TIMESTAMP: i64 = -1;
const MICROS_PER_MS: i64 = 1000;

/// One table's two faces: its Iceberg schema, and the log schema of its topic.
#[derive(Clone, Debug)]
pub struct TableMapping {
    table: String,
    kind: TableKind,
    log: SchemaRef,
    physical: SchemaRef,
    kafka_fields: Fields,
    partition_id: i32,
    offset_id: i32,
}

impl TableMapping {
    /// Pairs a table's current schema with a topic's log schema.
    ///
    /// # Errors
    /// [`LakeError::Schema`] when the table has no usable `_kafka` column.
    pub fn new(table: &str, kind: TableKind, iceberg: &Schema, log: &SchemaRef) -> Result<Self, LakeError> {
        let broken = |reason: &str| LakeError::Schema {
            table: table.to_owned(),
            column: KAFKA_COLUMN.to_owned(),
            reason: reason.to_owned(),
        };
        let kafka = iceberg.as_struct().field_by_name(KAFKA_COLUMN).ok_or_else(|| broken("the table lacks it"))?;
        let Type::Struct(inner) = kafka.field_type.as_ref() else { return Err(broken("it is not a struct")) };
        let id = |name: &str| inner.field_by_name(name).map(|field| field.id);
        let partition_id = id("partition").ok_or_else(|| broken("it has no field 'partition'"))?;
        let offset_id = id("offset").ok_or_else(|| broken("it has no field 'offset'"))?;
        let poured = |name: &str| {
            name == KAFKA_COLUMN || (kind == TableKind::Raw && name == RAW_KEY) || log.column_with_name(name).is_some()
        };
        let fields: Vec<Field> = iceberg
            .as_struct()
            .fields()
            .iter()
            .filter(|field| poured(&field.name))
            .map(|field| physical_field(field))
            .collect();
        let DataType::Struct(kafka_fields) = physical_field(kafka).data_type().clone() else {
            return Err(broken("it is not a struct"));
        };
        Ok(Self {
            table: table.to_owned(),
            kind,
            log: Arc::clone(log),
            physical: Arc::new(ArrowSchema::new(fields)),
            kafka_fields,
            partition_id,
            offset_id,
        })
    }

    /// Schema of the Parquet files written for this table, field ids in its metadata.
    pub fn physical(&self) -> &SchemaRef {
        &self.physical
    }

    /// Schema of the batches that the log exchanges.
    pub fn log(&self) -> &SchemaRef {
        &self.log
    }

    /// Raw, or with columns.
    pub fn kind(&self) -> TableKind {
        self.kind
    }

    /// Field id of `_kafka.partition`.
    pub fn partition_id(&self) -> i32 {
        self.partition_id
    }

    /// Field id of `_kafka.offset`.
    pub fn offset_id(&self) -> i32 {
        self.offset_id
    }

    /// Turns a batch of the log schema, rows of one partition, into a batch of the table.
    ///
    /// # Errors
    /// [`LakeError::Schema`] when a column is missing or holds a null that the table does not allow.
    pub fn to_lake(&self, partition: i32, batch: &RecordBatch) -> Result<RecordBatch, LakeError> {
        let mut columns = Vec::with_capacity(self.physical.fields().len());
        for field in self.physical.fields() {
            let column = match field.name().as_str() {
                KAFKA_COLUMN => Arc::new(self.kafka_column(partition, batch)?) as ArrayRef,
                RAW_KEY if self.kind == TableKind::Raw => as_type(self.column(batch, LOG_KEY)?, field.data_type())?,
                name => as_type(self.column(batch, name)?, field.data_type())?,
            };
            if !field.is_nullable() && column.null_count() > 0 {
                return Err(self.refuse(field.name(), "a row has no value, which the table does not allow"));
            }
            columns.push(column);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.physical), columns)?)
    }

    fn kafka_column(&self, partition: i32, batch: &RecordBatch) -> Result<StructArray, LakeError> {
        let rows = batch.num_rows();
        let milliseconds = self.column(batch, LOG_TIMESTAMP)?.as_primitive::<Int64Type>();
        let (timestamp, timestamp_raw) = timestamps_to_lake(milliseconds);
        let wire = as_type(self.column(batch, LOG_HEADERS)?, &DataType::Binary)?;
        let mut headers = None;
        let mut columns = Vec::with_capacity(self.kafka_fields.len());
        for field in &self.kafka_fields {
            let column: ArrayRef = match field.name().as_str() {
                "partition" => Arc::new(Int32Array::from_value(partition, rows)),
                "offset" => Arc::clone(self.column(batch, LOG_OFFSET)?),
                "timestamp" => Arc::new(timestamp.clone()),
                "timestamp_type" => Arc::clone(self.column(batch, LOG_TIMESTAMP_TYPE)?),
                "key" if self.kind == TableKind::Columns => Arc::clone(self.column(batch, LOG_KEY)?),
                "value_raw" => Arc::clone(self.column(batch, LOG_VALUE_RAW)?),
                "value_style" => Arc::clone(self.column(batch, LOG_VALUE_STYLE)?),
                "timestamp_raw" => Arc::new(timestamp_raw.clone()),
                name @ ("headers" | "headers_raw") => {
                    if wire.null_count() == rows {
                        new_null_array(field.data_type(), rows)
                    } else {
                        if headers.is_none() {
                            headers = Some(headers::to_lake(wire.as_binary(), &self.headers_item()?)?);
                        }
                        let both = headers.as_ref().expect("the headers were just split");
                        if name == "headers" { Arc::new(both.list.clone()) } else { Arc::new(both.raw.clone()) }
                    }
                }
                _ => new_null_array(field.data_type(), rows),
            };
            columns.push(as_type(&column, field.data_type())?);
        }
        Ok(StructArray::try_new(self.kafka_fields.clone(), columns, None)?)
    }

    fn headers_item(&self) -> Result<FieldRef, LakeError> {
        match self.kafka_fields.find("headers").map(|(_, field)| field.data_type()) {
            Some(DataType::List(item)) => Ok(Arc::clone(item)),
            _ => Err(self.refuse(KAFKA_COLUMN, "it has no list 'headers'")),
        }
    }

    /// Turns a batch read from a file of the table into the columns of the log schema named in `wanted`. Columns that the
    /// file does not have are null, as Iceberg has it for columns added later; then their field is nullable in the batch,
    /// also when the topic says NOT NULL of rows written since.
    ///
    /// # Errors
    /// [`LakeError::DataFile`] when the file lacks what every row must have.
    pub fn to_log(&self, batch: &RecordBatch, wanted: &SchemaRef) -> Result<RecordBatch, LakeError> {
        let rows = batch.num_rows();
        let kafka = kafka_of(batch)?;
        let mut columns = Vec::with_capacity(wanted.fields().len());
        for field in wanted.fields() {
            let column: Option<ArrayRef> = match field.name().as_str() {
                LOG_OFFSET => kafka.column_by_name("offset").cloned(),
                LOG_TIMESTAMP => Some(timestamps_to_log(kafka, rows)?),
                LOG_TIMESTAMP_TYPE => kafka.column_by_name("timestamp_type").cloned(),
                LOG_KEY if self.kind == TableKind::Raw => batch.column_by_name(RAW_KEY).cloned(),
                LOG_KEY => kafka.column_by_name("key").cloned(),
                LOG_HEADERS => Some(headers_to_log(kafka, rows)?),
                LOG_VALUE_STYLE => kafka.column_by_name("value_style").cloned(),
                LOG_VALUE_RAW => kafka.column_by_name("value_raw").cloned(),
                name => batch.column_by_name(name).cloned(),
            };
            columns.push(match column {
                Some(column) => as_type(&column, field.data_type())?,
                None => new_null_array(field.data_type(), rows),
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let lacking = |(field, column): (&FieldRef, &ArrayRef)| !field.is_nullable() && column.null_count() > 0;
        if !wanted.fields().iter().zip(&columns).any(lacking) {
            return Ok(RecordBatch::try_new_with_options(Arc::clone(wanted), columns, &options)?);
        }
        let fields = wanted.fields().iter().zip(&columns).map(|(field, column)| {
            let nullable = field.is_nullable() || column.null_count() > 0;
            Arc::new(field.as_ref().clone().with_nullable(nullable))
        });
        let relaxed = Arc::new(ArrowSchema::new(fields.collect::<Vec<FieldRef>>()));
        Ok(RecordBatch::try_new_with_options(relaxed, columns, &options)?)
    }

    /// Paths of the Parquet leaves that the log columns of `wanted` come from, as prefixes of whole path parts.
    pub fn leaves_of(&self, wanted: &ArrowSchema) -> Vec<Vec<String>> {
        let mut leaves = Vec::new();
        let mut kafka = |name: &str| leaves.push(vec![KAFKA_COLUMN.to_owned(), name.to_owned()]);
        kafka("offset");
        kafka("partition");
        let mut user = Vec::new();
        for field in wanted.fields() {
            match field.name().as_str() {
                LOG_OFFSET => {}
                LOG_TIMESTAMP => {
                    kafka("timestamp");
                    kafka("timestamp_raw");
                }
                LOG_TIMESTAMP_TYPE => kafka("timestamp_type"),
                LOG_KEY if self.kind == TableKind::Raw => user.push(vec![RAW_KEY.to_owned()]),
                LOG_KEY => kafka("key"),
                LOG_HEADERS => {
                    kafka("headers");
                    kafka("headers_raw");
                }
                LOG_VALUE_STYLE => kafka("value_style"),
                LOG_VALUE_RAW => kafka("value_raw"),
                name => user.push(vec![name.to_owned()]),
            }
        }
        leaves.extend(user);
        leaves
    }

    /// The columns of the log schema at these positions; `None` is all of them.
    ///
    /// # Errors
    /// [`LakeError::Arrow`] for a position that the schema does not have.
    pub fn project(&self, positions: Option<&[usize]>) -> Result<SchemaRef, LakeError> {
        match positions {
            Some(positions) => Ok(Arc::new(self.log.project(positions)?)),
            None => Ok(Arc::clone(&self.log)),
        }
    }

    fn column<'a>(&self, batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, LakeError> {
        batch.column_by_name(name).ok_or_else(|| self.refuse(name, "the rows to pour lack it"))
    }

    fn refuse(&self, column: &str, reason: &str) -> LakeError {
        LakeError::Schema { table: self.table.clone(), column: column.to_owned(), reason: reason.to_owned() }
    }
}

/// The struct `_kafka` of a batch read from the lake.
pub(crate) fn kafka_of(batch: &RecordBatch) -> Result<&StructArray, LakeError> {
    batch.column_by_name(KAFKA_COLUMN).and_then(|column| column.as_struct_opt()).ok_or_else(|| LakeError::DataFile {
        file: KAFKA_COLUMN.to_owned(),
        reason: "it has no struct column '_kafka', so its rows have no offsets".to_owned(),
    })
}

fn as_type(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, LakeError> {
    if column.data_type() == data_type {
        return Ok(Arc::clone(column));
    }
    Ok(cast(column, data_type)?)
}

/// Milliseconds to micros; -1 to null; what micros cannot hold goes to the second array.
fn timestamps_to_lake(milliseconds: &Int64Array) -> (TimestampMicrosecondArray, Int64Array) {
    let fits = |value: i64| value.checked_mul(MICROS_PER_MS);
    let micros: TimestampMicrosecondArray =
        milliseconds.values().iter().map(|&value| if value == NO_TIMESTAMP { None } else { fits(value) }).collect();
    let raw = if micros.null_count() == 0 {
        Int64Array::new_null(milliseconds.len())
    } else {
        milliseconds.values().iter().map(|&value| fits(value).is_none().then_some(value)).collect()
    };
    (micros.with_timezone("+00:00"), raw)
}

fn timestamps_to_log(kafka: &StructArray, rows: usize) -> Result<ArrayRef, LakeError> {
    let Some(stored) = kafka.column_by_name("timestamp") else {
        return Ok(Arc::new(Int64Array::from_value(NO_TIMESTAMP, rows)));
    };
    let micros = as_type(stored, &DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, Some("+00:00".into())))?;
    let micros = micros.as_primitive::<TimestampMicrosecondType>();
    let raw = kafka.column_by_name("timestamp_raw").map(|column| column.as_primitive::<Int64Type>());
    let values = micros.iter().enumerate().map(|(row, value)| match value {
        Some(value) => value.div_euclid(MICROS_PER_MS),
        None => raw.filter(|raw| raw.is_valid(row)).map_or(NO_TIMESTAMP, |raw| raw.value(row)),
    });
    Ok(Arc::new(Int64Array::from_iter_values(values)))
}

fn headers_to_log(kafka: &StructArray, rows: usize) -> Result<ArrayRef, LakeError> {
    let list = match kafka.column_by_name("headers") {
        Some(column) => match column.data_type() {
            DataType::LargeList(item) => Some(as_type(column, &DataType::List(Arc::clone(item)))?),
            _ => Some(Arc::clone(column)),
        },
        None => None,
    };
    let raw = kafka.column_by_name("headers_raw").map(|column| as_type(column, &DataType::Binary)).transpose()?;
    let raw: Option<&BinaryArray> = raw.as_ref().map(|raw| raw.as_binary());
    let list = list.as_ref().and_then(|list| list.as_list_opt());
    Ok(Arc::new(headers::to_wire(list, raw, rows)?))
}

/// Partition and offset of every row of a lake batch.
pub(crate) fn positions(batch: &RecordBatch) -> Result<(Int32Array, Int64Array), LakeError> {
    let kafka = kafka_of(batch)?;
    let missing =
        |name: &str| LakeError::DataFile { file: KAFKA_COLUMN.to_owned(), reason: format!("it has no field '{name}'") };
    let partition = kafka.column_by_name("partition").ok_or_else(|| missing("partition"))?;
    let offset = kafka.column_by_name("offset").ok_or_else(|| missing("offset"))?;
    let partition = as_type(partition, &DataType::Int32)?.as_primitive::<Int32Type>().clone();
    let offset = as_type(offset, &DataType::Int64)?.as_primitive::<Int64Type>().clone();
    Ok((partition, offset))
}

/// A log batch for tests: offsets from `start`, every column filled.
#[cfg(test)]
pub(crate) fn test_system_columns(start: i64, rows: usize) -> Vec<ArrayRef> {
    use arrow::array::{Int8Array, StringArray};
    let end = start + i64::try_from(rows).expect("a small count");
    vec![
        Arc::new(Int64Array::from_iter_values(start..end)),
        Arc::new(Int64Array::from_iter_values((start..end).map(|offset| 1_700_000_000_000 + offset))),
        Arc::new(Int8Array::from_iter_values((start..end).map(|_| 0))),
        Arc::new(BinaryArray::from_iter_values((start..end).map(|offset| format!("key-{offset}")))),
        Arc::new(BinaryArray::from_iter(
            (start..end).map(|offset| (offset % 2 == 0).then_some([2u8, 2, b'h', 2, b'v'].to_vec())),
        )),
        Arc::new(StringArray::from_iter((start..end).map(|offset| (offset % 3 != 0).then_some("compact")))),
        Arc::new(BinaryArray::from_iter((start..end).map(|offset| (offset % 3 == 0).then_some(b"{ }".to_vec())))),
    ]
}

#[cfg(test)]
pub(crate) mod tests;
