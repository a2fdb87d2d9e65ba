//! Segments: immutable, sealed files of one partition.
//!
//! Two kinds. [`log`] keeps Kafka batches as they came, with Kafka's own index files beside them; [`arrow`] keeps rows in
//! columns, as Arrow IPC files. `FORMAT.md` beside this file draws both.
//!
//! A segment appears whole or not at all: it is written under a `.tmp` name, synced, renamed, and its directory synced. So a
//! `.tmp` file found at start is rubbish ([`remove_temporary_files`]), and a file named by a manifest is complete. What a
//! manifest keeps of a segment is its [`SegmentMeta`]; the checksums in there are the root of all others, so a file that was
//! swapped, cut or damaged does not pass for the one that was sealed.
//!
//! Reads are plain buffered `pread`: a segment can be shared by any number of threads, and the page cache serves `sendfile`.

pub mod arrow;
mod checksum;
mod error;
mod file;
pub mod log;
mod name;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_model::{LeaderEpoch, Offset, OffsetRange};

pub use self::arrow::{
    ArrowCompression, ArrowSegment, ArrowSegmentInfo, ArrowSegmentWriter, BlockInfo, BlockRead, ColumnStats,
    IpcStreamBytes, StatValue, ipc_stream, ipc_stream_with,
};
pub use self::error::SegmentError;
pub use self::file::SegmentFileWriter;
pub use self::log::{LogBatches, LogRead, LogSegment, LogSegmentWriter};
pub use self::name::SegmentName;

/// How the records of a segment are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SegmentKind {
    /// Kafka batches as they came, `.log`.
    Log,
    /// Columns, `.arrow`.
    Arrow,
    /// Kafka batches as they came, `.log`, of transactions that may be open or aborted, and control batches: what a long
    /// transaction kept from being sealed, set aside until it is decided.
    Undecided,
}

/// What a manifest keeps of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentMeta {
    /// How the records are stored.
    pub kind: SegmentKind,
    /// File name inside the partition's directory.
    pub file: String,
    /// How often its rows were merged ([`SegmentName`]). Manifests from before there was merging do not have it.
    #[serde(default)]
    pub generation: u32,
    /// The stretch of the log this segment stands for. Wider than its records where offsets have gaps.
    pub range: OffsetRange,
    /// Size of the file, sidecars not counted.
    pub size_bytes: u64,
    /// Smallest timestamp, -1 when no record has one. For `.log` the smallest of the batches' base timestamps.
    pub min_timestamp: i64,
    /// Largest timestamp, -1 when no record has one.
    pub max_timestamp: i64,
    /// Number of records.
    pub rows: u64,
    /// When the segment was sealed.
    pub created_ms: i64,
    /// Which schema of the table wrote it; 0 for `.log`.
    pub schema_id: u32,
    /// `.log`: CRC-32C of the whole file. `.arrow`: CRC-32C of the footer, which holds the others.
    pub digest: u32,
    /// `.log`: CRC-32C of `.index` followed by `.timeindex`. `.arrow`: 0.
    pub index_digest: u32,
}

impl SegmentMeta {
    /// What its file is named after.
    pub fn name(&self) -> SegmentName {
        SegmentName { base_offset: self.range.start, generation: self.generation }
    }
}

/// The first record at or after a timestamp (S-60).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampMatch {
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp.
    pub timestamp: i64,
    /// The epoch it was written under; columns do not keep it.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// Deletes what interrupted writers left in `dir`. Only while no writer works there. Answers how many files went.
///
/// # Errors
/// [`SegmentError::Io`] when the directory cannot be read or a file not removed.
pub fn remove_temporary_files(dir: &Path) -> Result<usize, SegmentError> {
    let mut removed = 0;
    for entry in std::fs::read_dir(dir).map_err(SegmentError::io("list", dir))? {
        let path = entry.map_err(SegmentError::io("list", dir))?.path();
        if path.extension().is_some_and(|extension| extension == file::TEMPORARY) {
            std::fs::remove_file(&path).map_err(SegmentError::io("remove", &path))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Deletes the files of one segment; those already gone are fine. The caller has dropped it from the manifest before.
///
/// # Errors
/// [`SegmentError::Io`] when a file cannot be removed.
pub fn remove_segment(dir: &Path, meta: &SegmentMeta) -> Result<(), SegmentError> {
    remove_files(&dir.join(&meta.file), meta.kind)
}

/// Deletes a segment's file and its sidecars.
fn remove_files(path: &Path, kind: SegmentKind) -> Result<(), SegmentError> {
    for path in files_of(path, kind) {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(SegmentError::io("remove", &path)(error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// A segment file that no manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnnamedFile {
    pub(crate) path: PathBuf,
    pub(crate) name: SegmentName,
    pub(crate) kind: SegmentKind,
}

impl UnnamedFile {
    /// The stretch of the log it has, by what the file itself says: of a `.log` from its name to its last batch.
    ///
    /// # Errors
    /// [`SegmentError::Corrupt`] when it is not a whole segment, [`SegmentError::Io`].
    pub(crate) fn range(&self) -> Result<OffsetRange, SegmentError> {
        match self.kind {
            SegmentKind::Log | SegmentKind::Undecided => log::range_of_file(&self.path, self.name.base_offset),
            SegmentKind::Arrow => arrow::range_of_file(&self.path),
        }
    }

    /// Deletes it and its sidecars.
    ///
    /// # Errors
    /// [`SegmentError::Io`] when a file cannot be removed.
    pub(crate) fn remove(&self) -> Result<(), SegmentError> {
        remove_files(&self.path, self.kind)
    }
}

/// The segment files in `dir` that are not among `named`, by name. Sidecars go with their segment and are left out.
///
/// # Errors
/// [`SegmentError::Io`] when the directory cannot be read.
pub(crate) fn unnamed_files(dir: &Path, named: &BTreeSet<&str>) -> Result<Vec<UnnamedFile>, SegmentError> {
    let mut unnamed = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(SegmentError::io("list", dir))? {
        let path = entry.map_err(SegmentError::io("list", dir))?.path();
        let Some(file) = path.file_name().and_then(|file| file.to_str()).filter(|file| !named.contains(file)) else {
            continue;
        };
        let (name, kind) = match SegmentName::parse(file) {
            Some((name, log::LOG)) => (name, SegmentKind::Log),
            Some((name, arrow::ARROW)) => (name, SegmentKind::Arrow),
            Some(_) | None => continue,
        };
        unnamed.push(UnnamedFile { path, name, kind });
    }
    unnamed.sort_by_key(|file| file.name);
    Ok(unnamed)
}

/// The files of one segment, the one with its records last. A small `.log` has no index files.
pub(crate) fn segment_files(dir: &Path, meta: &SegmentMeta) -> Vec<PathBuf> {
    files_of(&dir.join(&meta.file), meta.kind)
}

fn files_of(path: &Path, kind: SegmentKind) -> Vec<PathBuf> {
    let sidecars: &[&str] = match kind {
        SegmentKind::Log | SegmentKind::Undecided => &[log::INDEX, log::TIME_INDEX],
        SegmentKind::Arrow => &[],
    };
    sidecars.iter().map(|extension| path.with_extension(extension)).chain([path.to_owned()]).collect()
}

/// Makes renames in `dir` durable.
fn sync_dir(dir: &Path) -> Result<(), SegmentError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(SegmentError::io("sync directory", dir))
}
