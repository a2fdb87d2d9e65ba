//! What can go wrong with the WAL.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::WalSeq;

/// Why the WAL cannot do what was asked. Cheap to clone: one failure is told to every waiter.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WalError {
    /// No room for the next file. Nothing was ordered; a later try succeeds once there is room again.
    #[error(
        "the disk is full: no room for a WAL file of {needed_bytes} bytes in {directory}; free space there or shorten retention"
    )]
    DiskFull {
        /// Where the WAL lives.
        directory: PathBuf,
        /// What could not be allocated.
        needed_bytes: u64,
    },
    /// The file system refused something. While the WAL is open this is fatal, see [`WalError::Failed`].
    #[error("cannot {action} {path}: {source}; check the disk and the file's permissions")]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// An entry cannot be read back, and what is behind it proves that it was synced. Nothing was changed on the disk.
    #[error(
        "WAL file {file} is damaged at byte {position}: entry {seq} is unreadable, yet what follows says that the log was synced through entry {synced_through}; \
         nothing was changed; run `weir doctor` on the data directory to see what can be saved"
    )]
    Corrupt {
        /// The file with the damage.
        file: PathBuf,
        /// Where in it the unreadable entry should start.
        position: u64,
        /// The first entry that is missing.
        seq: WalSeq,
        /// How far the log was synced, as a later entry or the end mark says.
        synced_through: WalSeq,
    },
    /// A file's first entry, by its name, comes before the end of the file in front of it.
    #[error(
        "WAL file {file} starts with entry {first} by its name, but the file before it ends with the entry before {expected}; \
         nothing was changed; run `weir doctor` on the data directory"
    )]
    Overlap {
        /// The file whose name does not fit.
        file: PathBuf,
        /// What its name says.
        first: WalSeq,
        /// What should come next.
        expected: WalSeq,
    },
    /// A write or sync failed earlier. What is on the disk is unknown, nothing completes any more, and the process must
    /// stop (LOG-5).
    #[error("the WAL stopped after a failed write or sync ({cause}); restart the broker once the disk is sound")]
    Failed {
        /// The first failure.
        cause: Arc<str>,
    },
    /// The WAL was closed.
    #[error("the WAL is closed; the broker is shutting down")]
    Closed,
}

impl WalError {
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> WalError {
        WalError::Io { action, path: path.into(), source: Arc::new(source) }
    }
}
