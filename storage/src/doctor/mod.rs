//! Checks a data directory that no broker uses, and changes nothing in it.
//!
//! What a start would refuse is found here too, and more: every byte is read, and the check goes on behind damage, so that it can say which
//! offsets are lost and which are whole. Findings come as they are made, in the order metadata, WAL, partitions, leftovers.

mod lock;
mod metadata;
mod partitions;
mod wal;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use weir_model::OffsetRange;

use metadata::Metadata;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing is lost, and the broker starts.
    Note,
    /// Something does not read that should.
    Damage,
}

/// What became of a stretch of offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It reads.
    Intact,
    /// It does not read from this directory.
    Lost,
    /// It does not read from its segment; the lake has it, as the marker that was read back said.
    InLake,
    /// Cannot be told: what says which bytes are right does not read, or differs from them.
    InDoubt,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Intact => "intact",
            Self::Lost => "lost",
            Self::InLake => "unreadable here, the lake has them",
            Self::InDoubt => "in doubt",
        })
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// The file or directory.
    pub path: PathBuf,
    /// The partition, as `topic-index`; by the topic's id where its name does not read.
    pub partition: Option<String>,
    /// What was found, in words.
    pub text: String,
    /// What that means for the partition's offsets, in order. Empty where it means nothing.
    pub offsets: Vec<(OffsetRange, Fate)>,
}

impl Finding {
    fn new(level: Level, path: &Path, text: impl Into<String>) -> Self {
        Self { level, path: path.to_owned(), partition: None, text: text.into(), offsets: Vec::new() }
    }

    fn ok(path: &Path, text: impl Into<String>) -> Self {
        Self::new(Level::Ok, path, text)
    }

    fn note(path: &Path, text: impl Into<String>) -> Self {
        Self::new(Level::Note, path, text)
    }

    fn damage(path: &Path, text: impl Into<String>) -> Self {
        Self::new(Level::Damage, path, text)
    }

    fn of(self, partition: &str) -> Self {
        Self { partition: Some(partition.to_owned()), ..self }
    }

    fn with(mut self, range: OffsetRange, fate: Fate) -> Self {
        if !range.is_empty() {
            self.offsets.push((range, fate));
        }
        self
    }
}

impl fmt::Display for Finding {
    /// One line: path, partition, what, and the offsets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        if let Some(partition) = &self.partition {
            write!(f, "partition {partition}: ")?;
        }
        f.write_str(&self.text.replace('\n', " "))?;
        for (position, (range, fate)) in self.offsets.iter().enumerate() {
            let lead = if position == 0 { "; offsets" } else { "," };
            write!(f, "{lead} {}..{} {fate}", range.start, range.end)?;
        }
        Ok(())
    }
}

/// What was looked at, and how often something was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Topics that the metadata names.
    pub topics: usize,
    /// Their partitions.
    pub partitions: usize,
    /// Local segments that were read.
    pub segments: usize,
    /// Their bytes.
    pub segment_bytes: u64,
    /// WAL files that were read.
    pub wal_files: usize,
    /// Entries in them.
    pub wal_entries: u64,
    /// Findings of [`Level::Note`].
    pub notes: usize,
    /// Findings of [`Level::Damage`].
    pub damages: usize,
}

/// Why a directory was not checked.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// There is nothing of Weir's in it.
    #[error("{} is no data directory: it has neither meta, wal nor segments in it; name the directory the broker was started with", .0.display())]
    NoData(PathBuf),
    /// A broker runs on it.
    #[error("a broker is running on {} (process {process}); stop it first", directory.display())]
    Running {
        /// The directory.
        directory: PathBuf,
        /// The broker's process id.
        process: i32,
    },
    /// It cannot be read.
    #[error("cannot {action} {}: {source}; check the permissions", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Says of a key above storage's own whether its value decodes; `None` when it is not its key.
pub type KeyCheck<'a> = &'a dyn Fn(&str, &[u8]) -> Option<Result<(), String>>;

/// What the parts of a check share.
struct Examination<'a> {
    directory: &'a Path,
    found: &'a mut dyn FnMut(Finding),
    summary: Summary,
}

impl Examination<'_> {
    fn report(&mut self, finding: Finding) {
        match finding.level {
            Level::Ok => {}
            Level::Note => self.summary.notes += 1,
            Level::Damage => self.summary.damages += 1,
        }
        (self.found)(finding);
    }
}

/// Checks `directory` and tells `found` what it finds. No broker can start on the directory until this returns. Reads every byte of WAL and segments. Blocks.
///
/// `other_keys` judges the keys in the metadata that belong to the parts above storage.
///
/// # Errors
/// [`DoctorError`] when there is nothing to check. Damage is no error but a [`Finding`].
pub fn check(
    directory: &Path,
    other_keys: KeyCheck<'_>,
    found: &mut dyn FnMut(Finding),
) -> Result<Summary, DoctorError> {
    if !["meta", "wal", "segments"].iter().any(|part| directory.join(part).is_dir()) {
        return Err(DoctorError::NoData(directory.to_owned()));
    }
    let _no_broker = lock::keep_brokers_out(directory)?;
    let mut examination = Examination { directory, found, summary: Summary::default() };
    let metadata = Metadata::read(&mut examination, other_keys);
    let joined = wal::check(&mut examination, metadata.as_ref());
    match metadata {
        Some(metadata) => partitions::check(&mut examination, &metadata, &joined),
        None => examination.report(Finding::note(
            &directory.join("segments"),
            "not checked: which segments there should be stands in the metadata, which does not read",
        )),
    }
    Ok(examination.summary)
}
