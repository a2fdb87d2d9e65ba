//! Column types: their SQL spelling and the Arrow type that Iceberg v2 and pyarrow agree on.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};

/// The types a user may write, for messages.
pub(super) const KNOWN_TYPES: &str = "BOOLEAN, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s), STRING, BINARY, DATE, TIME, TIMESTAMP, \
     TIMESTAMP WITH TIME ZONE, UUID, ARRAY<T>, MAP<STRING,T>, STRUCT<name T, ...>";

/// One column of a table, or one field of a STRUCT.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Column {
    /// As written; JSON keys are compared with it exactly.
    pub name: String,
    /// Its type.
    pub data_type: ColumnType,
    /// False for NOT NULL.
    pub nullable: bool,
}

/// What an ARRAY or a MAP holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Element {
    /// Its type.
    pub data_type: ColumnType,
    /// False for NOT NULL.
    pub nullable: bool,
}

/// How fine a timestamp may be. Both are stored as microseconds; the coarser one refuses a finer value rather than round it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SecondFraction {
    /// `TIMESTAMP(3)`.
    Millis,
    /// `TIMESTAMP` or `TIMESTAMP(6)`.
    Micros,
}

/// A column's type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// true or false.
    Boolean,
    /// 32-bit integer.
    Int,
    /// 64-bit integer.
    BigInt,
    /// 32-bit binary floating point.
    Float,
    /// 64-bit binary floating point.
    Double,
    /// Exact decimal, 128 bits wide.
    Decimal {
        /// Digits in all, 1 to 38.
        precision: u8,
        /// Digits after the point, 0 to `precision`.
        scale: u8,
    },
    /// UTF-8 text.
    String,
    /// Bytes; base64 in JSON.
    Binary,
    /// Days.
    Date,
    /// Microseconds since midnight.
    Time,
    /// Microseconds on a wall clock, no zone.
    Timestamp(SecondFraction),
    /// Microseconds UTC.
    TimestampTz(SecondFraction),
    /// 16 bytes.
    Uuid,
    /// A list.
    Array(Box<Element>),
    /// STRING keys to values.
    Map(Box<Element>),
    /// Named fields.
    Struct(Vec<Column>),
}

impl Column {
    pub(super) fn to_arrow(&self) -> Field {
        Field::new(&self.name, self.data_type.to_arrow(), self.nullable)
    }
}

impl ColumnType {
    /// The Arrow type. List children are named `element`, map entries `key_value` with `key` and `value`: the names Iceberg's
    /// Arrow and Parquet writers use, so that no column has to be renamed on its way to the lake.
    pub fn to_arrow(&self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Int => DataType::Int32,
            Self::BigInt => DataType::Int64,
            Self::Float => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Decimal { precision, scale } => {
                DataType::Decimal128(*precision, i8::try_from(*scale).expect("a scale is at most 38"))
            }
            Self::String => DataType::Utf8,
            Self::Binary => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampTz(_) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Uuid => DataType::FixedSizeBinary(16),
            Self::Array(element) => {
                DataType::List(Arc::new(Field::new("element", element.data_type.to_arrow(), element.nullable)))
            }
            Self::Map(value) => {
                let entries = Fields::from(vec![
                    Field::new("key", DataType::Utf8, false),
                    Field::new("value", value.data_type.to_arrow(), value.nullable),
                ]);
                DataType::Map(Arc::new(Field::new("key_value", DataType::Struct(entries), false)), false)
            }
            Self::Struct(columns) => DataType::Struct(columns.iter().map(Column::to_arrow).collect()),
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(f, &self.name)?;
        write!(f, " {}", self.data_type)?;
        if self.nullable { Ok(()) } else { f.write_str(" NOT NULL") }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.data_type)?;
        if self.nullable { Ok(()) } else { f.write_str(" NOT NULL") }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("BOOLEAN"),
            Self::Int => f.write_str("INT"),
            Self::BigInt => f.write_str("BIGINT"),
            Self::Float => f.write_str("FLOAT"),
            Self::Double => f.write_str("DOUBLE"),
            Self::Decimal { precision, scale } => write!(f, "DECIMAL({precision},{scale})"),
            Self::String => f.write_str("STRING"),
            Self::Binary => f.write_str("BINARY"),
            Self::Date => f.write_str("DATE"),
            Self::Time => f.write_str("TIME"),
            Self::Timestamp(SecondFraction::Micros) => f.write_str("TIMESTAMP"),
            Self::Timestamp(SecondFraction::Millis) => f.write_str("TIMESTAMP(3)"),
            Self::TimestampTz(SecondFraction::Micros) => f.write_str("TIMESTAMP WITH TIME ZONE"),
            Self::TimestampTz(SecondFraction::Millis) => f.write_str("TIMESTAMP(3) WITH TIME ZONE"),
            Self::Uuid => f.write_str("UUID"),
            Self::Array(element) => write!(f, "ARRAY<{element}>"),
            Self::Map(value) => write!(f, "MAP<STRING, {value}>"),
            Self::Struct(columns) => {
                f.write_str("STRUCT<")?;
                for (index, column) in columns.iter().enumerate() {
                    if index > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{column}")?;
                }
                f.write_str(">")
            }
        }
    }
}

/// Quotes a name unless it is a plain SQL word.
fn write_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if plain { f.write_str(name) } else { write!(f, "\"{}\"", name.replace('"', "\"\"")) }
}
