//! Table schemas: declared as SQL columns, kept as SQL text, used as Arrow.

mod parse;
mod types;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use types::{Column, ColumnType, Element, SecondFraction};

/// Names of the system columns of the log schema, in their order; the user's columns follow them.
pub mod log_column {
    /// Int64, never null: the record's offset.
    pub const OFFSET: &str = "_offset";
    /// Int64, never null: milliseconds since the epoch, -1 for none.
    pub const TIMESTAMP: &str = "_timestamp";
    /// Int8, never null: 0 create time, 1 log append time.
    pub const TIMESTAMP_TYPE: &str = "_timestamp_type";
    /// Binary: the record's key.
    pub const KEY: &str = "_key";
    /// Binary: count varint and headers as on the wire; null when there are none.
    pub const HEADERS: &str = "_headers";
    /// Utf8 (or a dictionary of it): the JSON style that gives the value's bytes back; null when the raw bytes are kept.
    pub const VALUE_STYLE: &str = "_value_style";
    /// Binary: the value's own bytes, where no style gives them back.
    pub const VALUE_RAW: &str = "_value_raw";
    /// The one user column of a topic without a schema.
    pub const VALUE: &str = "value";
}

/// How the bytes of a topic's values are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueFormat {
    /// Opaque bytes.
    Raw,
    /// One JSON object per value.
    Json,
}

/// Why a `weir.schema` text was refused. Every message says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// No column at all.
    #[error("the schema names no column: write columns such as `id BIGINT NOT NULL, item STRING`")]
    Empty,
    /// A type that does not exist here.
    #[error("column {column} has unknown type {found}:{suggestion} use one of {known}", known = types::KNOWN_TYPES)]
    UnknownType {
        /// The column, with its path when nested.
        column: String,
        /// The word found in place of a type.
        found: String,
        /// ` did you mean X?`, or empty.
        suggestion: String,
    },
    /// Two columns with one name, compared without case.
    #[error("column {name} is declared twice (names are compared without case): rename one of them")]
    DuplicateColumn {
        /// The second spelling.
        name: String,
    },
    /// A name that belongs to the system.
    #[error("column {name} starts with `_`, which is kept for system columns: write a name such as `{instead}`")]
    ReservedName {
        /// The name found.
        name: String,
        /// The name without its leading underscores.
        instead: String,
    },
    /// A name that the lake, or a reader's list of columns, could not tell apart from something else.
    #[error("column {name:?} has one of `. , ; =` in its name: write letters, digits and `_`")]
    NameCharacter {
        /// The name found.
        name: String,
    },
    /// An empty name in quotes.
    #[error("a column has an empty name: write a name before its type")]
    EmptyName,
    /// Precision or scale out of range.
    #[error(
        "column {column}: DECIMAL takes a precision of 1 to 38 and a scale of 0 to that precision: write for example DECIMAL(10,2)"
    )]
    Decimal {
        /// The column.
        column: String,
    },
    /// A fraction of a second we do not keep.
    #[error(
        "column {column}: {type_name} takes (3) for milliseconds or (6) for microseconds: write {type_name}(6) or plain {type_name}"
    )]
    SecondFraction {
        /// The column.
        column: String,
        /// TIMESTAMP or its zoned variant.
        type_name: String,
    },
    /// A map whose key is not a string.
    #[error("column {column}: a MAP key must be STRING, since JSON object keys are strings: write MAP<STRING, ...>")]
    MapKey {
        /// The column.
        column: String,
    },
    /// A length or precision where none is kept.
    #[error("column {column}: {type_name} takes no parameter here: write plain {type_name}")]
    Parameter {
        /// The column.
        column: String,
        /// The type.
        type_name: String,
    },
    /// SQL after the type that this grammar does not have.
    #[error("column {column}: {clause} is not part of weir.schema: {instead}")]
    Clause {
        /// The column.
        column: String,
        /// The clause's first word.
        clause: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// Anything else that does not parse.
    #[error(
        "the schema is not readable at {found}: expected {expected}, as in `id BIGINT NOT NULL, tags ARRAY<STRING>`"
    )]
    Syntax {
        /// The token found.
        found: String,
        /// What would have been right.
        expected: &'static str,
    },
    /// A statement where only its columns belong.
    #[error("write only the columns, without CREATE TABLE: for example `id BIGINT NOT NULL, item STRING`")]
    Statement,
    /// Types nested too deep.
    #[error("column {column} nests types more than {limit} deep: flatten it")]
    TooDeep {
        /// The column.
        column: String,
        /// The limit.
        limit: usize,
    },
    /// Too many columns.
    #[error("the schema has more than {limit} columns: group some of them into a STRUCT or a MAP")]
    TooManyColumns {
        /// The limit.
        limit: usize,
    },
}

/// The columns of a table, or the absence of a schema ([`TableSchema::raw`]). Cheap to clone; equal when the SQL text is.
#[derive(Clone)]
pub struct TableSchema(Arc<Inner>);

struct Inner {
    columns: Vec<Column>,
    arrow: SchemaRef,
    log: SchemaRef,
    raw: bool,
}

impl TableSchema {
    /// Reads SQL columns: `id BIGINT NOT NULL, item STRING, amount DECIMAL(10,2)`.
    ///
    /// # Errors
    /// [`SchemaError`], each variant naming the column and what to write instead.
    pub fn parse_sql(sql: &str) -> Result<Self, SchemaError> {
        Ok(Self::from_columns(parse::parse_columns(sql)?, false))
    }

    /// The schema of a topic without one: a single nullable BINARY column `value`, which is the record's value.
    pub fn raw() -> Self {
        let value = Column { name: log_column::VALUE.to_owned(), data_type: ColumnType::Binary, nullable: true };
        Self::from_columns(vec![value], true)
    }

    fn from_columns(columns: Vec<Column>, raw: bool) -> Self {
        let user: Vec<Field> = columns.iter().map(Column::to_arrow).collect();
        let mut log = system_fields();
        log.extend(user.iter().cloned());
        Self(Arc::new(Inner { columns, arrow: Arc::new(Schema::new(user)), log: Arc::new(Schema::new(log)), raw }))
    }

    /// The SQL text that [`TableSchema::parse_sql`] reads back as an equal schema.
    pub fn to_sql(&self) -> String {
        let columns: Vec<String> = self.0.columns.iter().map(Column::to_string).collect();
        columns.join(", ")
    }

    /// The user's columns in declared order.
    pub fn columns(&self) -> &[Column] {
        &self.0.columns
    }

    /// The user's columns as Arrow sees them.
    pub fn arrow(&self) -> &SchemaRef {
        &self.0.arrow
    }

    /// The system columns of [`log_column`], then the user's.
    pub fn log_schema(&self) -> SchemaRef {
        Arc::clone(&self.0.log)
    }

    /// True for a topic without a schema.
    pub fn is_raw(&self) -> bool {
        self.0.raw
    }

    /// The position of a column among the user's columns; names are compared exactly.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.0.columns.iter().position(|column| column.name == name)
    }
}

/// The log schema's columns before the user's, see [`log_column`].
fn system_fields() -> Vec<Field> {
    vec![
        Field::new(log_column::OFFSET, DataType::Int64, false),
        Field::new(log_column::TIMESTAMP, DataType::Int64, false),
        Field::new(log_column::TIMESTAMP_TYPE, DataType::Int8, false),
        Field::new(log_column::KEY, DataType::Binary, true),
        Field::new(log_column::HEADERS, DataType::Binary, true),
        Field::new(log_column::VALUE_STYLE, DataType::Utf8, true),
        Field::new(log_column::VALUE_RAW, DataType::Binary, true),
    ]
}

impl PartialEq for TableSchema {
    fn eq(&self, other: &Self) -> bool {
        self.0.raw == other.0.raw && self.0.columns == other.0.columns
    }
}

impl Eq for TableSchema {}

impl fmt::Debug for TableSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.raw { f.write_str("TableSchema(raw)") } else { write!(f, "TableSchema({})", self.to_sql()) }
    }
}

/// Persisted as its SQL text; a topic without a schema as `null`.
impl Serialize for TableSchema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.raw { serializer.serialize_none() } else { serializer.serialize_some(&self.to_sql()) }
    }
}

impl<'de> Deserialize<'de> for TableSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Option::<String>::deserialize(deserializer)? {
            None => Ok(Self::raw()),
            Some(sql) => Self::parse_sql(&sql).map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests;
