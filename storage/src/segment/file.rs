//! Writing a file past the page cache, and reading one through it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::SegmentError;
use super::checksum::Crc32c;

/// Extension of a file that is not complete.
pub(super) const TEMPORARY: &str = "tmp";
/// One write. Direct I/O in 64 KiB pieces costs six times the CPU of 1 MiB ones; beyond a few MiB nothing more is won.
const STAGING_BYTES: usize = 4 << 20;
/// Direct I/O wants memory, positions and lengths in multiples of the page.
const ALIGNMENT: usize = 4096;

/// Writes one file front to back: large aligned writes with `O_DIRECT` where the file system has it, buffered where not.
/// The file has a `.tmp` name until [`Self::finish`]; dropped before that, it is removed.
#[derive(Debug)]
pub struct SegmentFileWriter {
    file: File,
    temporary: PathBuf,
    /// Never grows or shrinks, so that `aligned_from` stays true.
    staging: Vec<u8>,
    aligned_from: usize,
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
        let staging = vec![0; STAGING_BYTES + ALIGNMENT];
        let aligned_from = staging.as_ptr().align_offset(ALIGNMENT);
        // `align_offset` may decline to answer; then no address is aligned for us, and the file must be buffered.
        let (aligned_from, aligned) = if aligned_from <= ALIGNMENT { (aligned_from, true) } else { (0, false) };
        let mut writer = Self {
            file,
            temporary,
            staging,
            aligned_from,
            staged: 0,
            written: 0,
            digest: Crc32c::new(),
            direct,
            renamed: false,
        };
        if direct && !aligned {
            writer.leave_direct_mode().map_err(SegmentError::io("create", &writer.temporary))?;
        }
        Ok(writer)
    }

    /// Bytes so far.
    pub fn position(&self) -> u64 {
        self.written + self.staged as u64
    }

    /// Appends `bytes`. They reach the file in pieces of 4 MiB.
    ///
    /// # Errors
    /// [`SegmentError::Io`]; the file is then of no use.
    pub fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), SegmentError> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(STAGING_BYTES - self.staged));
            let at = self.aligned_from + self.staged;
            self.staging[at..at + now.len()].copy_from_slice(now);
            self.staged += now.len();
            bytes = later;
            if self.staged == STAGING_BYTES {
                self.flush(STAGING_BYTES)?;
            }
        }
        Ok(())
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
            let padded = if self.direct { self.staged.next_multiple_of(ALIGNMENT) } else { self.staged };
            let from = self.aligned_from;
            self.staging[from + self.staged..from + padded].fill(0);
            self.flush(padded)?;
        }
        self.file.set_len(size_bytes).map_err(SegmentError::io("set the length of", &self.temporary))?;
        self.file.sync_all().map_err(SegmentError::io("sync", &self.temporary))?;
        std::fs::rename(&self.temporary, name).map_err(SegmentError::io("rename", &self.temporary))?;
        self.renamed = true;
        Ok(FinishedFile { size_bytes, digest: self.digest.value() })
    }

    /// Writes `length` bytes of the staging area, of which `staged` are real.
    fn flush(&mut self, length: usize) -> Result<(), SegmentError> {
        let from = self.aligned_from;
        self.digest.update(&self.staging[from..from + self.staged]);
        let mut outcome = self.file.write_all_at(&self.staging[from..from + length], self.written);
        // Some file systems take O_DIRECT at open and refuse it at the first write.
        if self.direct && outcome.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL)) {
            self.leave_direct_mode().map_err(SegmentError::io("write", &self.temporary))?;
            outcome = self.file.write_all_at(&self.staging[from..from + length], self.written);
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

/// Writes a small file whole: temporary name, sync, rename. The caller syncs the directory.
pub(super) fn write_small_file(path: &Path, bytes: &[u8]) -> Result<(), SegmentError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".");
    temporary.push(TEMPORARY);
    let temporary = PathBuf::from(temporary);
    let file = File::create(&temporary).map_err(SegmentError::io("create", &temporary))?;
    file.write_all_at(bytes, 0).map_err(SegmentError::io("write", &temporary))?;
    file.sync_all().map_err(SegmentError::io("sync", &temporary))?;
    std::fs::rename(&temporary, path).map_err(SegmentError::io("rename", &temporary))
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
        write_small_file(&path, b"abc").expect("write");
        let file = SealedFile::open(&path, 3).expect("open");
        assert!(file.read(1, u64::MAX).expect_err("past the end").is_corrupt());
        assert!(SealedFile::open(&path, 4).expect_err("wrong size").is_corrupt());
    }
}
