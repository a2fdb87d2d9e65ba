//! `weir doctor`: what is found in a data directory, one line each.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use weir_storage::doctor::{self, DoctorError, Level, Summary};

/// Why a directory is not well, or was not checked.
#[derive(Debug, thiserror::Error)]
pub enum DoctorCommandError {
    /// There was nothing to check.
    #[error(transparent)]
    Doctor(#[from] DoctorError),
    /// The output was closed.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    /// Damage was found, and printed.
    #[error("{} is damaged in {damages} places, printed above; keep a copy of it as it is, then restore the named files from a backup", directory.display())]
    Damaged {
        /// The directory.
        directory: PathBuf,
        /// How many lines say `damage`.
        damages: usize,
    },
}

/// Checks `directory` and prints every finding to `out` as it is made, then a line that sums up.
///
/// # Errors
/// [`DoctorCommandError`]; with [`DoctorCommandError::Damaged`] everything was checked and printed.
pub fn run(directory: &Path, out: &mut dyn Write) -> Result<(), DoctorCommandError> {
    let mut written = Ok(());
    let mut print = |finding: doctor::Finding| {
        let level = match finding.level {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Damage => "damage",
        };
        if written.is_ok() {
            written = writeln!(out, "{level:<6} {finding}");
        }
    };
    let summary = doctor::check(directory, &weir_lake::check_record, &mut print)?;
    written?;
    let Summary { topics, partitions, segments, segment_bytes, wal_files, wal_entries, notes, damages } = summary;
    writeln!(
        out,
        "weir doctor: {damages} damaged, {notes} notes; {topics} topics with {partitions} partitions, {segments} segments of {segment_bytes} bytes and {wal_files} WAL files with {wal_entries} entries were read",
    )?;
    if damages > 0 {
        return Err(DoctorCommandError::Damaged { directory: directory.to_owned(), damages });
    }
    Ok(())
}
