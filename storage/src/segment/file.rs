//! Writing a file past the page cache, and reading one through it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::SegmentError;
use super::checksum::Crc32c;
use crate::disk::{AlignedBuffer, BLOCK_SIZE};

/// Extension of a file that is not complete.
pub(super) const TEMPORARY: &str = "tmp";
/// One write. Direct I/O in 64 KiB pieces costs six times the CPU of 1 MiB ones; beyond that nothing is won, and the buffer
/// no longer stays in the cache.
const STAGING_BYTES: usize = 1 << 20;
/// Where the buffer starts. A thousand partitions that seal a little each do not pay for clearing a large one.
const FIRST_STAGING_BYTES: usize = 64 << 10;

/// Writes one file front to back: large aligned writes with `O_DIRECT` where the file system has it, buffered where not.
/// The file has a `.tmp` name until [`Self::finish`]; dropped before that, it is removed.
#[derive(Debug)]
pub struct SegmentFileWriter {
    file: File,
    temporary: PathBuf,
    staging: AlignedBuffer,
    staged: usize,
    written: u64,
    digest: Crc32c,
    direct: bool,
    renamed: bool,
}

/// A file that is complete and synced. Its directory is not synced yet.
#[derive(Debug)]
pub(super) struct FinishedFile {
    pub(super) size_bytes: u64,
    /// CRC-32C of all its bytes.
    pub(super) digest: u32,
}

impl SegmentFileWriter {
    /// Starts `name` + `.tmp` in `dir`, replacing what an interrupted writer left under that name.
    ///
    /// # Errors
    /// [`SegmentError::Io`] when it cannot be created.
    pub fn create(dir: &Path, name: &str) -> Result<Self, SegmentError> {
        let temporary = dir.join(format!("{name}.{TEMPORARY}"));
        let (file, direct) = open_for_write(&temporary).map_err(SegmentError::io("create", &temporary))?;
        Ok(Self {
            file,
            temporary,
            staging: AlignedBuffer::zeroed(FIRST_STAGING_BYTES),
            staged: 0,
            written: 0,
            digest: Crc32c::new(),
            direct,
            renamed: false,
        })
    }

    /// Bytes so far.
    pub fn position(&self) -> u64 {
        self.written + self.staged as u64
    }

    /// Appends `bytes`. They reach the file in pieces of 1 MiB.
    ///
    /// # Errors
    /// [`SegmentError::Io`]; the file is then of no use.
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<(), SegmentError> {
        self.digest.update(bytes);
        self.stage(bytes)
    }

    /// Appends bytes whose CRC-32C is known, without reading them for it.
    ///
    /// # Errors
    /// As [`Self::write_all`].
    pub(super) fn write_checked(&mut self, bytes: &[u8], crc32c: u32) -> Result<(), SegmentError> {
        self.digest.combine(crc32c, bytes.len());
        self.stage(bytes)
    }

    fn stage(&mut self, mut bytes: &[u8]) -> Result<(), SegmentError> {
        while !bytes.is_empty() {
            self.make_room(bytes.len());
            let (now, later) = bytes.split_at(bytes.len().min(self.staging.len() - self.staged));
            self.staging.as_mut_slice()[self.staged..self.staged + now.len()].copy_from_slice(now);
            self.staged += now.len();
            bytes = later;
            if self.staged == STAGING_BYTES {
                self.flush(STAGING_BYTES)?;
            }
        }
        Ok(())
    }

    /// Grows the buffer toward its full size when `wanted` bytes do not fit.
    fn make_room(&mut self, wanted: usize) {
        let needed = self.staged.saturating_add(wanted);
        if needed > self.staging.len() && self.staging.len() < STAGING_BYTES {
            let mut larger = AlignedBuffer::zeroed(needed.next_power_of_two().min(STAGING_BYTES));
            larger.as_mut_slice()[..self.staged].copy_from_slice(&self.staging.as_slice()[..self.staged]);
            self.staging = larger;
        }
    }

    /// Appends zeros up to the next multiple of `alignment`.
    pub(super) fn pad_to(&mut self, alignment: u64) -> Result<(), SegmentError> {
        const ZEROS: [u8; 64] = [0; 64];
        let missing = self.position().next_multiple_of(alignment) - self.position();
        let missing = usize::try_from(missing).expect("alignments are small");
        self.write_all(&ZEROS[..missing])
    }

    /// Writes what is staged, cuts the file to its true size, syncs it and gives it its name. The caller syncs the directory.
    pub(super) fn finish(mut self, name: &Path) -> Result<FinishedFile, SegmentError> {
        let size_bytes = self.position();
        if self.staged > 0 {
            let padded = if self.direct { self.staged.next_multiple_of(BLOCK_SIZE) } else { self.staged };
            self.staging.as_mut_slice()[self.staged..padded].fill(0);
            self.flush(padded)?;
        }
        self.file.set_len(size_bytes).map_err(SegmentError::io("set the length of", &self.temporary))?;
        self.file.sync_data().map_err(SegmentError::io("sync", &self.temporary))?;
        std::fs::rename(&self.temporary, name).map_err(SegmentError::io("rename", &self.temporary))?;
        self.renamed = true;
        Ok(FinishedFile { size_bytes, digest: self.digest.value() })
    }

    /// Writes `length` bytes of the staging area, of which `staged` are real.
    fn flush(&mut self, length: usize) -> Result<(), SegmentError> {
        let mut outcome = self.file.write_all_at(&self.staging.as_slice()[..length], self.written);
        // Some file systems take O_DIRECT at open and refuse it at the first write.
        if self.direct && outcome.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL)) {
            self.leave_direct_mode().map_err(SegmentError::io("write", &self.temporary))?;
            outcome = self.file.write_all_at(&self.staging.as_slice()[..length], self.written);
        }
        outcome.map_err(SegmentError::io("write", &self.temporary))?;
        self.written += self.staged as u64;
        self.staged = 0;
        Ok(())
    }

    fn leave_direct_mode(&mut self) -> io::Result<()> {
        fcntl(&self.file, FcntlArg::F_SETFL(OFlag::empty()))?;
        self.direct = false;
        Ok(())
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} aligned bytes", self.len())
    }
}

impl Drop for SegmentFileWriter {
    fn drop(&mut self) {
        if !self.renamed {
            // A leftover is harmless, and removed at the next start.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

fn open_for_write(path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    match options.clone().custom_flags(OFlag::O_DIRECT.bits()).open(path) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((options.open(path)?, false)),
        Err(error) => Err(error),
    }
}

/// Writes an index file. Not synced: a reader checks its CRC against the manifest's and makes it anew from the segment when
/// a crash left something else, so a segment costs one sync and not three.
pub(super) fn write_index_file(path: &Path, bytes: &[u8]) -> Result<(), SegmentError> {
    std::fs::write(path, bytes).map_err(SegmentError::io("write", path))
}

/// A sealed file, open for positioned reads by any number of threads.
#[derive(Clone, Debug)]
pub(super) struct SealedFile {
    pub(super) file: Arc<File>,
    pub(super) path: Arc<Path>,
    pub(super) size_bytes: u64,
}

impl SealedFile {
    /// Opens `path` and checks that it has `size_bytes`.
    pub(super) fn open(path: &Path, size_bytes: u64) -> Result<Self, SegmentError> {
        let file = File::open(path).map_err(SegmentError::io("open", path))?;
        let found = file.metadata().map_err(SegmentError::io("look at", path))?.len();
        if found != size_bytes {
            return Err(SegmentError::corrupt(path, format!("it has {found} bytes, {size_bytes} were sealed")));
        }
        Ok(Self { file: Arc::new(file), path: path.into(), size_bytes })
    }

    /// Fills `bytes` from `position` on.
    pub(super) fn read_into(&self, bytes: &mut [u8], position: u64) -> Result<(), SegmentError> {
        self.file.read_exact_at(bytes, position).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                SegmentError::corrupt(&self.path, format!("it ends before {} bytes at {position}", bytes.len()))
            }
            _ => SegmentError::io("read", &self.path)(error),
        })
    }

    /// `length` bytes from `position` on. Checks against the file's size before it allocates.
    pub(super) fn read(&self, position: u64, length: u64) -> Result<Vec<u8>, SegmentError> {
        if position.checked_add(length).is_none_or(|end| end > self.size_bytes) {
            return Err(SegmentError::corrupt(
                &self.path,
                format!("{length} bytes at {position} were to be read, but it ends at {}", self.size_bytes),
            ));
        }
        let length = usize::try_from(length).expect("64-bit address space");
        let mut bytes = vec![0; length];
        self.read_into(&mut bytes, position)?;
        Ok(bytes)
    }

    /// CRC-32C of the whole file.
    pub(super) fn digest(&self) -> Result<u32, SegmentError> {
        const PIECE: u64 = 1 << 20;
        let mut digest = Crc32c::new();
        let mut position = 0;
        while position < self.size_bytes {
            let piece = self.read(position, PIECE.min(self.size_bytes - position))?;
            digest.update(&piece);
            position += piece.len() as u64;
        }
        Ok(digest.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_whatever_the_size_and_the_tail() {
        let dir = tempfile::tempdir().expect("temporary directory");
        for size in [0, 1, 4095, 4096, 4097, STAGING_BYTES, STAGING_BYTES + 1, 2 * STAGING_BYTES + 5000] {
            let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let mut writer = SegmentFileWriter::create(dir.path(), "a").expect("create");
            for piece in bytes.chunks(70_001) {
                writer.write_all(piece).expect("write");
            }
            assert_eq!(writer.position(), size as u64);
            let path = dir.path().join("a");
            let finished = writer.finish(&path).expect("finish");
            assert_eq!(std::fs::read(&path).expect("read"), bytes, "{size} bytes");
            assert_eq!((finished.size_bytes, finished.digest), (size as u64, super::super::checksum::crc32c(&bytes)));
        }
    }

    #[test]
    fn a_writer_that_is_dropped_leaves_nothing() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut writer = SegmentFileWriter::create(dir.path(), "a").expect("create");
        writer.write_all(b"half").expect("write");
        drop(writer);
        assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 0);
    }

    #[test]
    fn a_read_past_the_end_is_an_error_and_no_allocation() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("a");
        write_index_file(&path, b"abc").expect("write");
        let file = SealedFile::open(&path, 3).expect("open");
        assert!(file.read(1, u64::MAX).expect_err("past the end").is_corrupt());
        assert!(SealedFile::open(&path, 4).expect_err("wrong size").is_corrupt());
    }
}
