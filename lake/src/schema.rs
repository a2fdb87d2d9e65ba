//! A topic's columns as an Iceberg table: the user's columns, then one struct `_kafka` that rebuilds the record.
//!
//! | log schema | lake table |
//! |---|---|
//! | the user's columns | the same columns, by name |
//! | `_offset` | `_kafka.offset long`, with the partition in `_kafka.partition int` |
//! | `_timestamp` (ms, -1 = none) | `_kafka.timestamp timestamptz` (micros, null = none); `_kafka.timestamp_raw` when out of its range |
//! | `_timestamp_type` | `_kafka.timestamp_type int` |
//! | `_key` | `_kafka.key binary`; a raw table has the column `key` instead |
//! | `_headers` (wire bytes) | `_kafka.headers list<struct<key string, value binary>>`; `_kafka.headers_raw` when that cannot hold them |
//! | `_value_raw`, `_value_style` | `_kafka.value_raw binary`, `_kafka.value_style string` |
//!
//! The two `..._raw` columns of system fields are null in every ordinary row; they exist because a record must come back
//! byte for byte (LOG-3) whatever a producer wrote.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema as ArrowSchema, TimeUnit};
use iceberg::spec::{ListType, MapType, NestedField, NestedFieldRef, PrimitiveType, Schema, StructType, Type};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
pub use weir_table::schema::log_column::{
    HEADERS as LOG_HEADERS, KEY as LOG_KEY, OFFSET as LOG_OFFSET, TIMESTAMP as LOG_TIMESTAMP,
    TIMESTAMP_TYPE as LOG_TIMESTAMP_TYPE, VALUE_RAW as LOG_VALUE_RAW, VALUE_STYLE as LOG_VALUE_STYLE,
};

use crate::LakeError;

/// Name of the struct column that holds what Kafka knows of a row.
pub const KAFKA_COLUMN: &str = "_kafka";
/// The columns of the log schema that are not the user's.
const LOG_SYSTEM_COLUMNS: [&str; 7] =
    [LOG_OFFSET, LOG_TIMESTAMP, LOG_TIMESTAMP_TYPE, LOG_KEY, LOG_HEADERS, LOG_VALUE_STYLE, LOG_VALUE_RAW];
/// Where a topic without a schema keeps its keys in the lake.
pub const RAW_KEY: &str = "key";

const UTC: &str = "+00:00";

/// Which of the two shapes a lake table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableKind {
    /// A topic without a schema: `key BINARY, value BINARY`.
    Raw,
    /// A topic with columns.
    Columns,
}

impl TableKind {
    /// The word in the table property.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Columns => "columns",
        }
    }
}

/// The log schema of a table with these user columns.
#[cfg(test)]
pub(crate) fn log_schema(user: &Fields) -> arrow::datatypes::SchemaRef {
    let mut fields: Vec<FieldRef> = vec![
        Arc::new(Field::new(LOG_OFFSET, DataType::Int64, false)),
        Arc::new(Field::new(LOG_TIMESTAMP, DataType::Int64, false)),
        Arc::new(Field::new(LOG_TIMESTAMP_TYPE, DataType::Int8, false)),
        Arc::new(Field::new(LOG_KEY, DataType::Binary, true)),
        Arc::new(Field::new(LOG_HEADERS, DataType::Binary, true)),
        Arc::new(Field::new(LOG_VALUE_STYLE, DataType::Utf8, true)),
        Arc::new(Field::new(LOG_VALUE_RAW, DataType::Binary, true)),
    ];
    fields.extend(user.iter().cloned());
    Arc::new(ArrowSchema::new(fields))
}

/// The user's columns of a log schema.
pub fn user_fields(log: &ArrowSchema) -> impl Iterator<Item = &FieldRef> {
    log.fields().iter().filter(|field| !LOG_SYSTEM_COLUMNS.contains(&field.name().as_str()))
}

/// The Iceberg schema of a new table. Field ids are unique but provisional: creating the table assigns the real ones.
///
/// # Errors
/// [`LakeError::Schema`] for a column type that Iceberg v2 does not have.
pub fn iceberg_schema(table: &str, kind: TableKind, log: &ArrowSchema) -> Result<Schema, LakeError> {
    let mut ids = Ids { table, column: String::new(), next: 1 };
    let mut fields = Vec::new();
    if kind == TableKind::Raw {
        fields.push(Arc::new(NestedField::optional(ids.take(), RAW_KEY, Type::Primitive(PrimitiveType::Binary))));
    }
    for field in user_fields(log) {
        field.name().clone_into(&mut ids.column);
        fields.push(ids.field(field)?);
    }
    fields.push(ids.kafka());
    Ok(Schema::builder().with_fields(fields).build()?)
}

/// `current` with the columns of `log` that it lacks added at its end, as optional; `None` when it lacks none.
/// `last_column_id` is the table's, so that ids of dropped columns are not used again.
///
/// # Errors
/// [`LakeError::Schema`] when a column changed its type in a way that would need a rewrite.
pub fn evolved_schema(
    table: &str,
    current: &Schema,
    last_column_id: i32,
    log: &ArrowSchema,
) -> Result<Option<Schema>, LakeError> {
    let mut ids = Ids { table, column: String::new(), next: last_column_id + 1 };
    let mut added = Vec::new();
    for field in user_fields(log) {
        field.name().clone_into(&mut ids.column);
        match current.as_struct().field_by_name(field.name()) {
            Some(existing) => ids.same(existing, field)?,
            None => {
                let fresh = ids.field(field)?;
                added.push(Arc::new(NestedField::optional(fresh.id, &fresh.name, *fresh.field_type.clone())));
            }
        }
    }
    if added.is_empty() {
        return Ok(None);
    }
    let fields = current.as_struct().fields().iter().cloned().chain(added);
    Ok(Some(Schema::builder().with_fields(fields).with_schema_id(current.schema_id()).build()?))
}

struct Ids<'a> {
    table: &'a str,
    column: String,
    next: i32,
}

impl Ids<'_> {
    fn take(&mut self) -> i32 {
        let id = self.next;
        self.next += 1;
        id
    }

    fn refuse(&self, reason: String) -> LakeError {
        LakeError::Schema { table: self.table.to_owned(), column: self.column.clone(), reason }
    }

    fn field(&mut self, field: &Field) -> Result<NestedFieldRef, LakeError> {
        let id = self.take();
        let field_type = self.type_of(field.data_type())?;
        Ok(Arc::new(NestedField::new(id, field.name(), field_type, !field.is_nullable())))
    }

    fn type_of(&mut self, data_type: &DataType) -> Result<Type, LakeError> {
        if let Some(primitive) = primitive_of(data_type) {
            return Ok(Type::Primitive(primitive));
        }
        match data_type {
            DataType::Dictionary(_, values) => self.type_of(values),
            DataType::List(element) | DataType::LargeList(element) => {
                let id = self.take();
                let element_type = self.type_of(element.data_type())?;
                let element = NestedField::list_element(id, element_type, !element.is_nullable());
                Ok(Type::List(ListType::new(Arc::new(element))))
            }
            DataType::Struct(fields) => {
                let fields = fields.iter().map(|field| self.field(field)).collect::<Result<_, _>>()?;
                Ok(Type::Struct(StructType::new(fields)))
            }
            DataType::Map(entries, _) => {
                let DataType::Struct(pair) = entries.data_type() else {
                    return Err(self.refuse("its map has no key and value".to_owned()));
                };
                let [key, value] = pair.as_ref() else {
                    return Err(self.refuse("its map has no key and value".to_owned()));
                };
                let key_id = self.take();
                let key = NestedField::map_key_element(key_id, self.type_of(key.data_type())?);
                let value_id = self.take();
                let value_type = self.type_of(value.data_type())?;
                let value = NestedField::map_value_element(value_id, value_type, !value.is_nullable());
                Ok(Type::Map(MapType::new(Arc::new(key), Arc::new(value))))
            }
            other => Err(self.refuse(format!("the type {other} has no form in an Iceberg v2 table"))),
        }
    }

    /// Checks that a column of the topic still fits the table's.
    fn same(&mut self, existing: &NestedField, field: &Field) -> Result<(), LakeError> {
        let wanted = self.type_of(field.data_type())?;
        if !same_shape(&existing.field_type, &wanted) {
            return Err(self.refuse(format!(
                "its type is {wanted} in the topic and {} in the table; only new columns can be added to a table that holds rows",
                existing.field_type
            )));
        }
        Ok(())
    }

    fn kafka(&mut self) -> NestedFieldRef {
        let id = self.take();
        let mut optional =
            |name: &str, primitive| Arc::new(NestedField::optional(self.take(), name, Type::Primitive(primitive)));
        let timestamp = optional("timestamp", PrimitiveType::Timestamptz);
        let key = optional("key", PrimitiveType::Binary);
        let value_raw = optional("value_raw", PrimitiveType::Binary);
        let value_style = optional("value_style", PrimitiveType::String);
        let headers_raw = optional("headers_raw", PrimitiveType::Binary);
        let timestamp_raw = optional("timestamp_raw", PrimitiveType::Long);
        let header_value = optional("value", PrimitiveType::Binary);
        let mut required =
            |name: &str, primitive| Arc::new(NestedField::required(self.take(), name, Type::Primitive(primitive)));
        let partition = required("partition", PrimitiveType::Int);
        let offset = required("offset", PrimitiveType::Long);
        let timestamp_type = required("timestamp_type", PrimitiveType::Int);
        let header_key = required("key", PrimitiveType::String);
        let header = Type::Struct(StructType::new(vec![header_key, header_value]));
        let headers = Type::List(ListType::new(Arc::new(NestedField::list_element(self.take(), header, true))));
        let headers = Arc::new(NestedField::optional(self.take(), "headers", headers));
        let fields = vec![
            partition,
            offset,
            timestamp,
            timestamp_type,
            key,
            headers,
            value_raw,
            value_style,
            headers_raw,
            timestamp_raw,
        ];
        Arc::new(NestedField::required(id, KAFKA_COLUMN, Type::Struct(StructType::new(fields))))
    }
}

fn primitive_of(data_type: &DataType) -> Option<PrimitiveType> {
    Some(match data_type {
        DataType::Boolean => PrimitiveType::Boolean,
        DataType::Int8 | DataType::Int16 | DataType::Int32 => PrimitiveType::Int,
        DataType::Int64 => PrimitiveType::Long,
        DataType::Float32 => PrimitiveType::Float,
        DataType::Float64 => PrimitiveType::Double,
        DataType::Decimal128(precision, scale) => {
            PrimitiveType::Decimal { precision: u32::from(*precision), scale: u32::try_from(*scale).ok()? }
        }
        DataType::Date32 => PrimitiveType::Date,
        DataType::Time64(TimeUnit::Microsecond) => PrimitiveType::Time,
        DataType::Timestamp(TimeUnit::Millisecond | TimeUnit::Microsecond, None) => PrimitiveType::Timestamp,
        DataType::Timestamp(TimeUnit::Millisecond | TimeUnit::Microsecond, Some(_)) => PrimitiveType::Timestamptz,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => PrimitiveType::String,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => PrimitiveType::Binary,
        DataType::FixedSizeBinary(16) => PrimitiveType::Uuid,
        _ => return None,
    })
}

/// Whether two types are the same but for their ids and for what is required.
fn same_shape(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Primitive(a), Type::Primitive(b)) => a == b,
        (Type::List(a), Type::List(b)) => same_shape(&a.element_field.field_type, &b.element_field.field_type),
        (Type::Map(a), Type::Map(b)) => {
            same_shape(&a.key_field.field_type, &b.key_field.field_type)
                && same_shape(&a.value_field.field_type, &b.value_field.field_type)
        }
        (Type::Struct(a), Type::Struct(b)) => {
            a.fields().len() == b.fields().len()
                && a.fields()
                    .iter()
                    .zip(b.fields())
                    .all(|(a, b)| a.name == b.name && same_shape(&a.field_type, &b.field_type))
        }
        _ => false,
    }
}

/// The Arrow field that Parquet files of a table hold for an Iceberg field, ids in its metadata.
pub fn physical_field(field: &NestedField) -> Field {
    let metadata = HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), field.id.to_string())]);
    Field::new(&field.name, physical_type(&field.field_type), !field.required).with_metadata(metadata)
}

fn physical_type(field_type: &Type) -> DataType {
    match field_type {
        Type::Primitive(primitive) => physical_primitive(primitive),
        Type::Struct(fields) => {
            DataType::Struct(fields.fields().iter().map(|field| Arc::new(physical_field(field))).collect())
        }
        Type::List(list) => DataType::List(Arc::new(physical_field(&list.element_field))),
        Type::Map(map) => {
            let pair = Fields::from(vec![physical_field(&map.key_field), physical_field(&map.value_field)]);
            DataType::Map(Arc::new(Field::new("key_value", DataType::Struct(pair), false)), false)
        }
    }
}

fn physical_primitive(primitive: &PrimitiveType) -> DataType {
    match primitive {
        PrimitiveType::Boolean => DataType::Boolean,
        PrimitiveType::Int => DataType::Int32,
        PrimitiveType::Long => DataType::Int64,
        PrimitiveType::Float => DataType::Float32,
        PrimitiveType::Double => DataType::Float64,
        PrimitiveType::Decimal { precision, scale } => DataType::Decimal128(
            u8::try_from(*precision).unwrap_or(arrow::datatypes::DECIMAL128_MAX_PRECISION),
            i8::try_from(*scale).unwrap_or(arrow::datatypes::DECIMAL128_MAX_SCALE),
        ),
        PrimitiveType::Date => DataType::Date32,
        PrimitiveType::Time => DataType::Time64(TimeUnit::Microsecond),
        PrimitiveType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        PrimitiveType::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        PrimitiveType::TimestampNs => DataType::Timestamp(TimeUnit::Nanosecond, None),
        PrimitiveType::TimestamptzNs => DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into())),
        PrimitiveType::String => DataType::Utf8,
        PrimitiveType::Uuid => DataType::FixedSizeBinary(16),
        PrimitiveType::Fixed(size) => DataType::FixedSizeBinary(i32::try_from(*size).unwrap_or(i32::MAX)),
        PrimitiveType::Binary => DataType::Binary,
    }
}
