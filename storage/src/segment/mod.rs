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

/// How the records of a segment are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SegmentKind {
    /// Kafka batches as they came, `.log`.
    Log,
    /// Columns, `.arrow`.
    Arrow,
}

/// What a manifest keeps of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentMeta {
    /// How the records are stored.
    pub kind: SegmentKind,
    /// File name inside the partition's directory.
    pub file: String,
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
    for path in segment_files(dir, meta) {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(SegmentError::io("remove", &path)(error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// The files of one segment, the one with its records last.
pub(crate) fn segment_files(dir: &Path, meta: &SegmentMeta) -> Vec<PathBuf> {
    let path = dir.join(&meta.file);
    let sidecars: &[&str] = match meta.kind {
        SegmentKind::Log => &[log::INDEX, log::TIME_INDEX],
        SegmentKind::Arrow => &[],
    };
    sidecars.iter().map(|extension| path.with_extension(extension)).chain([path.clone()]).collect()
}

/// Kafka's way to name files: the base offset in twenty digits.
fn file_name(base_offset: Offset, extension: &str) -> String {
    format!("{base_offset:020}.{extension}")
}

/// Makes renames in `dir` durable.
fn sync_dir(dir: &Path) -> Result<(), SegmentError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(SegmentError::io("sync directory", dir))
}
