//! Finding, for rows whose columns are known, the style that gives their bytes back; keeping the bytes where none does (DESIGN 4.1).
//! Nothing is taken on trust: a style is given to a row only after the row was written in it and came out the same.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BinaryBuilder, DictionaryArray, RecordBatch, StringArray, UInt16Array,
};
use arrow::datatypes::UInt16Type;

use super::bound::BoundColumn;
use super::detect::detect;
use super::program::Program;
use super::sink::RowBuffer;
use super::style::JsonStyle;
use crate::schema::TableSchema;

/// How many styles one call gives out. Regular producers need one or two each; rows beyond keep their bytes.
pub const MAX_STYLES: usize = 64;

/// How many styles are tried on a row before its own is read off its bytes.
const RECENT_STYLES: usize = 3;

/// The `_value_style` and `_value_raw` columns of a batch: each row has one of the two (neither in a topic without a schema).
#[derive(Debug, Clone)]
pub struct SealedValues {
    /// `Dictionary<UInt16, Utf8>`, nullable.
    pub style: ArrayRef,
    /// The bytes of the rows no style gives back, or of all of them when asked for.
    pub raw: BinaryArray,
}

impl SealedValues {
    /// Rows that keep their bytes.
    pub fn raw_rows(&self) -> usize {
        self.raw.len() - self.raw.null_count()
    }
}

/// Finds a style for each row. `columns` are the user's columns as decoded from `values`. With `keep_raw_always` every row keeps its bytes.
///
/// # Panics
/// When `columns` is not of the schema or not as long as `values`.
pub fn seal_values(
    schema: &TableSchema,
    columns: &RecordBatch,
    values: &[&[u8]],
    keep_raw_always: bool,
) -> SealedValues {
    assert_eq!(columns.num_rows(), values.len(), "one value per decoded row");
    let styles = if schema.is_raw() || keep_raw_always {
        StyledRows { keys: vec![None; values.len()], texts: Vec::new() }
    } else {
        style_rows(schema, columns, values)
    };
    let mut raw = BinaryBuilder::new();
    for (value, key) in values.iter().zip(&styles.keys) {
        match key {
            None if !schema.is_raw() => raw.append_value(value),
            _ => raw.append_null(),
        }
    }
    let texts: StringArray = styles.texts.iter().map(Some).collect();
    let style = DictionaryArray::<UInt16Type>::try_new(UInt16Array::from(styles.keys), Arc::new(texts))
        .expect("keys are indexes of the texts");
    SealedValues { style: Arc::new(style), raw: raw.finish() }
}

struct StyledRows {
    keys: Vec<Option<u16>>,
    texts: Vec<String>,
}

/// A style given out, ready to write.
struct Entry {
    text: String,
    program: Program,
}

struct Sealer<'a> {
    schema: &'a TableSchema,
    columns: Vec<BoundColumn>,
    slots: Vec<Option<usize>>,
    entries: Vec<Entry>,
    /// The ways of writing that were seen, each as narrow as the rows so far make it; the last used is last.
    families: Vec<JsonStyle>,
    scratch: RowBuffer,
    /// A row found no room for its style.
    overflowed: bool,
}

fn style_rows(schema: &TableSchema, batch: &RecordBatch, values: &[&[u8]]) -> StyledRows {
    let columns: Option<Vec<_>> = schema
        .columns()
        .iter()
        .zip(batch.columns())
        .map(|(column, array)| BoundColumn::bind(array, &column.data_type))
        .collect();
    let mut sealer = Sealer {
        schema,
        columns: columns.expect("the batch has the schema's columns"),
        slots: (0..schema.columns().len()).map(Some).collect(),
        entries: Vec::new(),
        families: Vec::new(),
        scratch: RowBuffer::default(),
        overflowed: false,
    };
    let mut keys = sealer.pass(values);
    if sealer.overflowed {
        // Wide sparse rows: each new key made a new style of the same family. Begin again with what the families have become.
        sealer.restart();
        keys = sealer.pass(values);
    }
    StyledRows { keys, texts: sealer.entries.into_iter().map(|entry| entry.text).collect() }
}

impl Sealer<'_> {
    fn pass(&mut self, values: &[&[u8]]) -> Vec<Option<u16>> {
        let mut keys = Vec::with_capacity(values.len());
        // The last three styles used, latest first: producers that take turns need no search.
        let mut recent: Vec<usize> = Vec::with_capacity(RECENT_STYLES + 1);
        for (row, value) in values.iter().enumerate() {
            let place = recent.iter().position(|entry| self.gives_back(*entry, row, value));
            let found = match place {
                Some(place) => Some(recent[place]),
                None => self.search(row, value),
            };
            if let Some(entry) = found
                && place != Some(0)
            {
                recent.retain(|other| *other != entry);
                recent.insert(0, entry);
                recent.truncate(RECENT_STYLES);
            }
            keys.push(found.and_then(|entry| u16::try_from(entry).ok()));
        }
        keys
    }

    fn restart(&mut self) {
        self.entries.clear();
        for family in &self.families {
            let text = family.to_text(self.schema);
            if !self.entries.iter().any(|entry| entry.text == text)
                && let Ok(program) = Program::compile(family, self.schema.columns(), &self.slots)
            {
                self.entries.push(Entry { text, program });
            }
        }
    }

    fn gives_back(&mut self, entry: usize, row: usize, value: &[u8]) -> bool {
        self.scratch.clear();
        self.entries[entry].program.write(&self.columns, row, &mut self.scratch) && self.scratch.as_slice() == value
    }

    /// Reads the row's own style, and fits it into a family or founds one.
    fn search(&mut self, row: usize, value: &[u8]) -> Option<usize> {
        let own = detect(self.schema.columns(), value)?;
        for index in (0..self.families.len()).rev() {
            let Some(unified) = self.families[index].unify(&own) else { continue };
            if let Some(entry) = self.try_style(&unified, row, value) {
                self.families[index] = unified;
                // The family of the last row is looked at first.
                let last = self.families.len() - 1;
                self.families.swap(index, last);
                return Some(entry);
            }
            if self.entries.len() == MAX_STYLES {
                self.families[index] = unified;
                self.overflowed = true;
                return None;
            }
        }
        let entry = self.try_style(&own, row, value)?;
        self.families.push(own);
        Some(entry)
    }

    /// The entry of a style, if it gives the row back; added if there is room.
    fn try_style(&mut self, style: &JsonStyle, row: usize, value: &[u8]) -> Option<usize> {
        let text = style.to_text(self.schema);
        if let Some(entry) = self.entries.iter().position(|entry| entry.text == text) {
            return self.gives_back(entry, row, value).then_some(entry);
        }
        if self.entries.len() == MAX_STYLES {
            return None;
        }
        let program = Program::compile(style, self.schema.columns(), &self.slots).ok()?;
        self.entries.push(Entry { text, program });
        let entry = self.entries.len() - 1;
        if self.gives_back(entry, row, value) {
            return Some(entry);
        }
        self.entries.pop();
        None
    }
}
