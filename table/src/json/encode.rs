//! Rows of the log schema back to record values.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use super::bound::BoundColumn;
use super::program::Program;
use super::project::copy_members;
use super::sink::RowBuffer;
use super::style::JsonStyle;
use crate::schema::{TableSchema, log_column};

/// Compiled styles kept from batch to batch.
const MAX_PROGRAMS: usize = 256;

/// Why a row could not be written. None of these is the reader's fault: the batch is not what the schema says, or is damaged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A column the rows need is not in the batch.
    #[error(
        "the batch has no column {column}: read it together with _value_style, _value_raw and the columns asked for"
    )]
    MissingColumn {
        /// The column.
        column: String,
    },
    /// A column is not of its Arrow type.
    #[error("column {column} is {found} in the batch where the schema needs {expected}")]
    ColumnType {
        /// The column.
        column: String,
        /// The schema's type.
        expected: String,
        /// The batch's type.
        found: String,
    },
    /// A row with neither style nor bytes.
    #[error("row {row} has neither a value style nor its raw bytes")]
    NoValue {
        /// The row in the batch.
        row: usize,
    },
    /// A style this version cannot read, or of another schema.
    #[error("value style `{style}` cannot be used: {reason}")]
    Style {
        /// The style's text.
        style: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Values that their style cannot spell.
    #[error("the values of row {row} do not fit its style `{style}`")]
    Value {
        /// The row in the batch.
        row: usize,
        /// The style's text.
        style: String,
    },
    /// Raw bytes that are no JSON object, so no field can be chosen from them.
    #[error("the raw bytes of row {row} are not a JSON object: expected {expected}, found {found}")]
    Raw {
        /// The row in the batch.
        row: usize,
        /// What belongs there.
        expected: String,
        /// What stands there.
        found: String,
    },
}

/// What [`ValueEncoder::encode`] appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodedValue {
    /// The value's bytes.
    Bytes,
    /// Nothing: the record's value is null. Only topics without a schema have such records.
    Null,
}

/// Writes the values of rows, whole or projected, each in its own style. Keeps the batch of the last call (a few reference counts)
/// so that rows of one batch are cheap; call it batch by batch.
pub struct ValueEncoder {
    schema: TableSchema,
    /// The user columns to write, `None` for all.
    projection: Option<Vec<usize>>,
    /// For each user column, its place among the bound ones.
    slots: Vec<Option<usize>>,
    programs: Vec<(Box<str>, Program)>,
    by_style: HashMap<Box<str>, usize>,
    bound: Option<BoundBatch>,
    row: RowBuffer,
}

struct BoundBatch {
    /// Held so that the arrays cannot be freed and their addresses reused while they are compared.
    batch: RecordBatch,
    raw: Option<BinaryArray>,
    styles: Styles,
    columns: Vec<BoundColumn>,
}

enum Styles {
    /// A topic without schema.
    None,
    /// One index per row into texts, and the program of each text once it was needed.
    Dictionary { keys: Vec<usize>, texts: StringArray, programs: Vec<Option<usize>>, column: ArrayRef },
    /// One text per row; the last one's program is remembered.
    Texts { texts: StringArray, last: Option<usize> },
}

impl ValueEncoder {
    /// An encoder of all columns, or of those at `projection` (indexes of user columns; rows keep their own key order).
    pub fn new(schema: &TableSchema, projection: Option<&[usize]>) -> Self {
        let mut slots: Vec<Option<usize>> = vec![None; schema.columns().len()];
        let all: Vec<usize> = (0..schema.columns().len()).collect();
        let mut used = 0;
        for column in projection.unwrap_or(&all) {
            if let Some(slot @ None) = slots.get_mut(*column) {
                *slot = Some(used);
                used += 1;
            }
        }
        Self {
            schema: schema.clone(),
            projection: projection.map(<[usize]>::to_vec),
            slots,
            programs: Vec::new(),
            by_style: HashMap::new(),
            bound: None,
            row: RowBuffer::default(),
        }
    }

    /// Appends the value of `row` to `out`: its raw bytes where they are kept, otherwise its columns in its style. The batch needs
    /// `_value_style`, `_value_raw` and the columns to be written, by name and in any order.
    ///
    /// # Errors
    /// [`EncodeError`]; `out` is as it was.
    ///
    /// # Panics
    /// When `row` is not one of the batch.
    #[inline]
    pub fn encode(&mut self, batch: &RecordBatch, row: usize, out: &mut Vec<u8>) -> Result<EncodedValue, EncodeError> {
        if !self.bound.as_ref().is_some_and(|bound| same_batch(&bound.batch, batch)) {
            self.bind(batch)?;
        }
        let start = out.len();
        let result = self.encode_bound(row, out);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    #[inline]
    fn encode_bound(&mut self, row: usize, out: &mut Vec<u8>) -> Result<EncodedValue, EncodeError> {
        let bound = self.bound.as_mut().expect("bound by the caller");
        if let Some(raw) = &bound.raw
            && raw.is_valid(row)
        {
            let value = raw.value(row);
            if self.projection.is_none() || self.schema.is_raw() {
                out.extend_from_slice(value);
                return Ok(EncodedValue::Bytes);
            }
            let wanted = |key: &[u8]| {
                let columns = self.schema.columns().iter().zip(&self.slots);
                columns.into_iter().any(|(column, slot)| slot.is_some() && column.name.as_bytes() == key)
            };
            return match copy_members(value, wanted, out) {
                Ok(()) => Ok(EncodedValue::Bytes),
                Err(fault) => Err(EncodeError::Raw { row, expected: fault.expected.into_owned(), found: fault.found }),
            };
        }
        let mut programs = Programs {
            schema: &self.schema,
            slots: &self.slots,
            programs: &mut self.programs,
            by_style: &mut self.by_style,
        };
        let index = match &mut bound.styles {
            Styles::None => return Ok(EncodedValue::Null),
            Styles::Dictionary { keys, texts, programs: known, column } => {
                if column.is_null(row) {
                    return Err(EncodeError::NoValue { row });
                }
                let key = keys[row];
                match known[key] {
                    Some(index) => index,
                    None => *known[key].insert(programs.find(texts.value(key))?),
                }
            }
            Styles::Texts { texts, last } => {
                if texts.is_null(row) {
                    return Err(EncodeError::NoValue { row });
                }
                let text = texts.value(row);
                match last {
                    Some(index) if *programs.programs[*index].0 == *text => *index,
                    _ => *last.insert(programs.find(text)?),
                }
            }
        };
        let (style, program) = &self.programs[index];
        self.row.clear();
        if program.write(&bound.columns, row, &mut self.row) {
            out.extend_from_slice(self.row.as_slice());
            Ok(EncodedValue::Bytes)
        } else {
            Err(EncodeError::Value { row, style: style.to_string() })
        }
    }

    #[inline(never)]
    fn bind(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        self.bound = None;
        if self.programs.len() > MAX_PROGRAMS {
            self.programs.clear();
            self.by_style.clear();
        }
        if self.schema.is_raw() {
            let chosen = self.slots.iter().any(Option::is_some);
            let raw = if chosen { Some(binary(column(batch, log_column::VALUE)?, log_column::VALUE)?) } else { None };
            self.bound = Some(BoundBatch { batch: batch.clone(), raw, styles: Styles::None, columns: Vec::new() });
            return Ok(());
        }
        let raw = binary(column(batch, log_column::VALUE_RAW)?, log_column::VALUE_RAW)?;
        let styles = bind_styles(column(batch, log_column::VALUE_STYLE)?)?;
        let mut columns: Vec<(usize, BoundColumn)> = Vec::new();
        for (user, slot) in self.schema.columns().iter().zip(&self.slots) {
            let Some(slot) = slot else { continue };
            let array = column(batch, &user.name)?;
            let bound = BoundColumn::bind(array, &user.data_type).ok_or_else(|| EncodeError::ColumnType {
                column: user.name.clone(),
                expected: user.data_type.to_arrow().to_string(),
                found: array.data_type().to_string(),
            })?;
            columns.push((*slot, bound));
        }
        columns.sort_by_key(|(slot, _)| *slot);
        let columns = columns.into_iter().map(|(_, bound)| bound).collect();
        let raw = Some(raw).filter(|raw| raw.null_count() < raw.len());
        self.bound = Some(BoundBatch { batch: batch.clone(), raw, styles, columns });
        Ok(())
    }
}

/// The compiled styles, while the bound batch is borrowed apart from them.
struct Programs<'a> {
    schema: &'a TableSchema,
    slots: &'a [Option<usize>],
    programs: &'a mut Vec<(Box<str>, Program)>,
    by_style: &'a mut HashMap<Box<str>, usize>,
}

impl Programs<'_> {
    fn find(&mut self, text: &str) -> Result<usize, EncodeError> {
        if let Some(index) = self.by_style.get(text) {
            return Ok(*index);
        }
        let program = JsonStyle::parse(text, self.schema)
            .and_then(|style| Program::compile(&style, self.schema.columns(), self.slots))
            .map_err(|reason| EncodeError::Style { style: text.to_owned(), reason })?;
        let index = self.programs.len();
        self.programs.push((text.into(), program));
        self.by_style.insert(text.into(), index);
        Ok(index)
    }
}

#[inline]
fn same_batch(left: &RecordBatch, right: &RecordBatch) -> bool {
    left.num_columns() == right.num_columns()
        && Arc::ptr_eq(left.schema_ref(), right.schema_ref())
        && left.columns().iter().zip(right.columns()).all(|(left, right)| Arc::ptr_eq(left, right))
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, EncodeError> {
    batch.column_by_name(name).ok_or_else(|| EncodeError::MissingColumn { column: name.to_owned() })
}

fn binary(array: &ArrayRef, name: &str) -> Result<BinaryArray, EncodeError> {
    array.as_binary_opt().cloned().ok_or_else(|| wrong_type(array, name, "Binary"))
}

fn wrong_type(array: &ArrayRef, name: &str, expected: &str) -> EncodeError {
    EncodeError::ColumnType {
        column: name.to_owned(),
        expected: expected.to_owned(),
        found: array.data_type().to_string(),
    }
}

/// Dictionaries of any key width, or plain text of any offset width (what a Parquet reader makes of it).
fn bind_styles(array: &ArrayRef) -> Result<Styles, EncodeError> {
    let as_text = |array: &ArrayRef| -> Result<StringArray, EncodeError> {
        let wrong = || wrong_type(array, log_column::VALUE_STYLE, "Utf8, or a dictionary of it");
        if !matches!(array.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) {
            return Err(wrong());
        }
        cast(array, &DataType::Utf8).map(|text| text.as_string().clone()).map_err(|_| wrong())
    };
    let Some(dictionary) = array.as_any_dictionary_opt() else {
        return Ok(Styles::Texts { texts: as_text(array)?, last: None });
    };
    let texts = as_text(dictionary.values())?;
    // A dictionary without values has null keys only, which are never looked up.
    let keys = if texts.is_empty() { vec![0; array.len()] } else { dictionary.normalized_keys() };
    let programs = vec![None; texts.len()];
    Ok(Styles::Dictionary { keys, texts, programs, column: Arc::clone(array) })
}
