//! The disk as a seam: everything this crate keeps goes through [`Disk`], so that a test can lose power at any instant.
//!
//! [`RealDisk`] is the operating system's; [`SimulatedDisk`] is in memory, seeded, and loses whatever was not synced.
//!
//! All calls block. Positions and sizes are in bytes.

mod real;
mod simulated;

use std::fs::File;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use real::RealDisk;
pub use simulated::{CrashStyle, SimulatedDisk};

/// The unit of direct I/O used throughout: a page, and at least the logical block of every disk in use.
pub const BLOCK_SIZE: usize = 4096;

/// Whether a file's bytes pass through the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Through the page cache; any position, any length.
    Buffered,
    /// Around it where the file system allows, else buffered. Positions, lengths and buffer addresses must be
    /// multiples of [`BLOCK_SIZE`] in either case, so that a caller cannot depend on where it runs.
    Direct,
}

/// One file of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name, without the directory.
    pub name: String,
    /// Its length in bytes.
    pub size_bytes: u64,
}

/// A file system, or what stands in for one.
///
/// A name created, renamed or removed is durable only after [`Disk::sync_dir`] of its directory; a file's bytes and
/// length only after [`DiskFile::sync_data`].
pub trait Disk: Send + Sync + 'static {
    /// Creates a file for reading and writing; one that exists is emptied.
    fn create(&self, path: &Path, caching: Caching) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    fn open(&self, path: &Path, caching: Caching) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens an existing file through the page cache, for reading only. Leaves no trace, and needs no permission to write.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file, replacing the target atomically if it exists.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Open handles keep working.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The files directly in `directory`, sorted by name; directories are left out.
    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>>;

    /// Creates a directory and its parents. Succeeds when it exists.
    fn create_dir_all(&self, directory: &Path) -> io::Result<()>;

    /// Makes the names in `directory` durable.
    fn sync_dir(&self, directory: &Path) -> io::Result<()>;

    /// Bytes an unprivileged writer may still use on the file system that holds `directory`.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;
}

/// An open file. Positioned reads and writes only: handles are shared between threads and have no cursor.
pub trait DiskFile: Send + Sync {
    /// Where it was opened. A later rename does not change it.
    fn path(&self) -> &Path;

    /// Writes the whole buffer at `position`, growing the file if needed. Not durable until [`DiskFile::sync_data`].
    fn write_all_at(&self, buffer: &[u8], position: u64) -> io::Result<()>;

    /// Writes all buffers one after the other from `position` on, with one system call where possible.
    fn write_all_vectored_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<()>;

    /// Fills the whole buffer from `position`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends earlier.
    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()>;

    /// Makes written bytes and the file's length durable. After an error nothing may be assumed about what is on the
    /// disk, and a second call that succeeds proves nothing (LOG-5).
    fn sync_data(&self) -> io::Result<()>;

    /// Allocates blocks for the first `size` bytes and makes the file at least that long; what was not written reads as zeros.
    ///
    /// # Errors
    /// `StorageFull` or `QuotaExceeded` when there is no room. A file system without allocation only sets the length.
    fn preallocate(&self, size: u64) -> io::Result<()>;

    /// The file's length in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Cuts or extends the file.
    fn set_size(&self, size: u64) -> io::Result<()>;

    /// The alignment direct I/O really needs on this handle; `None` when it is buffered.
    fn direct_io(&self) -> Option<usize>;

    /// The operating system's file, for `sendfile`; `None` on a simulated disk.
    fn std_file(&self) -> Option<Arc<File>>;
}

/// True when the error says that there is no room left, whatever the reason.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Replaces `path` by a file with these contents: after a crash it holds either the old ones or the new ones, whole.
pub fn replace_file(disk: &dyn Disk, path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = PathBuf::from(name);
    let file = disk.create(&temporary, Caching::Buffered)?;
    file.write_all_at(contents, 0)?;
    file.sync_data()?;
    disk.rename(&temporary, path)?;
    match path.parent() {
        Some(parent) => disk.sync_dir(parent),
        None => Ok(()),
    }
}

/// A zeroed buffer of `len` bytes whose first byte sits on a block boundary, without `unsafe`: the vector is one block
/// longer than asked for and starts at `start`.
pub(crate) struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    pub(crate) fn zeroed(len: usize) -> AlignedBuffer {
        let bytes = vec![0; len + BLOCK_SIZE];
        let start = aligned_start(&bytes);
        AlignedBuffer { bytes, start, len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// How far into `bytes` the first block boundary lies.
pub(crate) fn aligned_start(bytes: &[u8]) -> usize {
    let start = bytes.as_ptr().align_offset(BLOCK_SIZE);
    assert!(start <= BLOCK_SIZE, "align_offset of a byte pointer is always exact");
    start
}

/// Rounds down to a block boundary.
pub(crate) fn align_down(position: u64) -> u64 {
    position - position % 4096
}

/// Rounds up to a block boundary.
pub(crate) fn align_up(position: u64) -> u64 {
    position.next_multiple_of(4096)
}

#[cfg(test)]
mod tests;
