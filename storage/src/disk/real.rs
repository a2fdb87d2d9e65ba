//! The operating system's disk.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::statvfs;
use nix::sys::uio::pwritev;
use parking_lot::Mutex;

use super::{AlignedBuffer, BLOCK_SIZE, Caching, DirectoryEntry, Disk, DiskFile};

/// At most this many buffers go into one `pwritev` (`IOV_MAX` on Linux).
const VECTORED_LIMIT: usize = 1024;

/// The operating system's files, with direct I/O where the file system has it.
///
/// Whether a directory's file system has direct I/O is found out once, by writing a block to a file there, because
/// some accept the open and refuse the write.
#[derive(Default)]
pub struct RealDisk {
    direct_io: Mutex<BTreeMap<PathBuf, bool>>,
}

impl RealDisk {
    /// A disk that has probed nothing yet.
    pub fn new() -> RealDisk {
        RealDisk::default()
    }

    fn has_direct_io(&self, path: &Path) -> io::Result<bool> {
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        if let Some(known) = self.direct_io.lock().get(directory) {
            return Ok(*known);
        }
        let found = probe_direct_io(directory)?;
        self.direct_io.lock().insert(directory.to_owned(), found);
        Ok(found)
    }

    fn open_with(&self, path: &Path, caching: Caching, options: &mut OpenOptions) -> io::Result<Arc<dyn DiskFile>> {
        let direct = caching == Caching::Direct && self.has_direct_io(path)?;
        if direct {
            options.custom_flags(libc::O_DIRECT);
        }
        let file = options.read(true).write(true).open(path)?;
        Ok(Arc::new(RealFile { path: path.to_owned(), file: Arc::new(file), direct }))
    }
}

/// Writes one block with `O_DIRECT`. Only "no such thing here" means no: a full or broken disk is an error.
fn probe_direct_io(directory: &Path) -> io::Result<bool> {
    let path = directory.join(".direct-io-probe");
    let opened = OpenOptions::new().write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT).open(&path);
    let unsupported = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EINVAL) | Some(libc::EOPNOTSUPP));
    let file = match opened {
        Ok(file) => file,
        Err(error) if unsupported(&error) => return Ok(false),
        Err(error) => return Err(error),
    };
    let written = file.write_all_at(AlignedBuffer::zeroed(BLOCK_SIZE).as_slice(), 0);
    fs::remove_file(&path)?;
    match written {
        Ok(()) => Ok(true),
        Err(error) if unsupported(&error) => Ok(false),
        // The file system took the direct open; the caller's own write will meet whatever this was.
        Err(error) if super::is_disk_full(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

impl Disk for RealDisk {
    fn create(&self, path: &Path, caching: Caching) -> io::Result<Arc<dyn DiskFile>> {
        self.open_with(path, caching, OpenOptions::new().create(true).truncate(true))
    }

    fn open(&self, path: &Path, caching: Caching) -> io::Result<Arc<dyn DiskFile>> {
        self.open_with(path, caching, &mut OpenOptions::new())
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = Arc::new(File::open(path)?);
        Ok(Arc::new(RealFile { path: path.to_owned(), file, direct: false }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            // A name that is not UTF-8 is none of ours.
            if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
                entries.push(DirectoryEntry { name, size_bytes: metadata.len() });
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        let status = statvfs(directory)?;
        Ok(status.blocks_available().saturating_mul(status.fragment_size()))
    }
}

struct RealFile {
    path: PathBuf,
    file: Arc<File>,
    direct: bool,
}

impl DiskFile for RealFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn write_all_at(&self, buffer: &[u8], position: u64) -> io::Result<()> {
        self.file.write_all_at(buffer, position)
    }

    fn write_all_vectored_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut position = position;
        for group in buffers.chunks(VECTORED_LIMIT) {
            position += write_group(&self.file, group, position)?;
        }
        Ok(())
    }

    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn preallocate(&self, size: u64) -> io::Result<()> {
        let length = i64::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        match fallocate(&*self.file, FallocateFlags::empty(), 0, length) {
            Ok(()) => Ok(()),
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => {
                if self.size()? < size {
                    self.set_size(size)?;
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.file.set_len(size)
    }

    fn direct_io(&self) -> Option<usize> {
        self.direct.then_some(BLOCK_SIZE)
    }

    fn std_file(&self) -> Option<Arc<File>> {
        Some(self.file.clone())
    }
}

/// One `pwritev`; what it leaves over (signals, quotas) goes out buffer by buffer. Returns the bytes written.
fn write_group(file: &File, buffers: &[IoSlice<'_>], position: u64) -> io::Result<u64> {
    let offset = i64::try_from(position).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let mut skip = match pwritev(file, buffers, offset) {
        Ok(written) => written,
        Err(Errno::EINTR) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut at = position;
    for buffer in buffers {
        let done = skip.min(buffer.len());
        skip -= done;
        if done < buffer.len() {
            file.write_all_at(&buffer[done..], at + size_u64(done))?;
        }
        at += size_u64(buffer.len());
    }
    Ok(at - position)
}

fn size_u64(size: usize) -> u64 {
    u64::try_from(size).expect("a buffer's length fits 64 bits")
}
