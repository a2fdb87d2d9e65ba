//! Why a row was refused.

use std::borrow::Cow;

/// A value that is not a row of the table. Its text is one sentence for the producer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("row {row}{}: expected {expected}, found {found}", column_of(.column))]
pub struct RowError {
    /// The row's index in its batch.
    pub row: usize,
    /// The column, with its path when nested (`address.city`); none when the value is not a JSON object at all.
    pub column: Option<String>,
    /// The type, or the piece of JSON, that belongs there.
    pub expected: String,
    /// What stands there, cut to 64 characters.
    pub found: String,
}

fn column_of(column: &Option<String>) -> String {
    column.as_ref().map(|column| format!(", column {column}")).unwrap_or_default()
}

/// A [`RowError`] before its row is known. Boxed, so that the good path returns a pointer.
#[derive(Debug)]
pub(super) struct Fault {
    pub column: Option<String>,
    pub expected: Cow<'static, str>,
    pub found: String,
}

pub(super) type Checked<T> = Result<T, Box<Fault>>;

impl Fault {
    pub(super) fn new(expected: impl Into<Cow<'static, str>>, found: impl Into<String>) -> Box<Self> {
        Box::new(Self { column: None, expected: expected.into(), found: found.into() })
    }

    /// Puts `name` before the path found so far.
    #[cold]
    pub(super) fn within(mut self: Box<Self>, name: &str) -> Box<Self> {
        self.column = Some(match self.column.take() {
            Some(path) => format!("{name}.{path}"),
            None => name.to_owned(),
        });
        self
    }

    pub(super) fn at_row(self, row: usize) -> RowError {
        RowError { row, column: self.column, expected: self.expected.into_owned(), found: self.found }
    }
}

/// Text for a message: at most 64 characters, with an ellipsis when there was more.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    const LIMIT: usize = 64;
    // Four bytes a character at most: no need to look at a megabyte to quote the start of it.
    let window = &bytes[..bytes.len().min(LIMIT * 4 + 4)];
    let text = String::from_utf8_lossy(window);
    match text.char_indices().nth(LIMIT) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text.into_owned(),
    }
}
