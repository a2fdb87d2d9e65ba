//! What can go wrong with a segment.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use weir_model::{Offset, OffsetRange};

/// Why a segment could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The act, as in "cannot open".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Bytes that are not what was written. The file is left as it is.
    #[error("{}", describe_damage(file, *block, column.as_deref(), what))]
    Corrupt {
        /// The damaged file.
        file: PathBuf,
        /// Which block of an `.arrow` file.
        block: Option<usize>,
        /// Which column of the block.
        column: Option<String>,
        /// What was found, and what was expected.
        what: String,
    },
    /// Written by a later Weir.
    #[error("segment {} has format version {found}, this build reads up to {supported}; start a newer weir on this directory", file.display())]
    UnsupportedVersion {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The newest this build knows.
        supported: u32,
    },
    /// Rows that are not of the segment's schema.
    #[error("rows do not fit the segment: column {index} must be {expected}, found {found}")]
    SchemaMismatch {
        /// Position in the log schema.
        index: usize,
        /// Name and type of the schema.
        expected: String,
        /// Name and type of the rows.
        found: String,
    },
    /// A type that segments do not store.
    #[error("column {column} has type {data_type}, which segments do not store")]
    UnsupportedType {
        /// The column.
        column: String,
        /// Its type.
        data_type: DataType,
    },
    /// LOG-4: offsets rise strictly.
    #[error("LOG-4: offset {found} does not follow {previous} in one segment")]
    OffsetsNotRising {
        /// The largest so far.
        previous: i64,
        /// The one that came.
        found: i64,
    },
    /// A stretch of the log that leaves some of the segment's records outside.
    #[error("a segment that covers {}..{} cannot hold offset {offset}", covered.start, covered.end)]
    OutsideCover {
        /// The stretch.
        covered: OffsetRange,
        /// A record outside of it.
        offset: i64,
    },
    /// Kafka's index holds positions and relative offsets in 31 bits.
    #[error("segment from offset {base_offset} is full; start another one for the batch at offset {offset}")]
    Full {
        /// First offset of the segment.
        base_offset: Offset,
        /// First offset of the batch that does not fit.
        offset: i64,
    },
    /// Nothing was appended and no stretch was named.
    #[error("a segment needs at least one record, or a stretch of the log to stand for")]
    Empty,
    /// A block that is not there.
    #[error("segment {} has {count} blocks, there is no block {index}", file.display())]
    NoSuchBlock {
        /// The file.
        file: PathBuf,
        /// What was asked for.
        index: usize,
        /// Number of blocks.
        count: usize,
    },
    /// A column that is not there.
    #[error("segment {} has {count} columns, there is no column {index}", file.display())]
    NoSuchColumn {
        /// The file.
        file: PathBuf,
        /// What was asked for.
        index: usize,
        /// Number of columns.
        count: usize,
    },
    /// A dictionary column in a stream of one record batch message.
    #[error("column {column} cannot be part of a raw Arrow stream; read it decoded")]
    NotStreamable {
        /// The column.
        column: String,
    },
    /// Arrow refused to encode rows.
    #[error("cannot encode rows as Arrow: {0}")]
    Encode(#[from] ArrowError),
}

impl SegmentError {
    /// Whether the disk, or the quota on it, is full.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => matches!(source.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)),
            _ => false,
        }
    }

    /// Whether stored bytes were found damaged.
    pub fn is_corrupt(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn corrupt(file: &Path, what: impl Into<String>) -> Self {
        Self::Corrupt { file: file.to_owned(), block: None, column: None, what: what.into() }
    }

    pub(super) fn corrupt_block(file: &Path, block: usize, column: Option<&str>, what: impl Into<String>) -> Self {
        Self::Corrupt {
            file: file.to_owned(),
            block: Some(block),
            column: column.map(str::to_owned),
            what: what.into(),
        }
    }
}

fn describe_damage(file: &Path, block: Option<usize>, column: Option<&str>, what: &str) -> String {
    let mut text = format!("segment {} is damaged", file.display());
    if let Some(block) = block {
        let _ = write!(text, ", block {block}");
    }
    if let Some(column) = column {
        let _ = write!(text, ", column {column}");
    }
    let _ = write!(text, ": {what}; restore the file from a copy, then run `weir doctor`");
    text
}
