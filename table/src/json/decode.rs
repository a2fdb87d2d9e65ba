//! JSON rows to Arrow, one row at a time: a bad row is named and leaves nothing behind, the good ones go on.
//!
//! arrow-json was tried first: it reports a bad value only at flush and loses the whole batch with it, reads two objects in one value as
//! two rows, and lets the last duplicate key win.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::Fields;

use super::column::ColumnBuffer;
use super::error::{Checked, Fault, RowError, excerpt};
use super::scan::Scanner;
use crate::schema::{Column, TableSchema};

/// How many bad rows [`decode_batch`] names before it stops looking.
pub const MAX_ROW_ERRORS: usize = 100;

/// Reads JSON objects into the columns of a schema.
pub struct JsonDecoder {
    schema: TableSchema,
    reader: ObjectReader,
    rows: usize,
}

impl JsonDecoder {
    /// A decoder without rows. For [`TableSchema::raw`] use [`decode_batch`]: there is no JSON to read.
    pub fn new(schema: &TableSchema) -> Self {
        Self { schema: schema.clone(), reader: ObjectReader::new(schema.columns()), rows: 0 }
    }

    /// Adds one row: exactly one JSON object. Members that no column names are checked and left out.
    ///
    /// # Errors
    /// [`RowError`] with [`JsonDecoder::len`] as its row; the decoder is as it was before.
    pub fn push(&mut self, value: &[u8]) -> Result<(), RowError> {
        match self.read(value) {
            Ok(()) => {
                self.rows += 1;
                Ok(())
            }
            Err(fault) => {
                self.reader.truncate(self.rows);
                Err(fault.at_row(self.rows))
            }
        }
    }

    #[inline]
    fn read(&mut self, value: &[u8]) -> Checked<()> {
        if simdutf8::basic::from_utf8(value).is_err() {
            return Err(Fault::new("a JSON object in UTF-8", not_utf8(value)));
        }
        let mut scanner = Scanner::new(value);
        scanner.skip_ws();
        if scanner.peek() != b'{' {
            return Err(scanner.malformed("a JSON object"));
        }
        self.reader.read(&mut scanner)?;
        scanner.end()
    }

    /// Decodes a whole batch as [`decode_batch`] does, without making a decoder for each: what a produce path with small batches wants.
    /// Rows pushed before are forgotten.
    ///
    /// # Errors
    /// The rows that do not fit, in order, each with its index among `values`. The decoder is then empty.
    pub fn decode<'a>(&mut self, values: impl Iterator<Item = Option<&'a [u8]>>) -> Result<RecordBatch, Vec<RowError>> {
        self.clear();
        let mut errors = Vec::new();
        for (row, value) in values.enumerate() {
            let pushed = match value {
                Some(value) => self.push(value),
                None => Err(Fault::new("a JSON object", "a null value").at_row(row)),
            };
            if let Err(error) = pushed {
                errors.push(RowError { row, ..error });
                if errors.len() == MAX_ROW_ERRORS {
                    break;
                }
            }
        }
        if errors.is_empty() {
            return Ok(self.finish());
        }
        self.clear();
        Err(errors)
    }

    fn clear(&mut self) {
        self.reader.truncate(0);
        self.rows = 0;
    }

    /// Rows so far.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// True before the first row.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The rows so far as a batch of the user's columns; the decoder starts again at row 0.
    pub fn finish(&mut self) -> RecordBatch {
        let schema = self.schema.arrow();
        let arrays = self.reader.finish(schema.fields());
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)
            .expect("every column was filled once per row, and nulls were refused where the schema does")
    }
}

#[cold]
fn not_utf8(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) => excerpt(text.as_bytes()),
        Err(error) => {
            let at = error.valid_up_to();
            format!("byte 0x{:02x} at {at}, after `{}`", value[at], excerpt(&value[at.saturating_sub(24)..at]))
        }
    }
}

/// Decodes a whole batch, or names every row that does not fit, [`MAX_ROW_ERRORS`] at most. A null value is such a row, except in a
/// topic without a schema, where it is a null.
///
/// # Errors
/// The rows that do not fit, in order, each with its index among `values`.
pub fn decode_batch<'a>(
    schema: &TableSchema,
    values: impl Iterator<Item = Option<&'a [u8]>>,
) -> Result<RecordBatch, Vec<RowError>> {
    if schema.is_raw() {
        let values: BinaryArray = values.collect();
        let columns: Vec<ArrayRef> = vec![Arc::new(values)];
        return Ok(RecordBatch::try_new(Arc::clone(schema.arrow()), columns).expect("one nullable binary column"));
    }
    JsonDecoder::new(schema).decode(values)
}

/// Reads the members of objects into columns: the row itself, or a STRUCT.
pub(super) struct ObjectReader {
    columns: Vec<NamedColumn>,
    by_name: HashMap<Box<[u8]>, usize>,
    /// For each column, the one that came after it in the last object; the last entry is for the start. Producers write their
    /// fields in one order, so this finds nearly every key by one comparison.
    successors: Vec<usize>,
}

struct NamedColumn {
    name: Box<str>,
    /// False when JSON must escape something in the name; it is then found by its unescaped text only.
    plain: bool,
    buffer: ColumnBuffer,
}

impl ObjectReader {
    pub fn new(columns: &[Column]) -> Self {
        let named = columns.iter().map(|column| NamedColumn {
            name: column.name.as_str().into(),
            plain: !column.name.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\'),
            buffer: ColumnBuffer::new(&column.data_type, column.nullable),
        });
        Self {
            columns: named.collect(),
            by_name: columns.iter().enumerate().map(|(index, column)| (column.name.as_bytes().into(), index)).collect(),
            successors: (1..=columns.len()).chain([0]).collect(),
        }
    }

    /// Reads one object. On error the columns may hold part of it, until they are cut back.
    pub fn read(&mut self, scanner: &mut Scanner<'_>) -> Checked<()> {
        let row = self.row_count();
        let mut previous = self.columns.len();
        let mut found = 0;
        scanner.expect(b'{', "a JSON object")?;
        scanner.skip_ws();
        if !scanner.eat(b'}') {
            loop {
                scanner.skip_ws();
                let column = self.key(scanner, previous)?;
                scanner.skip_ws();
                scanner.expect(b':', "`:` after a key")?;
                scanner.skip_ws();
                match column {
                    Some(index) => {
                        let NamedColumn { name, buffer, .. } = &mut self.columns[index];
                        if buffer.len() != row {
                            return Err(Fault::new("each key once", "the key twice").within(name));
                        }
                        if let Err(fault) = buffer.read(scanner) {
                            return Err(fault.within(name));
                        }
                        found += 1;
                        previous = index;
                    }
                    None => scanner.skip_value()?,
                }
                scanner.skip_ws();
                if scanner.eat(b',') {
                    continue;
                }
                scanner.expect(b'}', "`,` or `}`")?;
                break;
            }
        }
        if found < self.columns.len() {
            self.fill_absent(row)?;
        }
        Ok(())
    }

    /// Objects read so far. Between objects every column has the same length.
    fn row_count(&self) -> usize {
        self.columns.first().map_or(0, |column| column.buffer.len())
    }

    /// The column a key names, if any; the scanner is left after the key.
    #[inline(always)]
    fn key(&mut self, scanner: &mut Scanner<'_>, previous: usize) -> Checked<Option<usize>> {
        let expected = self.successors[previous];
        if let Some(column) = self.columns.get(expected)
            && column.plain
            && scanner.eat_plain_key(column.name.as_bytes())
        {
            return Ok(Some(expected));
        }
        self.key_by_name(scanner, previous)
    }

    #[inline(never)]
    fn key_by_name(&mut self, scanner: &mut Scanner<'_>, previous: usize) -> Checked<Option<usize>> {
        let mut scratch = Vec::new();
        let start = scanner.position();
        let key = match scanner.peek() {
            b'"' => match scanner.text(&mut scratch) {
                Ok(key) => key,
                // A key that is no text (half a surrogate pair) is still a key, of a member no column names.
                Err(_) => {
                    scanner.rewind(start);
                    scanner.skip_string()?;
                    return Ok(None);
                }
            },
            _ => return Err(scanner.malformed("a key in quotes")),
        };
        let found = self.by_name.get(key).copied();
        if let Some(index) = found {
            self.successors[previous] = index;
        }
        Ok(found)
    }

    fn fill_absent(&mut self, row: usize) -> Checked<()> {
        for NamedColumn { name, buffer, .. } in &mut self.columns {
            if buffer.len() == row {
                buffer.append_null("nothing: the key is absent").map_err(|fault| fault.within(name))?;
            }
        }
        Ok(())
    }

    pub fn columns_mut(&mut self) -> impl Iterator<Item = &mut ColumnBuffer> {
        self.columns.iter_mut().map(|column| &mut column.buffer)
    }

    /// Cuts every column back to its first `len` values.
    pub fn truncate(&mut self, len: usize) {
        for column in self.columns_mut() {
            column.truncate(len);
        }
    }

    pub fn finish(&mut self, fields: &Fields) -> Vec<ArrayRef> {
        self.columns.iter_mut().zip(fields).map(|(column, field)| column.buffer.finish(field.data_type())).collect()
    }
}
